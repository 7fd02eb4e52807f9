"""Event Mesh packets as JSON objects, both ways: fields by name, bytes as hex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from wirelake.errors import LocalProtocolError, UsageError
from wirelake.protocols.event_mesh.faults import UNREADABLE, Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import Event, EventType, Field, FieldType, Heartbeat, Hello, Message, Other, name_of
from wirelake.protocols.event_mesh.packet.values import floating, integer, joined, split, text, typed
from wirelake.protocols.event_mesh.security.trust_json import read_store
from wirelake.protocols.event_mesh.security.verify import Receiver, Rejected
from wirelake.protocols.event_mesh.wire import message
from wirelake.protocols.json_fields import breach, fault_object, message_type, number, objects
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START

__all__ = ["describe", "parse", "verifier"]

_NAMES: Final = {kind.value: kind.name.lower() for kind in FieldType}
_NUMBERS: Final = {name: kind for kind, name in _NAMES.items()}
_EVENTS: Final = {"hello": EventType.HELLO, "heartbeat": EventType.HEARTBEAT, "event": EventType.EVENT}
_MAKERS: Final[dict[int, type[Hello | Heartbeat | Event]]] = {
    EventType.HELLO: Hello,
    EventType.HEARTBEAT: Heartbeat,
    EventType.EVENT: Event,
}


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:  # noqa: ARG001 - as in every protocol
    """A scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of what is wrong.

    `fields` are as on the wire, `values` are joined. `base` is where `data` begins in what the user gave us.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    decoded = message(data, row, parts)
    described: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH], "type": name_of(type(decoded))}
    if isinstance(decoded, Other):
        described["event_type"] = decoded.event_type
    described |= {"message_id": f"{decoded.message_id:08x}", "timestamp": decoded.timestamp, "flags": decoded.flags}
    described["fields"] = [{"type": field.type, "value": field.value.hex()} for field in decoded.fields]
    if row[FAULT]:
        return described | breach(Fault(row[FAULT]))
    return described | {"values": [{_NAMES.get(field.type, f"0x{field.type:02x}"): _shown(field)} for field in joined(decoded.fields)]}


def _shown(field: Field) -> Any:
    value = typed(field)
    if isinstance(value, bytes):
        if field.type == FieldType.NODE_ID and len(value) == 16:
            return str(UUID(bytes=value))  # as keys, tables and live nodes print it
        return int.from_bytes(value) if field.type == FieldType.TIMESTAMP else value.hex()
    if isinstance(value, float) and floating(value).value != field.value:
        return field.value.hex()  # EMM-1: bits of a NaN that a number would lose
    return value if value == value and value not in (float("inf"), float("-inf")) else field.value.hex()  # JSON has no NaN


def parse(described: dict[str, Any]) -> Message:
    """The message an object describes: its `fields` as they are, or else its `values` in pieces.

    Raises UsageError.
    """
    kind = message_type(described)
    if kind not in (*_EVENTS, "other"):
        raise UsageError(f"type: {kind!r} is not one of {', '.join(_EVENTS)}, other")
    event_type = number(described, "event_type", 255) if kind == "other" else _EVENTS[kind]
    message_id = int.from_bytes(_octets(described.get("message_id"), "message_id", 4))
    timestamp, flags = number(described, "timestamp", (1 << 64) - 1), number(described, "flags", 255, 0)
    if "fields" in described:
        fields = tuple(_parse_field(field) for field in objects(described, "fields"))
    else:
        fields = tuple(piece for value in objects(described, "values") for piece in _parse_value(value))
    if event_type in _MAKERS:
        return _MAKERS[event_type](message_id, timestamp, fields, flags)
    return Other(event_type, message_id, timestamp, fields, flags)


def _parse_field(described: dict[str, Any]) -> Field:
    return Field(number(described, "type", 255), _octets(described.get("value", ""), "value"))


def _parse_value(described: dict[str, Any]) -> tuple[Field, ...]:
    if len(described) != 1:
        raise UsageError("values: each is an object with one name")
    name, value = next(iter(described.items()))
    kind = _NUMBERS.get(name)
    try:
        if kind is None:
            kind = int(name, 16)
        maker = _TYPED.get(kind)
        if maker is not None and not isinstance(value, str if kind in (FieldType.INTEGER, FieldType.FLOAT) else bool):
            return split(kind, maker(value).value)
        if kind == FieldType.TIMESTAMP and isinstance(value, int):
            return (Field(kind, value.to_bytes(8)),)
        if kind == FieldType.NODE_ID and isinstance(value, str):
            value = value.replace("-", "")
        return split(kind, _octets(value, name))
    except UsageError:  # it names the field already
        raise
    except (LocalProtocolError, OverflowError, AttributeError, TypeError, ValueError) as reason:
        raise UsageError(f"values: {name}: {reason}") from None


def _json_text(value: str) -> Field:
    return Field(FieldType.JSON, value.encode())


_TYPED: Final[dict[int, Callable[[Any], Field]]] = {
    FieldType.STRING: text,
    FieldType.JSON: _json_text,
    FieldType.INTEGER: integer,
    FieldType.FLOAT: floating,
}


def _octets(value: Any, name: str, size: int | None = None) -> bytes:
    try:
        data = bytes.fromhex(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}") from None
    if size is not None and len(data) != size:
        raise UsageError(f"{name}: {size} bytes as hex digits are needed, not {value!r}")
    return data


def verifier(trust_store: bytes, limits: Limits = DEFAULT_LIMITS) -> Callable[[bytes, float], dict[str, object]]:
    """Return a function that verifies a packet at a time, and describes its sender as `decode --keys` prints it.

    It verifies like a receiver with the keys of this trust store. Raises UsageError if the content is no trust store.
    """
    receiver = Receiver(read_store(trust_store), limits=limits)

    def verify(data: bytes, now: float) -> dict[str, object]:
        verdict = receiver.receive(data, now)
        if isinstance(verdict, Rejected):
            return {"rejected": verdict.fault.name, "clause": verdict.fault.clause, "text": verdict.fault.text, "at": verdict.offset}
        identity = verdict.identity
        return {
            "verified": identity.authenticated,
            "node_id": None if identity.node_id is None else str(UUID(bytes=identity.node_id)),
            "auth_key_id": None if identity.auth_key_id is None else identity.auth_key_id.hex(),
            "trust": identity.trust.value,
            "fresh": verdict.fresh,
        }

    return verify

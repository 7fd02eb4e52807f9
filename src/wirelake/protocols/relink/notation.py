"""Relink as plain objects, as people read and write them: names of the specification, bytes as hex. Both ways.

It refuses to know files and terminals.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from wirelake.errors import DecodeError, UsageError
from wirelake.protocols.kernel import FAULT, FAULT_AT, LENGTH, START
from wirelake.protocols.relink.faults import UNREADABLE, Fault
from wirelake.protocols.relink.messages import (
    LAST_SEQUENCE,
    TYPES,
    Acknowledgement,
    AnyMessage,
    Close,
    Closed,
    HandshakeFlag,
    Message,
    Operation,
    Reply,
    Request,
    Version,
    name_of,
)
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, ODD_BITS, ODD_EMPTY, ODD_FORM, ODDITIES, Limits
from wirelake.protocols.relink.wire import message

__all__ = ["describe", "parse"]

_BY_NAME: Final = {name_of(one): one for one in TYPES}
_FLAGS: Final = {
    "connector_transactions": HandshakeFlag.CONNECTOR_TRANSACTIONS,
    "listener_transactions": HandshakeFlag.LISTENER_TRANSACTIONS,
    "require_old_link": HandshakeFlag.REQUIRE_OLD_LINK,
}
_ODDITIES: Final = {
    ODD_BITS: Fault.UNUSED_BITS_SET,
    ODD_FORM: Fault.NOT_MINIMAL,
    ODD_EMPTY: Fault.MULTICAST_EMPTY,
}
_BIGGEST: Final = (1 << 64) - 1


def describe(data: bytes, row: list[int], parts: list[int], limits: Limits = DEFAULT_LIMITS, base: int = 0) -> dict[str, Any]:  # noqa: ARG001
    """A scanned row as an object: `offset`, `length`, `type`, every field; or `fault`, `clause` and the offset of what is wrong.

    `base` is where `data` begins in what the user gave us.
    """
    place: dict[str, Any] = {"offset": base + row[START], "length": row[LENGTH]}
    if row[FAULT] in UNREADABLE:
        return _wrong(Fault(row[FAULT]), base + row[FAULT_AT], place)
    try:
        said = message(data, row, parts)
    except DecodeError as reason:
        return _wrong(cast(Fault, reason.fault), base + reason.offset, place)
    described = {**place, "type": name_of(type(said)), **_fields(said)}
    if tolerated := [fault.name for bit, fault in _ODDITIES.items() if row[ODDITIES] & bit]:
        described["tolerated"] = tolerated
    if row[FAULT]:
        described |= {"breach": Fault(row[FAULT]).name, "clause": Fault(row[FAULT]).clause}
    return described


def _fields(said: AnyMessage) -> dict[str, Any]:
    fields = msgspec.structs.asdict(said)
    if "ids" in fields:
        fields["ids"] = [one.hex() for one in fields["ids"]]
    if isinstance(said, Message):
        fields["parts"] = [one.hex() for one in said.parts]
    if isinstance(said, Request):
        del fields["flags"]
        fields |= {name: bool(said.flags & flag) for name, flag in _FLAGS.items()}
    return fields


def _wrong(fault: Fault, offset: int, place: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": offset,
        "fault": fault.name,
        "clause": fault.clause,
        "text": fault.text,
        "message_offset": place["offset"],
        "message_length": place["length"],
    }


def parse(given: dict[str, Any]) -> AnyMessage:
    """What an object describes; raises UsageError that names the field. Sizes and places are worked out, not taken over."""
    if "fault" in given:
        raise UsageError(f"this object describes a fault ({given['fault']}), not a message")
    kind = _BY_NAME.get(given.get("type", ""))
    if kind is None:
        raise UsageError(f"type: {given.get('type')!r} is not one of {', '.join(_BY_NAME)}")
    if issubclass(kind, Version):
        return Version(_number(given, "version", 255, 0))
    if issubclass(kind, Reply):
        return Reply(_number(given, "epoch", _BIGGEST), _number(given, "link_id", _BIGGEST))
    if issubclass(kind, Request):
        return _parse_request(given)
    if issubclass(kind, Message):
        forms = [_truth(given, name) for name in ("multicast", "long", "large")]
        return Message(_many(given, "ids"), _many(given, "parts"), *forms)
    if issubclass(kind, Close | Closed):
        return kind(_many(given, "ids"), _truth(given, "multicast"))
    if issubclass(kind, Operation | Acknowledgement):
        sequence = None if given.get("sequence") is None else _number(given, "sequence", LAST_SEQUENCE)
        return kind(_many(given, "ids"), sequence, _truth(given, "multicast"))
    return kind()


def _parse_request(given: dict[str, Any]) -> Request:
    name = given.get("endpoint", "")
    if not isinstance(name, str) or len(name.encode(errors="replace")) > 255:
        raise UsageError("endpoint: a string of at most 255 bytes of UTF-8 is needed")
    flags = sum(flag for one, flag in _FLAGS.items() if _truth(given, one))
    connector, listener = (_number(given, one, 255, 0) for one in ("connector_id_size", "listener_id_size"))
    epoch, link_id = (_number(given, one, _BIGGEST, 0) for one in ("epoch", "link_id"))
    return Request(name, connector, listener, flags, epoch, link_id)


def _number(given: dict[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UsageError(f"{name}: a number from 0 to {most} is needed, not {value!r}")
    return value


def _truth(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"{name}: true or false is needed, not {value!r}")
    return value


def _many(given: dict[str, Any], name: str) -> tuple[bytes, ...]:
    value = given.get(name, [])
    if not isinstance(value, list):
        raise UsageError(f"{name}: a list of hex strings is needed, not {value!r}")
    try:
        return tuple(bytes.fromhex(one) for one in value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}: bytes as hex digits are needed, not {value!r}") from None

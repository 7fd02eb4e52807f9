"""Handshake parts and packets of Relink as plain objects (JSON), both ways; bytes as hex.

`parse(describe(packet))` is the message of the packet. Its bytes are the same, too, unless the packet has unused bits or padding set
(RELINK-12): `tolerated` then names UNUSED_BITS_SET, and the bits are not kept.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from wirelake.errors import DecodeError, UsageError
from wirelake.protocols.json_fields import boolean, breach, fault_object, hex_list, message_type, number
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

_BY_NAME: Final = {name_of(message_type): message_type for message_type in TYPES}
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
    """A scanned row as an object: `offset`, `length`, `type` and every field.

    An unreadable row has `fault`, `clause` and the offset of the fault. `base` is the offset of `data` in the user's input.
    """
    if row[FAULT] in UNREADABLE:
        return fault_object(Fault(row[FAULT]), base + row[FAULT_AT], base + row[START], row[LENGTH])
    try:
        packet = message(data, row, parts)
    except DecodeError as reason:
        return fault_object(cast(Fault, reason.fault), base + reason.offset, base + row[START], row[LENGTH])
    described = {"offset": base + row[START], "length": row[LENGTH], "type": name_of(type(packet)), **_fields(packet)}
    if tolerated := [fault.name for bit, fault in _ODDITIES.items() if row[ODDITIES] & bit]:
        described["tolerated"] = tolerated
    if row[FAULT]:
        described |= breach(Fault(row[FAULT]))
    return described


def _fields(packet: AnyMessage) -> dict[str, Any]:
    fields = msgspec.structs.asdict(packet)
    if "ids" in fields:
        fields["ids"] = [channel.hex() for channel in fields["ids"]]
    if isinstance(packet, Message):
        fields["parts"] = [part.hex() for part in packet.parts]
    if isinstance(packet, Request):
        del fields["flags"]
        fields |= {name: bool(packet.flags & flag) for name, flag in _FLAGS.items()}
    return fields


def parse(fields: dict[str, Any]) -> AnyMessage:
    """Read the message that an object describes; raise UsageError that names the field.

    `offset` and `length` are ignored.
    """
    name = message_type(fields)
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UsageError(f"type: {name!r} is not one of {', '.join(_BY_NAME)}")
    if issubclass(kind, Version):
        return Version(number(fields, "version", 255, 0))
    if issubclass(kind, Reply):
        return Reply(number(fields, "epoch", _BIGGEST), number(fields, "link_id", _BIGGEST))
    if issubclass(kind, Request):
        return _parse_request(fields)
    if issubclass(kind, Message):
        forms = [boolean(fields, name) for name in ("multicast", "long", "large")]
        return Message(hex_list(fields, "ids"), hex_list(fields, "parts"), *forms)
    if issubclass(kind, Close | Closed):
        return kind(hex_list(fields, "ids"), boolean(fields, "multicast"))
    if issubclass(kind, Operation | Acknowledgement):
        sequence = None if fields.get("sequence") is None else number(fields, "sequence", LAST_SEQUENCE)
        return kind(hex_list(fields, "ids"), sequence, boolean(fields, "multicast"))
    return kind()


def _parse_request(fields: dict[str, Any]) -> Request:
    name = fields.get("endpoint", "")
    if not isinstance(name, str) or len(name.encode(errors="replace")) > 255:
        raise UsageError("endpoint: a string of at most 255 bytes of UTF-8 is needed")
    flags = sum(flag for one, flag in _FLAGS.items() if boolean(fields, one))
    connector, listener = (number(fields, one, 255, 0) for one in ("connector_id_size", "listener_id_size"))
    epoch, link_id = (number(fields, one, _BIGGEST, 0) for one in ("epoch", "link_id"))
    return Request(name, connector, listener, flags, epoch, link_id)

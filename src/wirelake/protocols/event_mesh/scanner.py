"""The scanner of Event Mesh: finds the fields of a datagram, and the first rule they break.

This is the only reader of the layout. It checks every rule that the bytes of one datagram decide, in the order of EMM-28: from the header
to the node id.
"""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import (
    HEADER,
    LONGEST_FIELD,
    MAX_TLV_COUNT,
    VERSION,
    EventType,
    FieldType,
)
from wirelake.protocols.event_mesh.packet.encryption_metadata import metadata_fault, split_metadata
from wirelake.protocols.event_mesh.packet.layout import (
    ALGORITHM,
    AUTH_KEY_ID,
    CANONICAL,
    ENCRYPTION,
    FLAGS,
    HMAC,
    IV,
    IV_LENGTH,
    KEY_ID,
    MESSAGE_ID,
    NAME,
    NODE_ID,
    NONCE,
    NONE,
    ODD_KEY,
    ODD_OPEN,
    ODD_ORDER,
    ODDITIES,
    PART_COLUMNS,
    PART_LENGTH,
    PART_PARENT,
    PART_START,
    PART_TYPE,
    PUBLIC_KEY,
    ROW_COLUMNS,
    SIGNATURE,
    SIGNED,
    SUB_KEY_ID,
    TIMESTAMP,
)
from wirelake.protocols.event_mesh.packet.required_fields import (
    HAS_BINARY,
    HAS_FULL,
    HAS_HMAC,
    HAS_KEY,
    HAS_METADATA,
    HAS_SIGNATURE,
    HAS_STRING,
    missing,
)
from wirelake.protocols.kernel import (
    FAULT,
    FAULT_AT,
    KIND,
    LENGTH,
    NO_ROOM,
    PART,
    PARTS,
    START,
    i64,
    kernel,
    u16,
    u32,
)
from wirelake.protocols.utf8 import is_ascii, utf8

__all__ = [
    "ALGORITHM",
    "AUTH_KEY_ID",
    "CANONICAL",
    "DEFAULT_LIMITS",
    "ENCRYPTION",
    "FLAGS",
    "HMAC",
    "IV",
    "IV_LENGTH",
    "KEY_ID",
    "MESSAGE_ID",
    "NAME",
    "NODE_ID",
    "NONCE",
    "ODDITIES",
    "ODD_KEY",
    "ODD_OPEN",
    "ODD_ORDER",
    "PART_COLUMNS",
    "PART_LENGTH",
    "PART_PARENT",
    "PART_START",
    "PART_TYPE",
    "PUBLIC_KEY",
    "ROW_COLUMNS",
    "SIGNATURE",
    "SIGNED",
    "SUB_KEY_ID",
    "TIMESTAMP",
    "Limits",
    "find",
    "scan",
    "sniff",
    "walk",
]

SECURITY: Final = FieldType.HMAC.value
"""The first of the security fields; they are numbered without a gap."""
FIXED: Final = (32, 0, 64, 32, 16, 8, 12, 16, 4)
"""EMM-11: the lengths of 0x10 to 0x18; encryption metadata has no fixed one."""
LENGTHS: Final = sum(length << (7 * field) for field, length in enumerate(FIXED))
"""The same in one number, seven bits each: no table to look up in the loop."""
NUMBER: Final = 4
"""§4.1: bytes of an integer or float."""
RESERVED: Final = 0xF8
"""§2.3: the bits of the flags that must be zero."""
FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0; saying so lets the compiler drop a check on every access."""


@kernel
def _utf8_piece(data: Any, start: int, stop: int, pending: int) -> tuple[int, int]:
    """EMM-10, EMM-11: read one piece of a value as UTF-8.

    A character may go on in the next piece only if this one is full.
    """
    pending, at = utf8(data, start, stop, pending)
    if pending > 0 and stop - start < LONGEST_FIELD:  # a shorter piece ends the value
        return -1, stop
    return pending, at


@kernel
def scan(data: Any, start: int, stop: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int, int, int]:
    """Read the one datagram that data[start:stop] is: one row, one part for each field.

    Returns (rows written, parts written, next offset, need) as every protocol's scanner does. A datagram is always whole, so `next` is
    `stop` and `need` is 0. If rows or parts have no space for it, nothing is written, `next` is `start` and `need` NO_ROOM.
    """
    count, used = _read(data, (start,), (stop,), 0, start, rows, parts, limits)
    return (1, used, stop, 0) if count else (0, 0, start, NO_ROOM)


@kernel
def walk(
    data: Any, starts: Any, stops: Any, run: int, at: int, rows: Any, segment_of: Any, parts: Any, ends: Any, limits: Any
) -> tuple[int, int, int, int]:
    """Read the datagrams runs[run:], the first from offset `at`.

    Call again with what it returned until run == len(starts).

    What `kernel.walker` would make of `scan`, in one loop. Returns (rows written, parts written, run, offset). The rows and parts it
    was given must hold at least one datagram.
    """
    count, used = _read(data, starts, stops, run, at, rows, parts, limits)
    for row in range(count):
        segment_of[row] = run + row
        ends[run + row] = stops[run + row]
    run += count
    return count, used, run, starts[run] if run < len(starts) else stops[run - 1] if run else at


@kernel
def _read(data: Any, starts: Any, stops: Any, run: int, at: int, rows: Any, parts: Any, limits: Any) -> tuple[int, int]:
    """Write one row for each datagram of runs[run:] while they fit; returns the rows and parts written.

    One loop on purpose: to call another kernel with arrays costs as much as to read a field, so only what is rare is called.
    """
    max_payload, max_tlvs, profile = limits
    count, used = 0, 0
    while run < len(starts):
        start, stop = at, stops[run]
        row = count * ROW_COLUMNS
        most = used + min(max_tlvs, (stop - start) >> 1)
        if len(rows) < row + ROW_COLUMNS or len(parts) < most * PART_COLUMNS or start < 0 or start > FARTHEST or row < 0:
            return count, used
        for column in range(MESSAGE_ID, ROW_COLUMNS):
            rows[row + column] = -1
        kind, flags, first = -1, 0, used
        fault, fault_at = _header_fault(data, start, stop, max_payload)
        if fault != Fault.SHORT_PACKET.value and fault != Fault.UNSUPPORTED_VERSION.value:
            flags, kind = 0 + data[start + 5], 0 + data[start + 6]
            rows[row + MESSAGE_ID] = u32(data, start + 1)
            rows[row + FLAGS] = flags
            rows[row + TIMESTAMP] = i64(data, start + 7)
        canonical, odd = 0, 0
        if fault == NONE:
            fields, seen, pending, pending_json = 0, 0, 0, 0
            signature_at, signature_end, hmac_at, hmac_end, metadata_at, metadata_end = -1, -1, -1, -1, -1, -1
            last, last_rank, ascends = 0, 0, True
            at = start + HEADER
            while at < stop:
                if at < 0 or stop - at < 2 or stop - at - 2 < data[at + 1]:  # §6.3
                    fault, fault_at = Fault.TLV_OVERRUN.value, at
                    break
                type_ = 0 + data[at]
                length = 0 + data[at + 1]
                value = at + 2
                after = value + length
                if 0 <= used < most:
                    part = used * PART_COLUMNS
                    parts[part + PART_START] = at
                    parts[part + PART_LENGTH] = length
                    parts[part + PART_TYPE] = type_
                    parts[part + PART_PARENT] = 0
                    used += 1
                fields += 1
                rank, wrong, wrong_at = type_, NONE, at
                if type_ < SECURITY or type_ >= SECURITY + len(FIXED):
                    if type_ == FieldType.STRING.value:
                        if not seen & HAS_STRING:
                            rows[row + NAME] = value
                        seen |= HAS_STRING
                        if pending or not is_ascii(data, value, after):
                            pending, wrong_at = _utf8_piece(data, value, after, pending)
                            wrong = Fault.INVALID_UTF8.value if pending < 0 else NONE  # EMM-10, EMM-11
                    elif type_ == FieldType.JSON.value:
                        if pending_json or not is_ascii(data, value, after):
                            pending_json, wrong_at = _utf8_piece(data, value, after, pending_json)
                            wrong = Fault.INVALID_UTF8.value if pending_json < 0 else NONE
                    elif type_ == FieldType.BINARY.value:
                        seen |= HAS_BINARY
                    elif (type_ == FieldType.INTEGER.value or type_ == FieldType.FLOAT.value) and length != NUMBER:  # EMM-11
                        wrong = Fault.FIELD_LENGTH.value
                    if length == LONGEST_FIELD:
                        seen |= HAS_FULL
                else:
                    field = type_ - SECURITY
                    if seen & (1 << field):  # EMM-9
                        wrong = Fault.DUPLICATE_TLV.value
                    elif length != (LENGTHS >> (7 * field)) & 0x7F and type_ != FieldType.ENCRYPTION.value:  # EMM-11
                        wrong = Fault.FIELD_LENGTH.value
                    else:
                        rows[row + HMAC + field] = value
                    if type_ == FieldType.HMAC.value:
                        if not seen & HAS_HMAC:
                            hmac_at, hmac_end = at, after
                        rank = 258
                    elif type_ == FieldType.SIGNATURE.value:
                        if not seen & HAS_SIGNATURE:
                            signature_at, signature_end = at, after
                        rank = 259
                    elif type_ == FieldType.PUBLIC_KEY.value:
                        rank = 256
                    elif type_ == FieldType.AUTH_KEY_ID.value:
                        rank = 257
                    elif type_ == FieldType.ENCRYPTION.value:
                        inner, used = split_metadata(data, value, after, parts, used, most)
                        fields += inner
                        if not seen & HAS_METADATA:
                            metadata_at, metadata_end = value, after
                    seen |= 1 << field
                if wrong < fault:
                    fault, fault_at = wrong, wrong_at
                if rank < last_rank:
                    odd = ODD_ORDER  # EMM-5
                last_rank = rank
                if rank < 258:
                    if type_ < last:
                        ascends = False
                    last = type_
                at = after
            if fault != Fault.TLV_OVERRUN.value:
                if fields > max_tlvs:  # EMM-26
                    fault, fault_at = Fault.TLV_COUNT.value, start + HEADER
                if (pending > 0 or pending_json > 0) and fault > Fault.INVALID_UTF8.value:  # a full last piece ends inside a character
                    fault, fault_at = Fault.INVALID_UTF8.value, stop
                if signature_at >= 0 and signature_end != stop and fault > Fault.SIGNATURE_NOT_LAST.value:  # EMM-6
                    fault, fault_at = Fault.SIGNATURE_NOT_LAST.value, signature_at
                is_proof_last = hmac_end in (stop, signature_at)  # of a signature that is not last was spoken above
                if hmac_at >= 0 and not is_proof_last and fault > Fault.HMAC_POSITION.value:  # EMM-6
                    fault, fault_at = Fault.HMAC_POSITION.value, hmac_at
                if metadata_at >= 0:
                    wrong, wrong_at, inside_ascends = metadata_fault(data, metadata_at, metadata_end, rows, row)
                    if wrong < fault:
                        fault, fault_at = wrong, wrong_at
                    if not inside_ascends:
                        ascends, odd = False, odd | ODD_ORDER
                if seen & HAS_FULL and _is_open(parts, first, used):
                    odd |= ODD_OPEN
                if seen & HAS_KEY and not seen & HAS_SIGNATURE:
                    odd |= ODD_KEY
                if ascends:
                    canonical = (hmac_at if hmac_at >= 0 else signature_at if signature_at >= 0 else stop) - start
                wrong = missing(kind, flags, seen, odd, profile)
                if wrong < fault:
                    fault, fault_at = wrong, metadata_at - 2 if wrong == Fault.ENC_FLAG_MISSING.value else start + HEADER
        rows[row + START] = start
        rows[row + LENGTH] = stop - start
        rows[row + KIND] = kind
        rows[row + FAULT] = 0 if fault == NONE else fault
        rows[row + FAULT_AT] = fault_at
        rows[row + PART] = first
        rows[row + PARTS] = used - first
        rows[row + CANONICAL] = canonical
        rows[row + ODDITIES] = odd
        count += 1
        run += 1
        if run < len(starts):
            at = starts[run]
    return count, used


@kernel
def _header_fault(data: Any, start: int, stop: int, max_payload: int) -> tuple[int, int]:
    """§6.2, §6.3: why there is no payload to look at, and where; or NONE."""
    if stop - start < HEADER:
        return Fault.SHORT_PACKET.value, stop
    if data[start] != VERSION:  # EMM-2
        return Fault.UNSUPPORTED_VERSION.value, start
    if data[start + 5] & RESERVED:  # EMM-3
        return Fault.RESERVED_FLAGS.value, start + 5
    size = u16(data, start + 15)
    if size > max_payload:  # EMM-4
        return Fault.PAYLOAD_TOO_LARGE.value, start + 15
    if stop - start != HEADER + size:  # EMM-4
        return Fault.LENGTH_MISMATCH.value, start + 15
    return NONE, start


@kernel
def _is_open(parts: Any, first: int, used: int) -> bool:
    """EMM-10: whether a type's last piece is a full one, so that its value is not closed."""
    for one in range(first, used):
        kind = parts[one * PART_COLUMNS + PART_TYPE]
        if parts[one * PART_COLUMNS + PART_LENGTH] == LONGEST_FIELD and parts[one * PART_COLUMNS + PART_PARENT] == 0:
            is_last = kind != FieldType.ENCRYPTION.value
            for other in range(one + 1, used):
                if parts[other * PART_COLUMNS + PART_TYPE] == kind and parts[other * PART_COLUMNS + PART_PARENT] == 0:
                    is_last = False
            if is_last:
                return True
    return False


@kernel
def find(data: Any, start: int, stop: int, limits: Any) -> int:  # noqa: ARG001 - as in every protocol
    """Nothing follows a datagram: where it stops making sense, it stops."""
    return stop


def sniff(data: bytes) -> bool:
    """Whether a flow with this first datagram is Event Mesh.

    It must have a known event type, at least one field, and no fault.
    """
    row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * MAX_TLV_COUNT)
    scan(data, 0, len(data), row, parts, DEFAULT_LIMITS.for_scan())
    return row[FAULT] == 0 and row[PARTS] > 0 and EventType.HELLO <= row[KIND] <= EventType.EVENT

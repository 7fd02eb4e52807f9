"""The part of the scanner for encryption metadata (§4.2.1): its fields and first fault."""

from __future__ import annotations

from typing import Any, Final

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import Algorithm, FieldType, SubType
from wirelake.protocols.event_mesh.packet.layout import (
    ALGORITHM,
    IV,
    IV_LENGTH,
    KEY_ID,
    KEY_ID_SIZE,
    NONCE,
    NONCE_SIZE,
    NONE,
    PART_COLUMNS,
    PART_LENGTH,
    PART_PARENT,
    PART_START,
    PART_TYPE,
    SUB_KEY_ID,
)
from wirelake.protocols.kernel import kernel

__all__ = ["metadata_fault", "split_metadata"]

SUB_FIXED: Final = (1, 1, -1, 12, 16)
"""§4.2.1: the lengths of the fields inside encryption metadata.

That of the IV depends on the algorithm.
"""


@kernel
def split_metadata(data: Any, at: int, end: int, parts: Any, used: int, most: int) -> tuple[int, int]:
    """§4.2.1: write the fields inside encryption metadata as parts.

    Gives how many there are, and how many parts are written then.
    """
    count = 0
    while end - at >= 2 and end - at - 2 >= data[at + 1]:
        if used < most:
            part = used * PART_COLUMNS
            parts[part + PART_START] = at
            parts[part + PART_LENGTH] = 0 + data[at + 1]
            parts[part + PART_TYPE] = 0 + data[at]
            parts[part + PART_PARENT] = FieldType.ENCRYPTION.value
            used += 1
        count += 1
        at += 2 + data[at + 1]
    return count, used


@kernel
def metadata_fault(data: Any, start: int, end: int, rows: Any, row: int) -> tuple[int, int, bool]:
    """§4.2.1: the gravest fault of encryption metadata or NONE, its place, and whether its fields ascend."""
    fault, fault_at, ascends, last, seen = NONE, start, True, 0, 0
    algorithm, announced, iv, iv_length, nonce, key = -1, -1, -1, 0, -1, -1
    at = start
    while at < end:
        if end - at < 2 or end - at - 2 < data[at + 1]:
            return Fault.SUB_TLV_OVERRUN.value, at, ascends
        kind = 0 + data[at]
        length = 0 + data[at + 1]
        wrong = NONE
        if kind < last:
            ascends = False
        last = kind
        if kind >= SubType.ALGORITHM.value and kind <= SubType.KEY_ID.value:
            if seen & (1 << kind):  # EMM-9
                wrong = Fault.DUPLICATE_SUB_TLV.value
            elif SUB_FIXED[kind - 1] >= 0 and length != SUB_FIXED[kind - 1]:
                wrong = Fault.SUB_FIELD_LENGTH.value
            elif kind == SubType.ALGORITHM.value:
                algorithm = 0 + data[at + 2]
            elif kind == SubType.LENGTH.value:
                announced = 0 + data[at + 2]
            elif kind == SubType.IV.value:
                iv, iv_length = at + 2, length
            elif kind == SubType.NONCE.value:
                nonce = at + 2
            else:
                key = at + 2
            seen |= 1 << kind
        if wrong < fault:
            fault, fault_at = wrong, at
        at += 2 + length
    rows[row + ALGORITHM] = algorithm
    rows[row + IV] = nonce if nonce >= 0 else iv
    rows[row + IV_LENGTH] = NONCE_SIZE if nonce >= 0 else iv_length if iv >= 0 else -1
    rows[row + SUB_KEY_ID] = key
    if fault != NONE:
        return fault, fault_at, ascends
    if algorithm < 0:
        return Fault.ENC_NO_ALGORITHM.value, start, ascends
    if iv >= 0 and nonce >= 0:
        return Fault.ENC_IV_AND_NONCE.value, nonce - 2, ascends
    if iv < 0 and nonce < 0:
        return Fault.ENC_NO_IV_OR_NONCE.value, start, ascends
    if announced >= 0x80:
        return Fault.ENC_LENGTH_MSB.value, start, ascends
    if announced >= 0 and (iv < 0 or announced != iv_length):  # EMM-15: without an IV there is nothing to announce
        return Fault.ENC_IV_LENGTH_MISMATCH.value, start, ascends
    if algorithm == Algorithm.AES_256_GCM.value and (iv < 0 or iv_length != NONCE_SIZE):  # EMM-15
        return Fault.ENC_ALGORITHM_IV.value, start, ascends
    if algorithm == Algorithm.CHACHA20_POLY1305.value and nonce < 0:  # EMM-15
        return Fault.ENC_ALGORITHM_IV.value, start, ascends
    if nonce >= 0 and rows[row + NONCE] >= 0 and _differ(data, nonce, rows[row + NONCE], NONCE_SIZE):  # EMM-16
        return Fault.ENC_NONCE_CONFLICT.value, rows[row + NONCE] - 2, ascends
    if key >= 0 and rows[row + KEY_ID] >= 0 and _differ(data, key, rows[row + KEY_ID], KEY_ID_SIZE):  # EMM-16
        return Fault.ENC_KEY_ID_CONFLICT.value, rows[row + KEY_ID] - 2, ascends
    return NONE, start, ascends


@kernel
def _differ(data: Any, one: int, other: int, size: int) -> bool:
    """Whether two byte ranges differ."""
    for step in range(size):  # noqa: SIM110 - kernels have no generators
        if data[one + step] != data[other + step]:
            return True
    return False

"""The error message that answers a fault, and the readable part of a peer's malformed error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from wirelake.errors import DecodeError
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.limits import Limits
from wirelake.protocols.emp.messages import Error, ErrorCode
from wirelake.protocols.emp.scanner import BODY, BODY_LENGTH, ERROR_TEXT, HEADER
from wirelake.protocols.emp.wire import LONGEST_TEXT, message
from wirelake.protocols.utf8 import fit

__all__ = ["answer", "salvage"]


def answer(
    fault: Fault, detail: str, limits: Limits, extension_id: int | None, error_code: int | None, extension_error_code: int | None
) -> Error | None:
    """The error message that a fault is answered with; None: it is answered by closing (EMP-22)."""
    rule = fault.rule
    code = rule.error_code if error_code is None else error_code
    if code is None:
        return None
    extended = code == ErrorCode.EXTENSION  # EMP-6: zero elsewhere
    longest = max(0, min(LONGEST_TEXT, limits.max_message_size - HEADER - ERROR_TEXT))  # EMP-35: the answer to a fault always fits
    return Error(
        code,
        (rule.extension_id if extension_id is None else extension_id) if extended else 0,
        (rule.extension_error_code if extension_error_code is None else extension_error_code) if extended else 0,
        fit(f"{fault.clause}: {fault.text}{': ' + detail if detail else ''}", longest).decode(),
    )


def salvage(data: bytes, row: Sequence[int], parts: Sequence[int]) -> tuple[Error, Fault | None]:
    """EMP-22: an error of the peer as far as it can be read, and what is wrong with it."""
    try:
        return cast(Error, message(data, row, parts)), None
    except DecodeError as reason:
        body = data[row[BODY] : row[BODY] + row[BODY_LENGTH]].ljust(ERROR_TEXT, b"\x00")
        return Error(body[0], body[1], body[2], body[ERROR_TEXT:].decode(errors="replace")), cast(Fault, reason.fault)

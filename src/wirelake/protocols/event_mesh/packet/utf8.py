"""UTF-8 in pieces, as values of this protocol are cut (EMM-10, EMM-11). It refuses to know what the text is for."""

from __future__ import annotations

from typing import Any

from wirelake.protocols.event_mesh.messages import LONGEST_FIELD
from wirelake.protocols.kernel import kernel
from wirelake.protocols.utf8 import is_ascii
from wirelake.protocols.utf8 import utf8 as read

__all__ = ["is_ascii", "utf8"]


@kernel
def utf8(data: Any, start: int, stop: int, pending: int) -> tuple[int, int]:
    """EMM-10: as `protocols.utf8.utf8`; a character may go on in the next piece only if this one is full."""
    pending, at = read(data, start, stop, pending)
    if pending > 0 and stop - start < LONGEST_FIELD:  # a shorter piece ends the value
        return -1, stop
    return pending, at

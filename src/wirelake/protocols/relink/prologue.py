"""The handshake of a connection as far as reading needs it: what each direction says next, and the channel id sizes both need.

Whoever reads a connection keeps one `Prologue` for it, asks it for the limits of each direction, and tells it every row of the handshake.
A listener's packets cannot be read before the connector's request was: `limits` says None so long. It refuses to know whether what is
said is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.protocols.kernel import KIND
from wirelake.protocols.relink.conversation import Speaker
from wirelake.protocols.relink.messages import Kind
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, IDS, UNIT, Limits, Stage

__all__ = ["Prologue", "sniff"]

_NEXT: Final = {
    (Speaker.CONNECTOR, Kind.VERSION): Stage.REQUEST,
    (Speaker.LISTENER, Kind.VERSION): Stage.REPLY,
    (Speaker.CONNECTOR, Kind.REQUEST): Stage.PACKETS,
    (Speaker.LISTENER, Kind.REPLY): Stage.PACKETS,
}


class Prologue:
    """How far the handshake of one connection is."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, id_sizes: tuple[int, int] | None = None, stage: Stage = Stage.VERSION) -> None:
        self._limits = limits
        self._stages = [stage, stage]
        self.id_sizes = id_sizes
        """The connector's and the listener's channel id size, once known; a connector knows them from the start."""

    def limits(self, speaker: Speaker) -> tuple[int, ...] | None:
        """What the scanner is to be given for what this one says next; None: that cannot be read yet."""
        stage = self._stages[speaker]
        if stage is not Stage.PACKETS:
            return self._limits.for_scan(stage)
        if self.id_sizes is None:
            return None
        return self._limits.for_scan(stage, self.id_sizes[speaker], self.id_sizes[speaker.other])

    def follow(self, speaker: Speaker, data: bytes, row: Sequence[int]) -> bool:
        """A row of what this one said was read; says whether other limits hold from now on."""
        stage = _NEXT.get((speaker, Kind(row[KIND]))) if self._stages[speaker] is not Stage.PACKETS else None
        if stage is None:
            return False
        self._stages[speaker] = stage
        if row[KIND] == Kind.REQUEST:
            self.id_sizes = (data[row[IDS]], data[row[IDS] + 1])
        return True


def sniff(data: bytes) -> bool:
    """Whether a connector's stream that begins like this is Relink: version 0, then a whole request with nothing odd in it.

    The eight zero bytes a connection begins with say nothing by themselves.
    """
    if len(data) <= UNIT or data[:UNIT] != bytes(UNIT):
        return False
    name_end = UNIT + 1 + data[UNIT]
    end = UNIT + (name_end + 3 - UNIT + UNIT - 1) // UNIT * UNIT
    if len(data) < end + 16 or data[name_end + 2] > 7 or any(data[name_end + 3 : end]) or data[end + 15] & 0x80:
        return False
    try:
        name = data[UNIT + 1 : name_end].decode()
    except UnicodeDecodeError:
        return False
    has_link = any(data[end + 8 : end + 16])
    return name.isprintable() and data[UNIT] > 0 and (not has_link or any(data[end : end + 8]))

"""Prologues: connections whose peers agree first on how they are to be read, held until they have.

What one side says may be readable only by what the other said, and nobody promises which of them a capture shows first. So nothing of such
a connection is read before both have said their part, or cannot any more: then the order in which it came does not matter.

It refuses to know what is agreed on: the room's `Prologue` does.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from wirelake.lake.memory import Memory, Said
from wirelake.lake.reading import Reading
from wirelake.lake.streams import clip

__all__ = ["Opened", "Prologues"]

LONGEST: Final = 4096
"""Bytes of one side in which its part of a prologue is looked for."""


class Opened(msgspec.Struct):
    """A connection that can be read from now on."""

    parts: list[tuple[tuple[int, ...], Said]]
    """What the scanner is given, and the part of the prologue it is given for."""
    rest: list[Said]


class Prologues:
    """Takes what was said on connections of one protocol, gives what can be read."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def hear(self, reading: Reading, heard: list[Said]) -> tuple[list[Opened], list[Said]]:
        """Connections that have just agreed, and what was said on those that had before."""
        opened, known = [], []
        for one in heard:
            connection = one.flow.session_id
            if connection in self._memory.prologues:
                known.append(one)
                continue
            waiting = self._memory.unsettled.setdefault(connection, [])
            waiting.append(msgspec.structs.replace(one, data=one.data.copy()))
            if made := self._try(reading, waiting):
                opened.append(made)
        return opened, known

    def release(self, reading: Reading, connection: bytes) -> Opened:
        """Read a connection as far as it goes, though its peers may not have agreed."""
        made = self._try(reading, self._memory.unsettled[connection], is_over=True)
        assert made is not None  # noqa: S101 - it is over
        return made

    def _try(self, reading: Reading, waiting: list[Said], *, is_over: bool = False) -> Opened | None:
        prologue = reading.room.Prologue(reading.limits)
        parts: list[tuple[tuple[int, ...], Said]] = []
        read = {}
        for to_server in (1, 0):
            mine = [one for one in waiting if one.to_server == to_server]
            gap = next((number for number, one in enumerate(mine) if one.missing), len(mine))
            speaker = reading.room.Speaker.CLIENT if to_server else reading.room.Speaker.SERVER
            found, read[to_server] = _follow(prologue, speaker, mine[:gap])
            parts += found
            if not (prologue.is_over(speaker) or gap < len(mine) or is_over):
                return None
        connection = waiting[0].flow.session_id
        self._memory.prologues[connection] = prologue
        del self._memory.unsettled[connection]
        return Opened(parts, [left for one in waiting if (left := _without(one, read))])


def _follow(prologue: Any, speaker: Any, mine: list[Said]) -> tuple[list[tuple[tuple[int, ...], Said]], int]:
    """The parts of the prologue that one side has said, and how many bytes they are."""
    if not mine:
        return [], 0
    data = np.concatenate([one.data for one in mine])[:LONGEST]
    places, begin = [], 0
    for one in mine:
        places.append(one.pieces + np.array([begin, 0, 0]))
        begin += len(one.data)
    pieces = np.concatenate(places)
    parts, at = [], 0
    while at < len(data) and not prologue.is_over(speaker):
        before = prologue.limits(speaker)
        given, start, stop = next(prologue.pieces(speaker, data, at, len(data)))
        if prologue.limits(speaker) == before:
            break  # not all of it is there
        parts.append((given, Said(mine[0].flow, mine[0].to_server, 0, data[start:stop], clip(pieces, start, stop))))
        at = stop
    return parts, at


def _without(one: Said, read: dict[int, int]) -> Said | None:
    """What is left of what was said, when so many bytes of each side were read before."""
    skipped = min(len(one.data), read[one.to_server]) if not one.missing else 0
    read[one.to_server] -= skipped
    if skipped == len(one.data):
        return None
    return msgspec.structs.replace(one, data=one.data[skipped:], pieces=clip(one.pieces, skipped, len(one.data)))

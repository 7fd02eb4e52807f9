"""PendingHandshakes: connections whose peers agree first on how they are to be read, held until they have.

What one side says may be readable only by what the other said, and nobody promises which of them a capture shows first. So nothing of such
a connection is read before both have said their part, or cannot any more: then the order in which it came does not matter.

It refuses to know what is agreed on: the room's `Prologue` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState, Segment
from wirelake.lake.decode.streams import clip

__all__ = ["Opened", "PendingHandshakes"]

LONGEST: Final = 4096
"""Bytes of one side in which its part of a prologue is looked for."""


class Opened(msgspec.Struct):
    """A connection that can be read from now on."""

    parts: list[tuple[tuple[int, ...], Segment]]
    """What the scanner is given, and the part of the prologue it is given for."""
    rest: list[Segment]


class _Progress:
    """How far the prologue of one connection is, so that a new run costs what it brings, and not what waits before it.

    It follows from the runs that wait, and is not stored with them.
    """

    def __init__(self, reading: Scanner) -> None:
        self.heard = 0
        """Runs that were taken."""
        self._handshake = reading.room.Prologue(reading.limits)
        self._pending = [(1, reading.room.Speaker.CLIENT), (0, reading.room.Speaker.SERVER)]
        """Sides that may still say their part, the client first."""
        self._sizes = [0, 0]
        """Bytes of each side that were looked at, `LONGEST` at most."""
        self._heads = (bytearray(), bytearray())
        """… without those that were followed."""
        self._has_gap = [False, False]

    def hear(self, one: Segment) -> bool:
        """Take the next run; says whether both sides have said their part now, or cannot any more."""
        self.heard += 1
        side, changes = one.to_server, False
        if one.missing and not self._has_gap[side]:
            self._has_gap[side] = changes = True
        elif not self._has_gap[side] and (fresh := one.data[: LONGEST - self._sizes[side]].tobytes()):
            self._sizes[side] += len(fresh)
            self._heads[side].extend(fresh)
            changes = True
        if changes and self._pending and side == self._pending[0][0]:
            while self._pending and self._is_done(*self._pending[0]):
                del self._pending[0]
        return not self._pending

    def _is_done(self, side: int, speaker: Any) -> bool:
        followed = max((stop for _, _, stop in _parts(self._handshake, speaker, self._heads[side])), default=0)
        del self._heads[side][:followed]
        return self._has_gap[side] or self._handshake.is_over(speaker)


class PendingHandshakes:
    """Takes what was said on connections of one protocol, gives what can be read."""

    def __init__(self, decoder_state: DecoderState) -> None:
        self._decoder_state = decoder_state
        self._progress: dict[bytes, _Progress] = {}

    def hear(self, reading: Scanner, heard: list[Segment]) -> tuple[list[Opened], list[Segment]]:
        """Connections that have just agreed, and what was said on those that had before."""
        opened, known = [], []
        for one in heard:
            connection = one.flow.session_id
            if connection in self._decoder_state.handshakes:
                known.append(one)
                continue
            waiting = self._decoder_state.pending.setdefault(connection, [])
            progress = self._followed(reading, connection, waiting)
            waiting.append(msgspec.structs.replace(one, data=one.data.copy()))
            if progress.hear(one):
                opened.append(self.release(reading, connection))
        return opened, known

    def _followed(self, reading: Scanner, connection: bytes, waiting: list[Segment]) -> _Progress:
        """How far a connection is: known, or found out from what waits where that was stored, or dropped since."""
        progress = self._progress.get(connection)
        if progress is None or progress.heard != len(waiting):
            progress = self._progress[connection] = _Progress(reading)
            for one in waiting:
                progress.hear(one)
        return progress

    def release(self, reading: Scanner, connection: bytes) -> Opened:
        """Read a connection as far as it goes, whether or not its peers have agreed."""
        waiting = self._decoder_state.pending.pop(connection)
        self._progress.pop(connection, None)
        handshake = self._decoder_state.handshakes[connection] = reading.room.Prologue(reading.limits)
        parts: list[tuple[tuple[int, ...], Segment]] = []
        read = {}
        for to_server in (1, 0):
            mine = [one for one in waiting if one.to_server == to_server]
            gap = next((number for number, one in enumerate(mine) if one.missing), len(mine))
            speaker = reading.room.Speaker.CLIENT if to_server else reading.room.Speaker.SERVER
            found, read[to_server] = _follow(handshake, speaker, mine[:gap])
            parts += found
        return Opened(parts, [left for one in waiting if (left := _without(one, read))])


def _follow(handshake: Any, speaker: Any, mine: list[Segment]) -> tuple[list[tuple[tuple[int, ...], Segment]], int]:
    """The parts of the prologue that one side has said, and how many bytes they are."""
    if not mine:
        return [], 0
    data = np.concatenate([one.data for one in mine])[:LONGEST]
    places, begin = [], 0
    for one in mine:
        places.append(one.origins + np.array([begin, 0, 0]))
        begin += len(one.data)
    origins = np.concatenate(places)
    parts, at = [], 0
    for given, start, at in _parts(handshake, speaker, data):
        parts.append((given, Segment(mine[0].flow, mine[0].to_server, 0, data[start:at], clip(origins, start, at))))
    return parts, at


def _parts(handshake: Any, speaker: Any, data: Any) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Follow what one side says first: what the scanner is given for each part of the prologue that is all there, and where it stands."""
    at = 0
    while at < len(data) and not handshake.is_over(speaker):
        before = handshake.limits(speaker)
        given, start, stop = next(handshake.pieces(speaker, data, at, len(data)))
        if handshake.limits(speaker) == before:
            break  # not all of it is there
        yield given, start, stop
        at = stop


def _without(one: Segment, read: dict[int, int]) -> Segment | None:
    """What is left of what was said, when so many bytes of each side were read before."""
    skipped = min(len(one.data), read[one.to_server]) if not one.missing else 0
    read[one.to_server] -= skipped
    if skipped == len(one.data):
        return None
    return msgspec.structs.replace(one, data=one.data[skipped:], origins=clip(one.origins, skipped, len(one.data)))

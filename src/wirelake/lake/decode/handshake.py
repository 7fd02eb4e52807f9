"""PendingHandshakes: holds the bytes of connections until their handshake is over.

For protocols whose handshake decides how bytes are read (`Protocol.handshake`). One side may be readable only with the other side's
part, and a capture may show either first. So nothing of a connection is read before both parts are there, or cannot come any more.
Then the order of arrival does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState, Segment
from wirelake.lake.decode.streams import clip, joined
from wirelake.protocols.kernel import Octets, ScanLimits
from wirelake.protocols.protocol import HandshakeReader, Limits
from wirelake.protocols.speaker import Speaker

__all__ = ["Opened", "PendingHandshakes", "speaker"]

Part = tuple[ScanLimits, int, int]
"""A part of the handshake: the limits it is scanned with, where it starts and stops in the bytes of its side."""

LONGEST: Final = 4096
"""Bytes of one side in which its part of the handshake is looked for."""


class Opened(msgspec.Struct):
    """A connection that can be read from now on."""

    parts: list[tuple[ScanLimits, Segment]]
    """The parts of the handshake, each with its scan limits."""
    rest: list[Segment]


class _Progress:
    """Progress of the handshake of one connection.

    It makes the cost of a segment independent of the bytes that wait. It is computed from the waiting segments, and is not stored with
    them.
    """

    def __init__(self, scanner: Scanner) -> None:
        self.scan_input = 0
        """Segments that were taken."""
        self.handshake = _reader(scanner)
        self.parts: tuple[list[Part], list[Part]] = ([], [])
        """The parts that each side has sent, by direction."""
        self._pending = [(to_server, speaker(to_server)) for to_server in (1, 0)]
        """Sides that may still send their part, the client first."""
        self._sizes = [0, 0]
        """Bytes of each side that were looked at, `LONGEST` at most."""
        self._heads = (bytearray(), bytearray())
        """… without those that were followed."""
        self._has_gap = [False, False]

    def feed(self, segment: Segment) -> bool:
        """Take the next segment; returns whether both parts are there now, or cannot come any more."""
        self.scan_input += 1
        side, changes = segment.to_server, False
        if segment.missing and not self._has_gap[side]:
            self._has_gap[side] = changes = True
        elif not self._has_gap[side] and (fresh := segment.data[: LONGEST - self._sizes[side]].tobytes()):
            self._sizes[side] += len(fresh)
            self._heads[side].extend(fresh)
            changes = True
        if changes and self._pending and side == self._pending[0][0]:
            while self._pending and self._is_done(*self._pending[0]):
                del self._pending[0]
        return not self._pending

    def finish(self) -> None:
        """Follow both sides as far as they go: nothing more of the handshake will come."""
        while self._pending:
            self._is_done(*self._pending.pop(0))

    def followed(self, side: int) -> int:
        """How many bytes of a side are parts of the handshake."""
        return self.parts[side][-1][2] if self.parts[side] else 0

    def _is_done(self, side: int, speaker: Speaker) -> bool:
        begin, followed = self.followed(side), 0
        for scan_limits, start, followed in _parts(self.handshake, speaker, self._heads[side]):
            self.parts[side].append((scan_limits, begin + start, begin + followed))
        del self._heads[side][:followed]
        return self._has_gap[side] or self.handshake.is_over(speaker)


class PendingHandshakes:
    """Takes the segments of connections, and gives those that can be read."""

    def __init__(self, decoder_state: DecoderState) -> None:
        self._decoder_state = decoder_state
        self._progress: dict[bytes, _Progress] = {}

    def feed(self, scanner: Scanner, scan_input: list[Segment]) -> tuple[list[Opened], list[Segment]]:
        """Return connections whose handshake has just ended, and segments of those where it had before."""
        opened, readable = [], []
        for segment in scan_input:
            connection = segment.flow.session_id
            if connection in self._decoder_state.handshakes:
                readable.append(segment)
                continue
            waiting = self._decoder_state.pending.setdefault(connection, [])
            progress = self._followed(scanner, connection, waiting)
            waiting.append(msgspec.structs.replace(segment, data=segment.data.copy()))
            if progress.feed(segment):
                opened.append(self.release(scanner, connection))
        return opened, readable

    def _followed(self, scanner: Scanner, connection: bytes, waiting: list[Segment]) -> _Progress:
        """The progress of a connection; made again from what waits, if that was restored or dropped since."""
        progress = self._progress.get(connection)
        if progress is None or progress.scan_input != len(waiting):
            progress = self._progress[connection] = _Progress(scanner)
            for one in waiting:
                progress.feed(one)
        return progress

    def release(self, scanner: Scanner, connection: bytes) -> Opened:
        """Read a connection as far as it goes, whether or not its handshake is over."""
        waiting = self._decoder_state.pending.pop(connection)
        progress = self._followed(scanner, connection, waiting)
        progress.finish()
        self._decoder_state.handshakes[connection] = progress.handshake
        del self._progress[connection]
        parts: list[tuple[ScanLimits, Segment]] = []
        for to_server in (1, 0):
            mine = [one for one in waiting if one.to_server == to_server]
            parts += [(scan_limits, _cut(mine, start, stop)) for scan_limits, start, stop in progress.parts[to_server]]
        read = {to_server: progress.followed(to_server) for to_server in (0, 1)}
        return Opened(parts, [left for one in waiting if (left := _without(one, read))])


def speaker(to_server: int) -> Speaker:
    """The side that sends in a direction."""
    return Speaker.CLIENT if to_server else Speaker.SERVER


def _reader(scanner: Scanner) -> HandshakeReader[Limits]:
    handshake = scanner.protocol.handshake
    assert handshake is not None  # noqa: S101 - the decoder asks for protocols that have one
    return handshake.start(scanner.limits)


def _cut(mine: list[Segment], start: int, stop: int) -> Segment:
    """A range of the bytes that one side has sent."""
    at = 0
    for one in mine:
        end = at + len(one.data)
        if at <= start and stop <= end:
            return Segment(one.flow, one.to_server, 0, one.data[start - at : stop - at], clip(one.origins, start - at, stop - at))
        at = end
    whole = joined(mine)  # it begins in one segment, and ends in another
    return Segment(mine[0].flow, mine[0].to_server, 0, whole.data[start:stop], clip(whole.origins, start, stop))


def _parts(handshake: HandshakeReader[Limits], speaker: Speaker, data: Octets) -> Iterator[Part]:
    """Follow the next bytes of one side, and yield each part of the handshake that is all there."""
    at = 0
    while at < len(data) and not handshake.is_over(speaker):
        before = handshake.limits(speaker)
        scan_limits, start, stop = next(handshake.pieces(speaker, data, at, len(data)))
        if scan_limits is None or handshake.limits(speaker) == before:
            break  # not all of it is there
        yield scan_limits, start, stop
        at = stop


def _without(segment: Segment, read: dict[int, int]) -> Segment | None:
    """The rest of a segment, when so many bytes of each side have been read before."""
    skipped = min(len(segment.data), read[segment.to_server]) if not segment.missing else 0
    read[segment.to_server] -= skipped
    if skipped == len(segment.data):
        return None
    return msgspec.structs.replace(segment, data=segment.data[skipped:], origins=clip(segment.origins, skipped, len(segment.data)))

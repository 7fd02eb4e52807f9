"""StreamReader: decodes byte streams as they arrive, however they were cut.

A direction is in one of four modes.

- READING: messages follow each other. An unfinished one waits for its rest.
- PASSING: a gap hit a message of known length. The rest of that message goes to quarantine.
- SEARCHING: it is not known where the next message begins. The reader searches windows of fixed sizes for a certain one. Windows are
  counted from the place of the error, so that the result depends on the stream and not on how much of it has arrived.
- DEAD: nothing more can be read. All bytes go to quarantine, in chunks.

Does not import any protocol: their kernels come in as a `Scanner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.block import (
    ORIGIN_COLUMNS,
    ORIGIN_OFFSET,
    ORIGIN_START,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    Flow,
)
from wirelake.capture.packets.tcp_stream import UNKNOWN
from wirelake.lake.decode.runs import Runs
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import Direction, Gap, Reason, Segment, Speaker
from wirelake.protocols.faults import Faults
from wirelake.protocols.kernel import ScanLimits

__all__ = [
    "DEAD",
    "GAP",
    "LOOKS",
    "PASSING",
    "READING",
    "SEARCHING",
    "STEP",
    "UNCOUNTED",
    "UNREADABLE",
    "ScanInput",
    "StreamReader",
    "clip",
    "joined",
    "segments_of",
]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

READING: Final = 0
PASSING: Final = 1
SEARCHING: Final = 2
DEAD: Final = 3

LOOKS: Final = (4 << 10, 64 << 10, 1 << 20)
"""Sizes of the windows that are searched for a certain message, one after the other."""
STEP: Final = LOOKS[-1] - LOOKS[-2]
"""Bytes that go to quarantine when the largest window has no certain message."""
CHUNK: Final = 64 << 10
"""Bytes of a dead direction that go to quarantine together."""
UNREADABLE: Final = -2
"""In place of missing bytes: nothing of this direction can be read from here on."""
UNCOUNTED: Final = -3
"""In place of missing bytes: their number is not known, nor whether a message begins behind them."""

GAP: Final = Gap()
_NO_BYTES: Final = np.zeros(0, np.uint8)
_NO_PIECES: Final = np.zeros((0, ORIGIN_COLUMNS), np.int64)


class ScanInput(msgspec.Struct):
    """Bytes to scan: runs (start, stop, flow, to_server) in `data`, and their origins in the source."""

    data: ByteArray
    segments: IntArray
    origins: IntArray
    flows: Sequence[Flow]


class _Item(msgspec.Struct):
    """A direction, and the place of its next bytes in the joined segments."""

    direction: Direction
    start: int
    stop: int
    segment: int


Put = Callable[[Scanner, ScanInput, IntArray, IntArray, IntArray], None]
"""Takes rows, their parts, and the run of each row."""
Quarantine = Callable[[Flow, int, Reason, ScanInput, int, int], None]
"""Takes bytes that are no message: flow, to_server, reason, segments, start, length."""
ScanLimitsOf = Callable[[Speaker], ScanLimits | None]
"""The scan limits for what a speaker sends; None: they cannot be known."""


def segments_of(data: ByteArray, segments: IntArray, origins: IntArray, flows: Sequence[Flow]) -> list[Segment]:
    """The runs of a block as segments, in their order."""
    begins = np.ascontiguousarray(origins[:, ORIGIN_START])
    firsts = np.maximum(np.searchsorted(begins, segments[:, SEGMENT_START], side="right") - 1, 0).tolist()
    lasts = np.searchsorted(begins, segments[:, SEGMENT_STOP], side="left").tolist()
    known: dict[int, Flow] = {}
    made = []
    for (start, stop, number, to_server, missing), first, last in zip(segments.tolist(), firsts, lasts, strict=True):
        flow = known.get(number)
        if flow is None:
            flow = known[number] = flows[number]
        made.append(Segment(flow, to_server, missing, data[start:stop], _counted_from(start, origins[first:last].copy())))
    return made


def joined(segments: Sequence[Segment]) -> ScanInput:
    """Segments one after the other, each a run of its own."""
    stops = np.cumsum([len(one.data) for one in segments])
    starts = np.concatenate(([0], stops[:-1]))
    origins = np.concatenate([one.origins for one in segments])
    origins[:, ORIGIN_START] += np.repeat(starts, [len(one.origins) for one in segments])
    runs = np.column_stack((starts, stops, np.arange(len(segments)), [one.to_server for one in segments]))
    return ScanInput(np.concatenate([one.data for one in segments]), runs, origins, [one.flow for one in segments])


def _turns(arrived: Iterable[Segment]) -> Iterator[dict[Speaker, list[Segment]]]:
    """ScanInput in rounds: within a round, no speaker has a gap except before its first segment."""
    turn: dict[Speaker, int] = {}
    numbered = []
    for segment in arrived:
        turn[segment.speaker] = turn.get(segment.speaker, 0) + (segment.missing != 0)
        numbered.append((turn[segment.speaker], segment))
    for _, together in groupby(sorted(numbered, key=lambda item: item[0]), key=lambda item: item[0]):
        speakers: dict[Speaker, list[Segment]] = {}
        for _, segment in together:
            speakers.setdefault(segment.speaker, []).append(segment)
        yield speakers


class StreamReader:
    """Reads the streams of one protocol."""

    def __init__(
        self,
        scanner: Scanner,
        directions: dict[Speaker, Direction],
        put: Put,
        quarantine: Quarantine,
        scan_limits_of: ScanLimitsOf,
        unknown: Faults | None,
    ) -> None:
        self._scanner = scanner
        self._directions = directions
        self._put = put
        self._quarantine = quarantine
        self._scan_limits_of = scan_limits_of
        self._unknown = unknown
        self._fixed_limits = scanner.scan_limits if scanner.protocol.handshake is None else None
        """The fault of bytes whose scan limits cannot be known."""

    def feed(self, arrived: Iterable[Segment], why: Callable[[Speaker], Reason] = lambda _: GAP) -> None:
        """Take the next segments; `why` gives the reason for a direction that is unreadable."""
        for turn in _turns(arrived):
            broken = {speaker: first[0] for speaker, first in turn.items() if first[0].missing}
            if broken:
                self._advance({speaker: [] for speaker in broken if speaker in self._directions}, ended=True)
                for speaker, one in broken.items():
                    self._break(speaker, one, why(speaker) if one.missing == UNREADABLE else GAP)
            self._advance(turn)

    def feed_runs(self, runs: Runs) -> None:
        """Take the next runs of a block; as `feed`, but without Python for each run."""
        for turn in runs.turns():
            missing = turn.missing
            if broken := np.flatnonzero(missing).tolist():
                sides = turn.sides
                speakers = [turn.speaker(item) for item in broken]
                self._advance({speaker: [] for speaker in speakers if speaker in self._directions}, ended=True)
                for item, speaker in zip(broken, speakers, strict=True):
                    self._break(speaker, Segment(turn.flow(item), int(sides[item]), int(missing[item]), _NO_BYTES, _NO_PIECES), GAP)
            self._advance_runs(turn)

    def end(self, speakers: Iterable[Speaker], cut: Faults) -> None:
        """These speakers send nothing more: read what waits, and quarantine the rest.

        An unfinished message is `cut`.
        """
        chosen = list(speakers)
        self._advance({speaker: [] for speaker in chosen}, ended=True)
        for speaker in chosen:
            left = self._directions.pop(speaker, None)
            if left is not None and not (left.mode == READING and self._is_last(left)):
                self._set_aside(left, cut if left.mode == READING else left.why or GAP)

    def let_go(self, speaker: Speaker, cut: Faults) -> None:
        """Too many bytes wait: quarantine those of this speaker, and go on where its message would have ended."""
        self._advance({speaker: []}, ended=True)
        left = self._directions.pop(speaker, None)
        if left is None:
            return
        if left.mode == READING:
            owed = self._scanner.need(left.data, left.scan_limits) - len(left.data)
            self._set_aside(left, cut)
            self._directions[speaker] = self._after(left, owed)
        else:
            self._set_aside(left, left.why or GAP)
            fresh = Direction(left.flow, left.to_server, left.mode, left.scan_limits, why=left.why, owed=left.owed - len(left.data))
            self._directions[speaker] = fresh

    # Inside.

    def _break(self, speaker: Speaker, segment: Segment, why: Reason) -> None:
        """Handle missing bytes before this segment.

        Gives up the unfinished message, and chooses the next mode.
        """
        left = self._directions.pop(speaker, None)
        scan_limits = left.scan_limits if left else self._scan_limits_of(speaker)
        fresh = Direction(segment.flow, segment.to_server, READING, scan_limits or ())
        if left is not None and left.mode == DEAD:
            self._directions[speaker] = left  # it was set aside already
        elif segment.missing == UNREADABLE or self._scanner.protocol.handshake is not None or scan_limits is None:
            if left is not None:
                self._set_aside(left, why)
            reason = self._unknown if segment.missing == UNKNOWN else why
            self._directions[speaker] = msgspec.structs.replace(fresh, mode=DEAD, why=reason)
        elif segment.missing < 0:
            if left is not None:  # with `UNKNOWN`: another connection had the same name
                self._set_aside(left, GAP)
            # ScanInput do begin with messages more often than not.
            self._directions[speaker] = msgspec.structs.replace(fresh, mode=SEARCHING, why=GAP, is_hopeful=segment.missing == UNKNOWN)
        elif left is None:
            self._directions[speaker] = self._after(fresh, -1)
        else:
            whole = left.owed if left.mode == PASSING else self._scanner.need(left.data, left.scan_limits) if len(left.data) else 0
            owed = whole - len(left.data) - segment.missing
            self._set_aside(left, GAP)
            self._directions[speaker] = self._after(left, owed)

    def _after(self, left: Direction, owed: int) -> Direction:
        """The direction behind a broken message with so many bytes still to come (less than 0: unknown)."""
        fresh = Direction(left.flow, left.to_server, PASSING if owed > 0 else SEARCHING, left.scan_limits, why=GAP, owed=max(owed, 0))
        return msgspec.structs.replace(fresh, is_hopeful=owed == 0)

    def _advance(self, turn: dict[Speaker, list[Segment]], *, ended: bool = False) -> None:
        """Read waiting bytes of these speakers, and their new segments.

        With `ended`, nothing more comes before a gap.
        """
        items: list[_Item] = []
        chunks: list[ByteArray] = []
        places: list[IntArray] = []
        at = 0
        for speaker, together in turn.items():
            direction = self._directions.pop(speaker, None) or self._begin(together[0])
            start = at
            for data, origins in ((direction.data, direction.origins), *((one.data, one.origins) for one in together)):
                chunks.append(data)
                places.append(origins + np.array([at, 0, 0]))
                at += len(data)
            items.append(_Item(direction, start, at, len(items)))
        if not items:
            return
        scan_input = ScanInput(
            np.concatenate(chunks),
            np.array([(item.start, item.stop, item.segment, item.direction.to_server) for item in items], np.int64),
            np.concatenate(places),
            [item.direction.flow for item in items],
        )
        self._settle(items, scan_input, ended=ended)
        for item in items:
            self._keep(item, scan_input)

    def _settle(self, todo: list[_Item], scan_input: ScanInput, *, ended: bool) -> None:
        """Read directions until each is at its end or must wait."""
        while todo:
            ready = [item for item in todo if self._is_reading(item, scan_input, ended=ended)]
            todo = []
            alike: dict[tuple[int, ...], list[_Item]] = {}
            for item in ready:
                alike.setdefault(item.direction.scan_limits, []).append(item)
            for scan_limits, same in alike.items():
                todo += self._read(same, scan_input, scan_limits)

    def _advance_runs(self, runs: Runs) -> None:
        """Read waiting bytes and new runs of all their speakers; as `_advance`."""
        sides = runs.sides
        known, limits_of = self._known(runs)
        gathered = runs.gather({item: (one.data, one.origins) for item, one in known.items()})
        starts, stops = gathered.starts, gathered.stops
        segments = np.column_stack((starts, stops, runs.flow_numbers, sides))
        scan_input = ScanInput(gathered.data, segments, gathered.origins, runs.flows)
        items = {item: _Item(one, int(starts[item]), int(stops[item]), item) for item, one in known.items()}
        is_reading = np.ones(len(runs), np.bool_)
        for item in sorted(items):
            if items[item].direction.mode != READING or items[item].direction.is_hopeful:
                is_reading[item] = self._is_reading(items[item], scan_input, ended=False)
                starts[item] = items[item].start
        is_reading &= stops > starts
        lost: list[int] = []
        for scan_limits, mine in self._alike(items, is_reading, limits_of):
            ends, faults = self._stride(scan_input, scan_limits, starts[mine], stops[mine], mine)
            for item in mine[ends > starts[mine]].tolist() if items else ():
                if item in items:
                    items[item].direction.is_hopeful = False
            starts[mine] = ends
            for index in np.flatnonzero(faults).tolist():
                item = int(mine[index])
                one = items.setdefault(
                    item, _Item(Direction(runs.flow(item), int(sides[item]), READING, scan_limits), 0, int(stops[item]), item)
                )
                self._lose(one.direction, int(faults[index]))
                lost.append(item)
        for item in np.flatnonzero(starts < stops).tolist():
            if item not in items:
                limits = self._fixed_limits or limits_of[item]
                items[item] = _Item(Direction(runs.flow(item), int(sides[item]), READING, limits), 0, 0, item)
        for item, one in items.items():
            one.start, one.stop = int(starts[item]), int(stops[item])
        self._settle([items[item] for item in lost], scan_input, ended=False)
        for item in sorted(items):
            self._keep(items[item], scan_input)

    def _known(self, runs: Runs) -> tuple[dict[int, Direction], dict[int, ScanLimits]]:
        """The directions of these runs that have a state, by number; they are taken out of the table. Others are begun where they cannot
        be read from the start. Also the scan limits of those that can, where a handshake decides them.
        """
        if len(self._directions) <= len(runs):
            speakers = [(item, speaker) for speaker in self._directions if (item := runs.item(speaker)) >= 0]
        else:
            speakers = [(item, speaker) for item, speaker in enumerate(runs.speakers()) if speaker in self._directions]
        known = {item: self._directions.pop(speaker) for item, speaker in speakers}
        limits_of: dict[int, ScanLimits] = {}
        if self._fixed_limits is None:
            for item, speaker in enumerate(runs.speakers()):
                if item in known:
                    continue
                scan_limits = self._scan_limits_of(speaker)
                if scan_limits is None:
                    known[item] = Direction(runs.flow(item), speaker[1], DEAD, why=self._unknown)
                else:
                    limits_of[item] = scan_limits
        return known, limits_of

    def _alike(
        self, items: dict[int, _Item], is_reading: npt.NDArray[np.bool_], limits_of: dict[int, ScanLimits]
    ) -> Iterator[tuple[ScanLimits, IntArray]]:
        """Directions that are ready, those with the same scan limits together."""
        ready = np.flatnonzero(is_reading)
        if self._fixed_limits is not None:
            if len(ready):
                yield self._fixed_limits, ready
            return
        alike: dict[ScanLimits, list[int]] = {}
        for item in ready.tolist():
            limits = items[item].direction.scan_limits if item in items else limits_of[item]
            alike.setdefault(limits, []).append(item)
        for scan_limits, mine in alike.items():
            yield scan_limits, np.array(mine, np.int64)

    def _begin(self, first: Segment) -> Direction:
        scan_limits = self._scan_limits_of(first.speaker)
        if scan_limits is None:
            return Direction(first.flow, first.to_server, DEAD, why=self._unknown)
        return Direction(first.flow, first.to_server, READING, scan_limits)

    def _is_reading(self, item: _Item, scan_input: ScanInput, *, ended: bool) -> bool:
        """Go on with a direction until it can be read, or must wait."""
        direction = item.direction
        if direction.mode == PASSING and item.stop - item.start >= direction.owed:
            self._pass(item, scan_input, item.start + direction.owed)
            # The length was the least the message takes, so what follows it is made sure of.
            direction.mode, direction.owed, direction.first, direction.looked, direction.is_hopeful = SEARCHING, 0, 0, 0, True
        while direction.mode == DEAD and item.stop - item.start >= CHUNK:
            self._pass(item, scan_input, item.start + CHUNK)
        while direction.mode == SEARCHING and (item.stop > item.start or not ended):
            if not self._look(item, scan_input, ended=ended):
                break
        while direction.mode == READING and direction.is_hopeful and item.stop > item.start:
            unreadable = self._scanner.unreadable(scan_input.data[item.start : item.stop], direction.scan_limits)
            if not unreadable:
                break
            self._pass(item, scan_input, item.start + unreadable)
        return direction.mode == READING and item.stop > item.start

    def _look(self, item: _Item, scan_input: ScanInput, *, ended: bool) -> bool:
        """Search the next window for a certain message.

        Returns False if the window is not complete yet, or nothing is left.
        """
        direction, size = item.direction, LOOKS[item.direction.looked]
        there = item.stop - item.start
        if there < size and not ended:
            return False
        stop = item.start + min(size, there)
        place = self._scanner.find(scan_input.data, item.start + direction.first, stop, direction.scan_limits)
        if place < stop:
            self._pass(item, scan_input, place)
        elif there >= size and direction.looked + 1 < len(LOOKS):
            direction.looked += 1
            return True
        elif not direction.is_hopeful:
            self._pass(item, scan_input, item.stop if there < size else item.start + STEP)
            direction.looked = 0
            return there >= size
        # Where nothing is certain, reading from here on is a guess, until there is a message (`is_hopeful`).
        direction.is_hopeful &= place == stop
        direction.mode, direction.why, direction.first, direction.looked = READING, None, 0, 0
        return False

    def _pass(self, item: _Item, scan_input: ScanInput, place: int) -> None:
        """Quarantine the bytes before a place."""
        if place > item.start:
            one = item.direction
            self._quarantine(one.flow, one.to_server, one.why or GAP, scan_input, item.start, place - item.start)
            item.start = place

    def _read(self, items: list[_Item], scan_input: ScanInput, scan_limits: ScanLimits) -> list[_Item]:
        """Read directions as far as they make sense; gives those that do not, with more to look at."""
        starts = np.array([item.start for item in items], np.int64)
        stops = np.array([item.stop for item in items], np.int64)
        ends, faults = self._stride(scan_input, scan_limits, starts, stops, np.array([item.segment for item in items]))
        lost = []
        for item, end, fault in zip(items, ends.tolist(), faults.tolist(), strict=True):
            item.direction.is_hopeful &= end == item.start
            item.start = end
            if fault:
                self._lose(item.direction, fault)
                lost.append(item)
        return lost

    def _stride(
        self, scan_input: ScanInput, scan_limits: ScanLimits, starts: IntArray, stops: IntArray, segment_of: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Read runs as far as they make sense; returns where that is, and the fault that is there, for each."""
        ends, faults = starts.copy(), np.zeros(len(starts), np.int64)
        for rows, parts, segments in self._scanner.stride(scan_input.data, starts, stops, ends, faults, scan_limits):
            self._put(self._scanner, scan_input, rows, parts, segment_of[segments])
        return ends, faults

    def _lose(self, direction: Direction, fault: int) -> None:
        """Search for the next certain message from the second byte on. After a guess, no sender is to blame."""
        why = GAP if direction.is_hopeful else self._scanner.protocol.faults(fault)
        direction.mode, direction.why, direction.first, direction.looked, direction.is_hopeful = SEARCHING, why, 1, 0, False

    def _keep(self, item: _Item, scan_input: ScanInput) -> None:
        """Keep the state of a direction; one that is read to its end needs none."""
        direction = item.direction
        if direction.mode == READING and item.start == item.stop:
            return
        direction.data = scan_input.data[item.start : item.stop].copy()
        direction.origins = clip(scan_input.origins, item.start, item.stop)
        self._directions[direction.flow.session_id, direction.to_server] = direction

    def _is_last(self, left: Direction) -> bool:
        """Whether the bytes that wait are a message because nothing follows them; if so, it is read."""
        scan_limits = self._scanner.at_end(left.data.tobytes())
        if scan_limits is None:
            return False
        starts, stops = np.zeros(1, np.int64), np.array([len(left.data)])
        segments = np.array([[0, len(left.data), 0, left.to_server]], np.int64)
        self._stride(ScanInput(left.data, segments, left.origins, [left.flow]), scan_limits, starts, stops, starts)
        return True

    def _set_aside(self, left: Direction, why: Reason) -> None:
        """Quarantine the bytes that wait."""
        if len(left.data):
            scan_input = ScanInput(left.data, np.zeros((0, SEGMENT_MISSING), np.int64), left.origins, [])
            self._quarantine(left.flow, left.to_server, why, scan_input, 0, len(left.data))


def clip(origins: IntArray, start: int, stop: int) -> IntArray:
    """The pieces of data[start:stop], counted from `start`."""
    first = np.searchsorted(origins[:, ORIGIN_START], start, side="right") - 1
    last = np.searchsorted(origins[:, ORIGIN_START], stop, side="left")
    return _counted_from(start, origins[max(first, 0) : last].copy())


def _counted_from(start: int, part: IntArray) -> IntArray:
    """Count the places of pieces from `start`, which lies in the first of them."""
    part[:, ORIGIN_START] -= start
    if len(part) and part[0, ORIGIN_START] < 0:
        part[0, ORIGIN_OFFSET] -= part[0, ORIGIN_START]
        part[0, ORIGIN_START] = 0
    return part

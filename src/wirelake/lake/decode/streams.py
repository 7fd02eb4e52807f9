"""Streams: what each speaker of a connection said, read as it comes, the same wherever it was cut.

A direction is in one of four modes. *Scanner*: messages follow each other, and an unfinished one waits for its rest. *Passing*: a gap hit a
message whose length is known, and the rest of it is passed over. *Searching*: after anything else nobody knows where messages begin, and
the first place is looked for where they certainly do: in looks of fixed sizes, counted from where sense ended, so that what is found
depends on the stream and not on how much of it was there. *Dead*: nothing more can be read, and what comes is set aside in portions.

It refuses to know protocols: their kernels come in as a `Scanner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

import msgspec
import numpy as np

from wirelake.capture.blocks.block import ORIGIN_OFFSET, ORIGIN_START, SEGMENT_MISSING, Flow
from wirelake.capture.packets.tcp_stream import UNKNOWN
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import Direction, Segment, Speaker

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
    "Gap",
    "ScanInput",
    "StreamReader",
    "clip",
    "said",
]

Array = np.ndarray[Any, Any]

READING: Final = 0
PASSING: Final = 1
SEARCHING: Final = 2
DEAD: Final = 3

LOOKS: Final = (4 << 10, 64 << 10, 1 << 20)
"""Bytes that are looked at for a certain message, first a few, then more."""
STEP: Final = LOOKS[-1] - LOOKS[-2]
"""Bytes that are passed over when nothing is certain in the longest look."""
PORTION: Final = 64 << 10
"""Bytes of a dead direction that are set aside together."""
UNREADABLE: Final = -2
"""In place of missing bytes: nothing of this direction can be read from here on."""


UNCOUNTED: Final = -3
"""In place of missing bytes: some are missing, and nobody knows how many, nor whether a message begins behind them."""


class Gap(msgspec.Struct, frozen=True):
    """Why bytes of a stream are no message, when it is nobody's fault but the capture's."""

    name: str = "GAP"
    clause: str | None = None
    text: str = "bytes are missing from the capture here"


GAP: Final = Gap()


class ScanInput(msgspec.Struct):
    """Bytes to scan: runs (start, stop, flow, to_server) in `data`, and the pieces that lead back to the source."""

    data: Array
    segments: Array
    origins: Array
    flows: list[Flow]


class _Item(msgspec.Struct):
    """A direction, and where in a speech the bytes are that come next."""

    direction: Direction
    start: int
    stop: int
    segment: int


Put = Callable[[Scanner, ScanInput, Array, Array, Array], None]
"""Takes rows, their parts, and which run each is of."""
Spoil = Callable[[Flow, int, Any, ScanInput, int, int], None]
"""Takes bytes that are no message: whose, to the server or not, why, where, from, how many."""


def said(data: Array, segments: Array, origins: Array, flows: list[Flow]) -> list[Segment]:
    """What the runs of a block say, one after the other."""
    return [
        Segment(flows[number], to_server, missing, data[start:stop], clip(origins, start, stop))
        for start, stop, number, to_server, missing in segments.tolist()
    ]


def _turns(heard: Iterable[Segment]) -> Iterator[dict[Speaker, list[Segment]]]:
    """The same in the order it came, so that in each turn a speaker says what lies between two gaps."""
    turn: dict[Speaker, int] = {}
    numbered = []
    for one in heard:
        turn[one.speaker] = turn.get(one.speaker, 0) + (one.missing != 0)
        numbered.append((turn[one.speaker], one))
    for _, together in groupby(sorted(numbered, key=lambda item: item[0]), key=lambda item: item[0]):
        speakers: dict[Speaker, list[Segment]] = {}
        for _, one in together:
            speakers.setdefault(one.speaker, []).append(one)
        yield speakers


class StreamReader:
    """Listens to the streams of one protocol."""

    def __init__(
        self, reading: Scanner, directions: dict[Speaker, Direction], put: Put, spoil: Spoil, given: Callable[[Speaker], Any], why: Any
    ) -> None:
        self._reading = reading
        self._directions = directions
        self._put = put
        self._spoil = spoil
        self._given = given
        """What the scanner is given for a speaker; None: that cannot be known, and `why` is the fault."""
        self._why = why

    def hear(self, heard: Iterable[Segment], why: Callable[[Speaker], Any] = lambda _: GAP) -> None:
        """Take what comes next; `why` says why a direction is unreadable where it is."""
        for turn in _turns(heard):
            broken = {speaker: first[0] for speaker, first in turn.items() if first[0].missing}
            if broken:
                self._advance({speaker: [] for speaker in broken if speaker in self._directions}, ended=True)
                for speaker, one in broken.items():
                    self._break(speaker, one, why(speaker) if one.missing == UNREADABLE else GAP)
            self._advance(turn)

    def end(self, speakers: Iterable[Speaker], cut: Any) -> None:
        """Nothing more comes of these: what waits is read as far as it goes, and the rest spoilt; an unfinished message is `cut`."""
        chosen = list(speakers)
        self._advance({speaker: [] for speaker in chosen}, ended=True)
        for speaker in chosen:
            if left := self._directions.pop(speaker, None):
                self._set_aside(left, cut if left.mode == READING else left.why)

    def let_go(self, speaker: Speaker, cut: Any) -> None:
        """Too much waits: do without what this one waits with, but go on where its message would have ended."""
        self._advance({speaker: []}, ended=True)
        left = self._directions.pop(speaker, None)
        if left is None:
            return
        if left.mode == READING:
            owed = self._reading.need(left.data, left.given) - len(left.data)
            self._set_aside(left, cut)
            self._directions[speaker] = self._after(left, owed)
        else:
            self._set_aside(left, left.why)
            fresh = Direction(left.flow, left.to_server, left.mode, left.given, why=left.why, owed=left.owed - len(left.data))
            self._directions[speaker] = fresh

    # Inside.

    def _break(self, speaker: Speaker, one: Segment, why: Any) -> None:
        """Bytes are missing before these: leave what cannot be finished, and find out how to go on."""
        left = self._directions.pop(speaker, None)
        given = left.given if left else self._given(speaker)
        fresh = Direction(one.flow, one.to_server, READING, given or ())
        if left is not None and left.mode == DEAD:
            self._directions[speaker] = left  # it was set aside already
        elif one.missing == UNREADABLE or self._reading.needs_handshake or given is None:
            if left is not None:
                self._set_aside(left, why)
            unknown = self._why if one.missing == UNKNOWN else why
            self._directions[speaker] = msgspec.structs.replace(fresh, mode=DEAD, why=unknown)
        elif one.missing < 0:
            if left is not None:  # with `UNKNOWN`: another connection had the same name
                self._set_aside(left, GAP)
            # ScanInput do begin with messages more often than not.
            self._directions[speaker] = msgspec.structs.replace(fresh, mode=SEARCHING, why=GAP, is_hopeful=one.missing == UNKNOWN)
        elif left is None:
            self._directions[speaker] = self._after(fresh, -1)
        else:
            whole = left.owed if left.mode == PASSING else self._reading.need(left.data, left.given) if len(left.data) else 0
            owed = whole - len(left.data) - one.missing
            self._set_aside(left, GAP)
            self._directions[speaker] = self._after(left, owed)

    def _after(self, left: Direction, owed: int) -> Direction:
        """How a direction goes on whose message was spoilt, with so many bytes of it still to come; less than 0: nobody knows."""
        fresh = Direction(left.flow, left.to_server, PASSING if owed > 0 else SEARCHING, left.given, why=GAP, owed=max(owed, 0))
        return msgspec.structs.replace(fresh, is_hopeful=owed == 0)

    def _advance(self, turn: dict[Speaker, list[Segment]], *, ended: bool = False) -> None:
        """Read on what waits of these speakers, with what they said now; with `ended`, no more of it will come before a gap."""
        items: list[_Item] = []
        chunks: list[Array] = []
        places: list[Array] = []
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
        todo = items
        while todo:
            ready = [item for item in todo if self._is_reading(item, scan_input, ended=ended)]
            todo = []
            alike: dict[tuple[int, ...], list[_Item]] = {}
            for item in ready:
                alike.setdefault(item.direction.given, []).append(item)
            for given, same in alike.items():
                todo += self._read(same, scan_input, given)
        for item in items:
            self._keep(item, scan_input)

    def _begin(self, first: Segment) -> Direction:
        given = self._given(first.speaker)
        if given is None:
            return Direction(first.flow, first.to_server, DEAD, why=self._why)
        return Direction(first.flow, first.to_server, READING, given)

    def _is_reading(self, item: _Item, scan_input: ScanInput, *, ended: bool) -> bool:
        """Go on with a direction until it can be read, or must wait."""
        one = item.direction
        if one.mode == PASSING and item.stop - item.start >= one.owed:
            self._pass(item, scan_input, item.start + one.owed)
            # The length was the least the message takes, so what follows it is made sure of.
            one.mode, one.owed, one.first, one.looked, one.is_hopeful = SEARCHING, 0, 0, 0, True
        while one.mode == DEAD and item.stop - item.start >= PORTION:
            self._pass(item, scan_input, item.start + PORTION)
        while one.mode == SEARCHING and (item.stop > item.start or not ended):
            if not self._look(item, scan_input, ended=ended):
                break
        return one.mode == READING and item.stop > item.start

    def _look(self, item: _Item, scan_input: ScanInput, *, ended: bool) -> bool:
        """Take the next look for a certain message; False if there is nothing to look at yet, or nothing left."""
        one, size = item.direction, LOOKS[item.direction.looked]
        there = item.stop - item.start
        if there < size and not ended:
            return False
        stop = item.start + min(size, there)
        place = self._reading.find(scan_input.data, item.start + one.first, stop, one.given)
        if place < stop:
            self._pass(item, scan_input, place)
        elif there >= size and one.looked + 1 < len(LOOKS):
            one.looked += 1
            return True
        elif not one.is_hopeful:
            self._pass(item, scan_input, item.stop if there < size else item.start + STEP)
            one.looked = 0
            return there >= size
        one.mode, one.why, one.first, one.looked, one.is_hopeful = READING, None, 0, 0, False
        return False

    def _pass(self, item: _Item, scan_input: ScanInput, place: int) -> None:
        """Set aside what lies before a place."""
        if place > item.start:
            one = item.direction
            self._spoil(one.flow, one.to_server, one.why or GAP, scan_input, item.start, place - item.start)
            item.start = place

    def _read(self, items: list[_Item], scan_input: ScanInput, given: tuple[int, ...]) -> list[_Item]:
        """Read directions as far as they make sense; gives those that do not, with more to look at."""
        starts, stops = (np.array([getattr(item, name) for item in items], np.int64) for name in ("start", "stop"))
        ends, faults = starts.copy(), np.zeros(len(items), np.int64)
        segment_of = np.array([item.segment for item in items])
        for rows, parts, segments in self._reading.stride(scan_input.data, starts, stops, ends, faults, given):
            self._put(self._reading, scan_input, rows, parts, segment_of[segments])
        lost = []
        for item, end, fault in zip(items, ends.tolist(), faults.tolist(), strict=True):
            item.start = end
            if fault:
                one = item.direction
                one.mode, one.why, one.first, one.looked = SEARCHING, self._reading.room.Fault(fault), 1, 0
                lost.append(item)
        return lost

    def _keep(self, item: _Item, scan_input: ScanInput) -> None:
        """Remember how far a direction is; one that is read to its end needs no memory."""
        one = item.direction
        if one.mode == READING and item.start == item.stop:
            return
        one.data = scan_input.data[item.start : item.stop].copy()
        one.origins = clip(scan_input.origins, item.start, item.stop)
        self._directions[one.flow.session_id, one.to_server] = one

    def _set_aside(self, left: Direction, why: Any) -> None:
        """What waited will not be read."""
        if len(left.data):
            scan_input = ScanInput(left.data, np.zeros((0, SEGMENT_MISSING), np.int64), left.origins, [])
            self._spoil(left.flow, left.to_server, why, scan_input, 0, len(left.data))


def clip(origins: Array, start: int, stop: int) -> Array:
    """The pieces of data[start:stop], counted from `start`."""
    first = np.searchsorted(origins[:, ORIGIN_START], start, side="right") - 1
    last = np.searchsorted(origins[:, ORIGIN_START], stop, side="left")
    part = origins[max(first, 0) : last].copy()
    if len(part) and part[0, ORIGIN_START] < start:
        part[0, ORIGIN_OFFSET] += start - part[0, ORIGIN_START]
        part[0, ORIGIN_START] = start
    part[:, ORIGIN_START] -= start
    return part

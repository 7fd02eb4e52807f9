"""Unwrapper: takes the payload out of WebSocket frames.

Payload is unmasked in place, so that pieces still lead back to the capture. A gap inside a payload is a gap of the stream inside. After
any other gap, windows of fixed sizes are searched for frames that certainly follow each other, as in `streams.py`. Bytes before them go
to quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake.capture.blocks.block import (
    ORIGIN_COLUMNS,
    SEGMENT_FLOW,
    SEGMENT_MISSING,
    SEGMENT_START,
    SEGMENT_STOP,
    SEGMENT_TO_SERVER,
    Flow,
)
from wirelake.lake.decode.runs import Runs
from wirelake.lake.decode.state import Gap, Segment, Speaker
from wirelake.lake.decode.streams import LOOKS, STEP, UNCOUNTED, UNREADABLE, clip
from wirelake.protocols.kernel import over_arrays
from wirelake.protocols.websocket import CONTROL, FRAME, GOT, LEFT, LOST, PAYLOAD, PHASE, STATE_COLUMNS, TURN, find, unframe

__all__ = ["ALIEN", "STARTS", "Unwrapped", "Unwrapper", "Wrapped"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

ALIEN: Final = Gap("WEBSOCKET_FRAME", None, "a WebSocket frame that is text, compressed, or none that is known")
STARTS: Final = {b"G"[0]: b"GET ", b"H"[0]: b"HTTP"}
"""First byte -> the text that either side of an opening handshake begins with.

No protocol inside begins with one of these.
"""


class Unwrapped(msgspec.Struct):
    """The result of unwrapping some runs."""

    scan_input: list[Segment] = []
    """The next payload of each direction."""
    wrapping: list[tuple[IntArray, IntArray]] = []
    """Pieces, and (start, length) of every opening handshake, frame header and control frame."""
    lost: list[Segment] = []
    """Bytes beside a gap that cannot be read."""


class Wrapped:
    """One direction of a wrapped connection.

    Bytes that wait are in `data`, and `origins` lead back to them, as in `state.Direction`.
    """

    def __init__(self, flow: Flow, to_server: int, start: bytes) -> None:
        self.flow = flow
        self.to_server = to_server
        self.state = np.zeros(STATE_COLUMNS, np.int64)
        self.start = start
        """The rest of the bytes that an opening handshake begins with."""
        self.missing = 0
        """Bytes of payload that are missing before the next that is there."""
        self.why = ALIEN
        self.data = np.zeros(0, np.uint8)
        self.origins = np.zeros((0, ORIGIN_COLUMNS), np.int64)
        self.is_searching = False
        """Whether it is not known where frames begin."""
        self.looked = 0
        """How many windows were searched in vain."""
        self.has_gap = False
        """Whether frames were ever searched for: then bytes that make no sense may be no frame at all."""

    def segment(self, missing: int, data: ByteArray, origins: IntArray) -> Segment:
        """Bytes of this direction."""
        return Segment(self.flow, self.to_server, missing, data, origins)

    def skip(self, missing: int) -> bool:
        """So many bytes are missing; returns whether it is not known any more where frames begin."""
        if self.state[PHASE] == LOST:
            return False
        if self.state[PHASE] in (PAYLOAD, CONTROL) and missing <= self.state[LEFT]:
            self.missing += missing if self.state[PHASE] == PAYLOAD else 0
            self.state[LEFT] -= missing
            self.state[TURN] = (self.state[TURN] + missing) & 3
            if not self.state[LEFT]:
                self.state[PHASE] = FRAME
            return False
        self.lose()
        return True

    def lose(self) -> None:
        """Search for frames from now on."""
        self.is_searching, self.has_gap, self.looked, self.missing, self.start = True, True, 0, 0, b""
        self.state[PHASE], self.state[GOT], self.state[LEFT] = FRAME, 0, 0

    def greet(self, data: bytes) -> None:
        """Compare the first bytes with those of an opening handshake."""
        first = data[: len(self.start)]
        if not self.start.startswith(first):
            self.state[PHASE] = LOST
        self.start = self.start[len(first) :]


class _Tail:
    """Runs of a direction that is searched for frames, not yet joined to the waiting bytes.

    Each byte is copied once.
    """

    def __init__(self) -> None:
        self.size = 0
        self._segments: list[tuple[ByteArray, IntArray]] = []

    def append(self, data: ByteArray, origins: IntArray) -> None:
        """Add a run."""
        self._segments.append((data, origins))
        self.size += len(data)

    def join(self, one: Wrapped) -> None:
        """Put the runs behind what waits of a direction."""
        datas, places, at = [one.data], [one.origins], len(one.data)
        for data, origins in self._segments:
            datas.append(data)
            places.append(origins + np.array([at, 0, 0]))
            at += len(data)
        one.data, one.origins = np.concatenate(datas), np.concatenate(places)


class Unwrapper:
    """Takes the runs of streams, block after block. `directions` has their state; None: not a WebSocket."""

    def __init__(self, directions: dict[Speaker, Wrapped | None]) -> None:
        self._directions = directions

    def why(self, speaker: Speaker) -> Gap:
        """Why nothing more of a direction can be read."""
        one = self._directions.get(speaker)
        return ALIEN if one is None else one.why

    def is_absent(self, runs: Runs) -> bool:
        """Whether no direction of these runs is a WebSocket; new ones that are none are noted."""
        missing, first = runs.missing.tolist(), runs.first_bytes.tolist()
        for item in range(len(runs)):
            speaker = runs.speaker(item)
            if speaker not in self._directions:
                if missing[item] == 0 and first[item] in STARTS:
                    return False
                self._directions[speaker] = None
            elif self._directions[speaker] is not None:
                return False
        return True

    def unwrap(self, data: ByteArray, segments: IntArray, origins: IntArray, flows: Sequence[Flow]) -> Unwrapped:
        """The segments of these runs, those of WebSockets taken out of their frames. A segment that cannot be is `UNREADABLE`."""
        out = Unwrapped()
        tails: dict[Speaker, _Tail] = {}
        for segment in segments.tolist():
            start, stop, number, to_server, missing = (
                segment[at] for at in (SEGMENT_START, SEGMENT_STOP, SEGMENT_FLOW, SEGMENT_TO_SERVER, SEGMENT_MISSING)
            )
            speaker = (flows[number].session_id, to_server)
            if speaker not in self._directions:
                opening = STARTS.get(int(data[start])) if missing == 0 else None
                self._directions[speaker] = Wrapped(flows[number], to_server, opening) if opening else None
            one = self._directions[speaker]
            mine = clip(origins, start, stop)
            if one is None:
                out.scan_input.append(Segment(flows[number], to_server, missing, data[start:stop], mine))
                continue
            one.flow, one.to_server = flows[number], to_server
            if missing > 0:
                if speaker in tails:
                    tails.pop(speaker).join(one)
                self._search(one, out, ended=True)
                if one.skip(missing):
                    out.scan_input.append(one.segment(UNCOUNTED, one.data, one.origins))  # there is nothing yet, but a gap
            if one.is_searching:
                tail = tails.setdefault(speaker, _Tail())
                tail.append(data[start:stop], mine)
                if len(one.data) + tail.size >= LOOKS[one.looked]:
                    tails.pop(speaker).join(one)
                    self._search(one, out)
            else:
                self._unframe(one, data[start:stop].copy(), mine, out)
                self._search(one, out)
        for speaker, tail in tails.items():
            if (one := self._directions[speaker]) is not None:
                tail.join(one)
        return out

    def end(self, speaker: Speaker) -> Unwrapped:
        """This speaker sends nothing more, or too much waits: read what certainly can be read."""
        out = Unwrapped()
        if (one := self._directions[speaker]) is not None:
            self._search(one, out, ended=True)
        return out

    def _search(self, one: Wrapped, out: Unwrapped, *, ended: bool = False) -> None:
        """Search what waits for frames, and read on from there; with `ended`, nothing more comes before a gap."""
        while len(one.data):
            there, size = len(one.data), LOOKS[one.looked]
            if there < size and not ended:
                return
            stop = min(size, there)
            place = int(over_arrays(find)(one.data, 0, stop, one.to_server, int(ended and stop == there)))
            if place < stop:
                self._pass(one, place, out)
                data, origins = one.data, one.origins
                one.data, one.origins, one.is_searching, one.looked = data[:0], origins[:0], False, 0
                self._unframe(one, data, origins, out)
            elif there >= size and one.looked + 1 < len(LOOKS):
                one.looked += 1
            else:
                self._pass(one, there if there < size else STEP, out)
                one.looked = 0

    def _pass(self, one: Wrapped, place: int, out: Unwrapped) -> None:
        """Give up the bytes before a place."""
        if place:
            out.lost.append(one.segment(0, one.data[:place], clip(one.origins, 0, place)))
            one.origins = clip(one.origins, place, len(one.data))
            one.data = one.data[place:].copy()

    def _unframe(self, one: Wrapped, data: ByteArray, origins: IntArray, out: Unwrapped) -> None:
        """Take payload out of the next bytes; writes to `data`."""
        if one.start:
            one.greet(data[: len(one.start)].tobytes())
        spans = np.zeros(2 * len(data), np.int64)
        count, end = over_arrays(unframe)(data, 0, len(data), one.state, spans)
        at, wrapping = 0, []
        for first, last in spans[: 2 * count].reshape(-1, 2).tolist():
            wrapping.append((at, first - at))
            out.scan_input.append(one.segment(one.missing, data[first:last], clip(origins, first, last)))
            one.missing, at = 0, last
        wrapping.append((at, end - at))
        out.wrapping.append((origins, np.array([span for span in wrapping if span[1]], np.int64).reshape(-1, 2)))
        if end < len(data) and one.has_gap:
            one.lose()
            one.data, one.origins = data[end:].copy(), clip(origins, end, len(data))
            out.scan_input.append(one.segment(UNCOUNTED, data[:0], origins[:0]))
        elif end < len(data):
            out.scan_input.append(one.segment(UNREADABLE, data[end:], clip(origins, end, len(data))))

"""Streams that travel inside WebSockets: their runs are replaced by runs of what the frames carry, in the same bytes.

Payload is unmasked where it stands, so that pieces still lead back to the capture. A gap inside a payload is one of the stream inside;
after any other gap nobody knows where frames begin, and the direction is lost. It refuses to know what is inside.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from wirelake.capture.blocks import RUN_FLOW, RUN_MISSING, RUN_START, RUN_STOP, RUN_TO_SERVER, Flow
from wirelake.lake.streams import GAP, Gap, Speaker
from wirelake.protocols.kernel import compiled
from wirelake.protocols.websocket import CONTROL, FRAME, LEFT, LOST, PAYLOAD, PHASE, STATE_COLUMNS, TURN, unframe

__all__ = ["ALIEN", "Unreadable", "Unwrapped", "Unwrapper"]

Array = np.ndarray[Any, Any]

ALIEN: Final = Gap("WEBSOCKET_FRAME", None, "a WebSocket frame that is text, compressed, or none that is known")
_STARTS: Final = (b"GET ", b"HTTP")
"""What either side of an opening handshake begins with."""


class Unreadable(msgspec.Struct, frozen=True):
    """Bytes of a direction that is lost."""

    start: int
    stop: int
    flow: Flow
    to_server: int
    why: Gap


class Unwrapped(msgspec.Struct, frozen=True):
    """What became of some runs."""

    data: Array
    runs: Array
    wrapping: Array
    """(start, length) of every stretch that is handshake, header or control frame."""
    lost: list[Unreadable]


class _Direction:
    """One direction of a wrapped connection."""

    def __init__(self) -> None:
        self.state = np.zeros(STATE_COLUMNS, np.int64)
        self.missing = 0
        """Bytes of payload that are missing before the next that is there."""
        self.why = ALIEN

    def skip(self, missing: int) -> None:
        """So many bytes are not there."""
        if self.state[PHASE] == LOST:
            return
        if self.state[PHASE] in (PAYLOAD, CONTROL) and missing <= self.state[LEFT]:
            self.missing += missing if self.state[PHASE] == PAYLOAD else 0
            self.state[LEFT] -= missing
            self.state[TURN] = (self.state[TURN] + missing) & 3
            if not self.state[LEFT]:
                self.state[PHASE] = FRAME
        else:
            self.state[PHASE], self.why = LOST, GAP


class Unwrapper:
    """Takes the runs of streams, block after block."""

    def __init__(self) -> None:
        self._directions: dict[Speaker, _Direction | None] = {}
        """None: it is not wrapped."""

    def clear(self) -> None:
        """Nothing more comes of these connections."""
        self._directions.clear()

    def unwrap(self, data: Array, runs: Array, flows: list[Flow]) -> Unwrapped:
        """The same runs, those of wrapped streams taken out of their frames."""
        mine, inner, wrapping, lost = data, [], [], []
        for run in runs.tolist():
            start, stop, number, to_server, missing = (run[at] for at in (RUN_START, RUN_STOP, RUN_FLOW, RUN_TO_SERVER, RUN_MISSING))
            speaker = (flows[number].session_id, to_server)
            if speaker not in self._directions:
                is_wrapped = missing == 0 and data[start : start + 4].tobytes() in _STARTS
                self._directions[speaker] = _Direction() if is_wrapped else None
            direction = self._directions[speaker]
            if direction is None:
                inner.append(run)
                continue
            if mine is data:
                mine = data.copy()
            if missing > 0:
                direction.skip(missing)
            spans = np.zeros(2 * (stop - start), np.int64)
            count, end = compiled(unframe)(mine, start, stop, direction.state, spans)
            at = start
            for first, last in spans[: 2 * count].reshape(-1, 2).tolist():
                wrapping.append((at, first - at))
                inner.append([first, last, number, to_server, direction.missing])
                direction.missing, at = 0, last
            wrapping.append((at, end - at))
            if end < stop:
                lost.append(Unreadable(end, stop, flows[number], to_server, direction.why))
        kept = np.array([one for one in wrapping if one[1]], np.int64).reshape(-1, 2)
        return Unwrapped(mine, np.array(inner, np.int64).reshape(-1, runs.shape[1]), kept, lost)

"""Streams that travel inside WebSockets: their runs are replaced by runs of what the frames carry, in the same bytes.

Payload is unmasked where it stands, so that pieces still lead back to the capture. A gap inside a payload is one of the stream inside;
after any other gap nobody knows where frames begin, and the direction is lost. It refuses to know what is inside.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from wirelake.capture.blocks import RUN_FLOW, RUN_MISSING, RUN_START, RUN_STOP, RUN_TO_SERVER, Flow
from wirelake.lake.memory import Speaker
from wirelake.lake.streams import GAP, UNREADABLE, Gap
from wirelake.protocols.kernel import compiled
from wirelake.protocols.websocket import CONTROL, FRAME, LEFT, LOST, PAYLOAD, PHASE, STATE_COLUMNS, TURN, unframe

__all__ = ["ALIEN", "Unwrapped", "Unwrapper"]

Array = np.ndarray[Any, Any]

ALIEN: Final = Gap("WEBSOCKET_FRAME", None, "a WebSocket frame that is text, compressed, or none that is known")
_STARTS: Final = {b"G"[0]: b"GET ", b"H"[0]: b"HTTP"}
"""What either side of an opening handshake begins with, by its first byte: nothing that may be inside begins with one of these."""


class Unwrapped(msgspec.Struct, frozen=True):
    """What became of some runs."""

    data: Array
    runs: Array
    wrapping: Array
    """(start, length) of every stretch that is handshake, header or control frame."""


class _Direction:
    """One direction of a wrapped connection."""

    def __init__(self, start: bytes) -> None:
        self.state = np.zeros(STATE_COLUMNS, np.int64)
        self.start = start
        """What must come first, as far as it has not come yet."""
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

    def greet(self, said: bytes) -> None:
        """Hold the first bytes to what an opening handshake begins with."""
        first = said[: len(self.start)]
        if not self.start.startswith(first):
            self.state[PHASE] = LOST
        self.start = self.start[len(first) :]


class Unwrapper:
    """Takes the runs of streams, block after block; what it knows of them is in `directions`, where None says that one is not wrapped."""

    def __init__(self, directions: dict[Speaker, Any]) -> None:
        self._directions = directions

    def why(self, speaker: Speaker) -> Gap:
        """Why nothing more can be read of a direction."""
        why: Gap = self._directions[speaker].why
        return why

    def unwrap(self, data: Array, runs: Array, flows: list[Flow]) -> Unwrapped:
        """The same runs, those of wrapped streams taken out of their frames; what cannot be is `UNREADABLE`."""
        mine, inner, wrapping = data, [], []
        for run in runs.tolist():
            start, stop, number, to_server, missing = (run[at] for at in (RUN_START, RUN_STOP, RUN_FLOW, RUN_TO_SERVER, RUN_MISSING))
            speaker = (flows[number].session_id, to_server)
            if speaker not in self._directions:
                opening = _STARTS.get(int(data[start])) if missing == 0 else None
                self._directions[speaker] = _Direction(opening) if opening else None
            direction = self._directions[speaker]
            if direction is None:
                inner.append(run)
                continue
            if mine is data:
                mine = data.copy()
            if missing > 0:
                direction.skip(missing)
            if direction.start:
                direction.greet(data[start : min(stop, start + len(direction.start))].tobytes())
            spans = np.zeros(2 * (stop - start), np.int64)
            count, end = compiled(unframe)(mine, start, stop, direction.state, spans)
            at = start
            for first, last in spans[: 2 * count].reshape(-1, 2).tolist():
                wrapping.append((at, first - at))
                inner.append([first, last, number, to_server, direction.missing])
                direction.missing, at = 0, last
            wrapping.append((at, end - at))
            if end < stop:
                inner.append([end, stop, number, to_server, UNREADABLE])
        kept = np.array([one for one in wrapping if one[1]], np.int64).reshape(-1, 2)
        return Unwrapped(mine, np.array(inner, np.int64).reshape(-1, runs.shape[1]), kept)

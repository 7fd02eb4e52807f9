"""Streams: the runs of packet captures joined to what each speaker said, with what was unfinished carried to the next block.

Where bytes are missing, a stream falls into turns. A gap inside a message whose length is known costs that message only: the next begins
where it would have ended. After any other gap, and where a stream was seen from its middle, reading begins at the next place where
messages certainly do.

A recording's runs hold whole frames and need none of this. It refuses to know protocols: `find` and `need` come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np

from wirelake.capture.blocks import PIECE_OFFSET, PIECE_START, RUN_FLOW, RUN_MISSING, RUN_START, RUN_STOP, RUN_TO_SERVER, Flow

__all__ = ["GAP", "Carried", "Gap", "Passed", "Speaker", "Speech", "clip", "join", "rounds"]

Array = np.ndarray[Any, Any]
Speaker = tuple[bytes, int]
"""Session id, and 1 for the client or 0 for the server."""

UNSURE_BYTES: Final = 64 * 1024
"""Bytes after a gap that are kept while no message is certain in them."""


class Gap(msgspec.Struct, frozen=True):
    """Why bytes of a stream are no message, when it is nobody's fault but the capture's."""

    name: str = "GAP"
    clause: str | None = None
    text: str = "bytes are missing from the capture here"


GAP: Final = Gap()


class Carried(msgspec.Struct):
    """The unfinished frame at the end of what a speaker said so far."""

    flow: Flow
    data: Array
    pieces: Array
    where: Any
    """What its pieces lead to."""
    owed: int = 0
    """Bytes still to come that belong to a message spoilt by a gap."""
    is_lost: bool = False
    """After a gap: nobody knows yet where in `data` a message begins."""


class Speech(msgspec.Struct):
    """Bytes to scan: runs in `data`, and the pieces that lead back to the source."""

    data: Array
    runs: Array
    pieces: Array


class Passed(msgspec.Struct, frozen=True):
    """Bytes of a speech that a gap made unreadable."""

    start: int
    stop: int
    flow: Flow
    to_server: int


def rounds(runs: Array) -> Iterator[Array]:
    """Runs in the order they came, so that in each round a speaker says what lies between two gaps."""
    if not runs[:, RUN_MISSING].any():
        yield runs
        return
    turn: dict[tuple[int, int], int] = {}
    turns = np.empty(len(runs), np.int64)
    for index, run in enumerate(runs.tolist()):
        speaker = (run[RUN_FLOW], run[RUN_TO_SERVER])
        turn[speaker] = turns[index] = turn.get(speaker, 0) + (run[RUN_MISSING] != 0)
    for number in range(int(turns.max()) + 1):
        if (turns == number).any():
            yield runs[turns == number]


def join(
    data: Array,
    runs: Array,
    pieces: Array,
    flows: list[Flow],
    carried: dict[Speaker, Carried],
    where: Any,
    find: Callable[[Array, int], int],
    need: Callable[[Array], int],
) -> tuple[Speech, list[Passed]]:
    """One run for each speaker: what was carried over, then all their runs of this round in order; and what a gap made unreadable.

    Empties `carried` of these speakers, but for what must wait for the next round. `find` gives the first place from another on where
    messages certainly begin, or the end; `need` how many bytes the message at the start takes, 0 if nobody knows.
    """
    speakers: dict[tuple[int, int], list[Array]] = {}
    for run in runs:
        speakers.setdefault((int(run[RUN_FLOW]), int(run[RUN_TO_SERVER])), []).append(run)
    chunks: list[Array] = []
    places: list[Array] = []
    joined: list[list[int]] = []
    passed: list[Passed] = []
    at = 0
    for (number, to_server), said in speakers.items():
        flow = flows[number]
        before = carried.pop((flow.session_id, to_server), None)
        mine = [] if before is None else [before.data]
        places += [] if before is None else [before.pieces + np.array([at, 0, 0])]
        start, at = at, at + sum(map(len, mine))
        for run in said:
            mine.append(data[run[RUN_START] : run[RUN_STOP]])
            places.append(clip(pieces, int(run[RUN_START]), int(run[RUN_STOP])) + np.array([at, 0, 0]))
            at += len(mine[-1])
        chunks += mine
        missing = int(said[0][RUN_MISSING])
        if not missing and (before is None or not (before.owed or before.is_lost)):
            joined.append([start, at, number, to_server])
            continue
        whole = np.concatenate(mine)
        skipped, left = _resume(whole, before, missing, find, need)
        passed.append(Passed(start, start + skipped, flow, to_server))
        if left is None:
            joined.append([start + skipped, at, number, to_server])
        else:
            rest = clip(np.concatenate(places), start + skipped, at)
            carried[flow.session_id, to_server] = Carried(flow, whole[skipped:].copy(), rest, where, left, not left)
    return Speech(
        np.concatenate(chunks) if chunks else np.zeros(0, np.uint8),
        np.array([run for run in joined if run[0] < run[1]], np.int64).reshape(-1, 4),
        np.concatenate(places) if places else np.zeros((0, 3), np.int64),
    ), [one for one in passed if one.start < one.stop]


def _resume(
    whole: Array, before: Carried | None, missing: int, find: Callable[[Array, int], int], need: Callable[[Array], int]
) -> tuple[int, int | None]:
    """(bytes to pass over, what is still owed after them): None is owed when reading goes on, 0 when nothing certain was found yet."""
    old = 0 if before is None else len(before.data)
    owed = 0 if before is None else before.owed
    if missing > 0 and before is not None and not before.is_lost:
        owed = (owed or (need(before.data) - old if old else 0)) - missing
    elif missing:
        owed = 0
    if owed > 0 or (missing > 0 and owed == 0 and old and before is not None and not before.is_lost):
        place = old + owed
        if place > len(whole):
            return len(whole), place - len(whole)
        certain = find(whole, place)
        return (place if certain == len(whole) else certain), None
    first = old if missing > 0 else 0
    place = find(whole, first)
    if place < len(whole):
        return place, None
    if missing < 0:
        return 0, None  # nothing is certain, but segments do begin with messages more often than not
    return max(first, len(whole) - UNSURE_BYTES), 0


def clip(pieces: Array, start: int, stop: int) -> Array:
    """The pieces of data[start:stop], counted from `start`."""
    first = np.searchsorted(pieces[:, PIECE_START], start, side="right") - 1
    last = np.searchsorted(pieces[:, PIECE_START], stop, side="left")
    part = pieces[max(first, 0) : last].copy()
    if len(part) and part[0, PIECE_START] < start:
        part[0, PIECE_OFFSET] += start - part[0, PIECE_START]
        part[0, PIECE_START] = start
    part[:, PIECE_START] -= start
    return part

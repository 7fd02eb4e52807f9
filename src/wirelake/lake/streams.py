"""Streams: the runs of packet captures joined to what each speaker said, with what was unfinished carried to the next block.

A recording's runs hold whole frames and need none of this. It refuses to know protocols.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from wirelake.capture.blocks import PIECE_OFFSET, PIECE_START, PIECE_TS, RUN_FLOW, RUN_START, RUN_STOP, RUN_TO_SERVER, Flow

__all__ = ["Carried", "Speaker", "Speech", "clip", "join", "trace"]

Array = np.ndarray[Any, Any]
Speaker = tuple[bytes, int]
"""Session id, and 1 for the client or 0 for the server."""


class Carried(msgspec.Struct):
    """The unfinished frame at the end of what a speaker said so far."""

    flow: Flow
    data: Array
    pieces: Array


class Speech(msgspec.Struct):
    """Bytes to scan: runs in `data`, and the pieces that lead back to the source."""

    data: Array
    runs: Array
    pieces: Array


def join(data: Array, runs: Array, pieces: Array, flows: list[Flow], carried: dict[Speaker, Carried]) -> Speech:
    """One run for each speaker: what was carried over, then all their runs of this block in order. Empties `carried` of them."""
    speakers: dict[tuple[int, int], list[Array]] = {}
    for run in runs:
        speakers.setdefault((int(run[RUN_FLOW]), int(run[RUN_TO_SERVER])), []).append(run)
    chunks: list[Array] = []
    places: list[Array] = []
    joined: list[list[int]] = []
    at = 0
    for (flow, to_server), said in speakers.items():
        start = at
        before = carried.pop((flows[flow].session_id, to_server), None)
        if before is not None:
            chunks.append(before.data)
            places.append(before.pieces + np.array([at, 0, 0]))
            at += len(before.data)
        for run in said:
            chunks.append(data[run[RUN_START] : run[RUN_STOP]])
            places.append(clip(pieces, int(run[RUN_START]), int(run[RUN_STOP])) + np.array([at, 0, 0]))
            at += int(run[RUN_STOP] - run[RUN_START])
        joined.append([start, at, flow, to_server])
    return Speech(
        np.concatenate(chunks) if chunks else np.zeros(0, np.uint8),
        np.array(joined, np.int64).reshape(-1, 4),
        np.concatenate(places) if places else np.zeros((0, 3), np.int64),
    )


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


def trace(pieces: Array, places: Array) -> tuple[Array, Array]:
    """Offsets in the source, and times, of places in the data."""
    index = np.searchsorted(pieces[:, PIECE_START], places, side="right") - 1
    offsets = pieces[index, PIECE_OFFSET] + places - pieces[index, PIECE_START]
    return offsets, pieces[index, PIECE_TS]

"""Handshakes that begin and end in one block, read together.

A block may have thousands of short connections. Where a protocol names the parts of its handshake (`Handshake.parts`), kernels read one
part of all connections after the other. Connections with a gap, a fault or only half of their handshake are left to `PendingHandshakes`,
which gives the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from wirelake import protocols
from wirelake.capture.blocks.block import SEGMENT_FLOW, SEGMENT_MISSING, SEGMENT_TO_SERVER
from wirelake.capture.blocks.flows import Flows
from wirelake.lake.decode.runs import Gathered, Runs
from wirelake.lake.decode.scan import Scanner
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.decode.streams import Put, ScanInput
from wirelake.protocols.kernel import HeaderScan, ScanLimits, header_scanner, over_arrays
from wirelake.protocols.protocol import HandshakeReader, Limits
from wirelake.protocols.speaker import Speaker

__all__ = ["read_whole_handshakes"]

ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_PARTS: Final = np.zeros(0, np.int64)


class _Part(msgspec.Struct):
    """One part of the handshakes of all connections."""

    speaker: Speaker
    items: IntArray
    """The directions it is of."""
    rows: IntArray


def read_whole_handshakes(
    scanner: Scanner, state: DecoderState, data: ByteArray, segments: IntArray, origins: IntArray, flows: Flows, put: Put
) -> tuple[IntArray, Runs | None]:
    """Read whole handshakes at the beginning of connections; returns the segments of all others, and the runs behind the handshakes."""
    handshake = scanner.protocol.handshake
    if handshake is None or handshake.parts is None:
        return segments, None
    is_opened = _beginning(state, segments, flows)
    if not is_opened.any():
        return segments, None
    runs = Runs(data, segments[is_opened[segments[:, SEGMENT_FLOW]]], origins, flows)
    gathered = runs.gather({})
    parts, at = _read(scanner, handshake.parts(scanner.limits), runs, gathered)
    is_opened[runs.flow_numbers[at < 0]] = False
    chosen = is_opened[runs.flow_numbers]
    if not chosen.any():
        return segments, None
    _follow(scanner, state, parts, runs, gathered, chosen)
    where = np.column_stack((gathered.starts, gathered.stops, runs.flow_numbers, runs.sides))
    rows = np.concatenate([part.rows[chosen[part.items]] for part in parts])
    items = np.concatenate([part.items[chosen[part.items]] for part in parts])
    no_parts = _NO_PARTS.reshape(0, scanner.columns.PART_COLUMNS)
    put(scanner, ScanInput(gathered.data, where, gathered.origins, flows), rows, no_parts, items)
    rest = np.column_stack((at, gathered.stops, runs.flow_numbers, runs.sides, np.zeros_like(at)))[chosen & (at < gathered.stops)]
    return segments[~is_opened[segments[:, SEGMENT_FLOW]]], Runs(gathered.data, rest, gathered.origins, flows) if len(rest) else None


def _beginning(state: DecoderState, segments: IntArray, flows: Flows) -> Mask:
    """Of each flow, whether it is new, and has bytes of both sides and no gap."""
    has_side = np.zeros((len(flows), 2), np.bool_)
    has_side[segments[:, SEGMENT_FLOW], segments[:, SEGMENT_TO_SERVER]] = True
    is_new: Mask = has_side[:, 0] & has_side[:, 1]
    is_new[segments[segments[:, SEGMENT_MISSING] != 0, SEGMENT_FLOW]] = False
    for number in np.flatnonzero(is_new).tolist():
        name = flows.session_ids[number].tobytes()
        is_new[number] = name not in state.handshakes and name not in state.pending
    return is_new


def _read(scanner: Scanner, order: Sequence[tuple[Speaker, ScanLimits]], runs: Runs, gathered: Gathered) -> tuple[list[_Part], IntArray]:
    """The parts of all directions, and where each direction goes on: -1 if one of its parts is not there, or not right."""
    at, sides, parts = gathered.starts.copy(), runs.sides, []
    kernel = over_arrays(_header_scan(scanner.protocol.name))
    for speaker, scan_limits in order:
        items = np.flatnonzero((sides == (speaker is Speaker.CLIENT)) & (at >= 0))
        rows, ends = np.zeros(len(items) * scanner.columns.ROW_COLUMNS, np.int64), np.empty(len(items), np.int64)
        kernel(gathered.data, at[items], gathered.stops[items], rows, _NO_PARTS, ends, scan_limits)
        at[items] = ends
        parts.append(_Part(speaker, items, rows.reshape(-1, scanner.columns.ROW_COLUMNS)))
    return parts, at


def _follow(scanner: Scanner, state: DecoderState, parts: list[_Part], runs: Runs, gathered: Gathered, chosen: Mask) -> None:
    """Let a reader of each connection follow its handshake."""
    handshake = scanner.protocol.handshake
    assert handshake is not None  # noqa: S101 - see read_whole_handshakes
    view, names = gathered.data.data, runs.flows.names()
    readers: dict[int, HandshakeReader[Limits]] = {
        number: handshake.start(scanner.limits) for number in np.unique(runs.flow_numbers[chosen]).tolist()
    }
    for part in parts:
        mine = chosen[part.items]
        for number, row in zip(runs.flow_numbers[part.items[mine]].tolist(), part.rows[mine].tolist(), strict=True):
            readers[number].follow(part.speaker, view, row)
    state.handshakes |= {names[number]: reader for number, reader in readers.items()}


@cache
def _header_scan(protocol: str) -> HeaderScan:
    return header_scanner(protocols.get(protocol).scan, protocols.get(protocol).columns().ROW_COLUMNS)

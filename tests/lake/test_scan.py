"""Kernels of reading: striding through streams is the same compiled and plain, and stops exactly where sense ends."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.lake.test_cuts import EMP, RELINK, YAMP, hostile

from wirelake import protocols
from wirelake.lake.decode import scan as room
from wirelake.lake.decode.scan import Scanner
from wirelake.protocols.emp.messages import Hello
from wirelake.protocols.emp.wire import encode
from wirelake.protocols.relink.scanner import Stage

OPENINGS = {"emp": (encode(Hello()), EMP), "yamp": (b"", YAMP), "relink": (b"", RELINK)}


def strides(protocol: str, stream: bytes, cuts: list[int]) -> tuple[list, list[int], list[int]]:
    """All rows with their runs, where runs end, and why."""
    scanner = Scanner(protocol, protocols.get(protocol).limits())
    scan_limits = scanner.scan_limits
    if protocol == "relink":
        scan_limits = scanner.limits.for_scan(Stage.PACKETS, 2, 2)  # type: ignore[call-arg]  # Relink's limits
    data = np.frombuffer(stream, np.uint8)
    starts, stops = np.array([0, *cuts], np.int64), np.array([*cuts, len(stream)], np.int64)
    ends, faults = starts.copy(), np.zeros(len(starts), np.int64)
    rows = []
    for found, parts, runs in scanner.stride(data, starts, stops, ends, faults, scan_limits):
        rows += [(*one, run) for one, run in zip(found.tolist(), runs.tolist(), strict=True)]
        assert len(parts) >= 0
    return rows, ends.tolist(), faults.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OPENINGS)
@pytest.mark.parametrize("seed", range(5))
def test_compiled_and_plain_say_the_same(monkeypatch, protocol, seed):
    dice = random.Random(seed)
    opening, makers = OPENINGS[protocol]
    stream = hostile(dice, opening, makers)[:6000]
    cuts = sorted(dice.sample(range(1, len(stream)), 4))
    compiled = strides(protocol, stream, cuts)
    monkeypatch.setattr(room, "over_arrays", lambda function: lambda data, *more: function(bytes(data), *more))
    assert strides(protocol, stream, cuts) == compiled


def test_a_run_ends_before_what_makes_no_sense_or_is_not_all_there():
    hello = encode(Hello())
    garbage = b"\xff" * 40
    stream = hello + garbage + hello + hello[:5]
    rows, ends, faults = strides("emp", stream, [len(hello) + len(garbage)])
    assert [(row[0], row[-1]) for row in rows] == [(0, 0), (len(hello) + len(garbage), 1)]
    assert ends == [len(hello), len(stream) - 5]
    assert (faults[0] > 0, faults[1]) == (True, 0)

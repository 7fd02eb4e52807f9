"""Measure how a live session's buffer scans: plain, compiled, or by size as the library chooses.

Each case feeds EMP requests of 40 bytes to a buffer: one at a time, 20 at a time, 64 KiB at a time. CPU time, best of several, all
caches warm. Goal: by size is within a quarter of plain for one message, and within a quarter of compiled for the others.

Seen on 2 busy cores (load 12), Python 3.11, microseconds a feed:

| bytes waiting | plain | compiled | by size |
|---|---:|---:|---:|
| one message, 40 bytes | 9.0 | 4.6 | 9.2 |
| 20 messages, 800 bytes | 142 | 7.8 | 7.8 |
| 64 KiB | 10,956 | 326 | 320 |

In this tight loop a compiled scan wins even for one message. In a live peer on the same machine a feed took 11 to 24 µs (10th percentile)
either way, and sequential requests showed no difference. An earlier measurement (171 µs compiled, 115 µs plain) was not reproduced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from figures import Figure, main
from wirelake.protocols import kernel
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.emp.messages import Data, RequestResponse
from wirelake.protocols.emp.wire import buffer, encode

REQUEST = encode(Data(b"x" * 12, (RequestResponse(request=True, request_id=7),)))
CASES = {"one message": REQUEST, "20 messages": REQUEST * 20, "64 KiB": REQUEST * (64 * 1024 // len(REQUEST))}
CHOICES = {"plain": kernel.COMPILED_BYTES, "compiled": 0, "by size": kernel.COMPILED_BYTES}
TOLERANCE = 1.25
MESSAGES = 2000
"""Messages fed in one turn, about."""
TABLE = "Feeding a buffer, CPU of one feed"


@contextmanager
def chosen(name: str) -> Iterator[Buffer]:
    """Make a buffer that scans in one of the ways of `CHOICES`."""
    before = kernel._use_compiled, kernel.compiled_from
    kernel._use_compiled, kernel.compiled_from = name != "plain", CHOICES[name]
    try:
        yield buffer()
    finally:
        kernel._use_compiled, kernel.compiled_from = before


def feed(way: str, data: bytes, count: int) -> float:
    """Microseconds of CPU that one feed takes, mean of `count`."""
    with chosen(way) as stream:
        list(stream.feed(data))  # compiled, and its tables made
        began = time.process_time_ns()
        for _ in range(count):
            for _ in stream.feed(data):
                pass
        return (time.process_time_ns() - began) / count / 1000


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    figures = []
    for name, data in CASES.items():
        count = max(1, MESSAGES // (len(data) // len(REQUEST)))
        turns = [{way: feed(way, data, count) for way in CHOICES} for _ in range(5 if quick else 25)]
        best = {way: min(turn[way] for turn in turns) for way in CHOICES}
        rival = "plain" if data is REQUEST else "compiled"
        title = f"{name}, {len(data):,} bytes"
        figures.append(
            Figure(table=TABLE, name=title, ours=best["by size"], unit="µs", rival=f"always {rival}", theirs=best[rival], most=TOLERANCE)
        )
    return figures


if __name__ == "__main__":
    main(run, __doc__)

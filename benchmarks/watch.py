"""What watching costs the peer that is watched: EMP requests one by one, of a client and a server in one process.

Recorded alone and recorded with a watcher beside, in turns; the median of the turns' mean and p99 counts. The watcher's process is ready
when a turn begins, and judges while requests go on: it needs a core of its own.

Goals: recording with a watcher takes at most 1.3 x recording alone, by the mean and by p99.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from figures import Figure, main

if TYPE_CHECKING:
    from wirelake.capture.record.recorder import Recorder

BODY = b"x" * 200
WARM = 200
"""Requests before a turn."""
ASKS, QUICK_ASKS = 5000, 2000
TURNS, QUICK_TURNS = 15, 7
TABLE = "Watching a live peer"
GOAL = 1.3


class Turn(NamedTuple):
    """Microseconds a request."""

    mean: float
    p99: float


async def asked(recorder: Recorder, count: int) -> Turn:
    """Requests of a client to a server that records."""
    from wirelake import emp

    options = emp.Options(recorder=recorder)
    served = emp.serve("tcp://127.0.0.1:0", on_request=lambda _, request: request.body, options=options)
    taken = []
    async with served as server, emp.connect(server.address) as peer:
        for _ in range(WARM + count):
            began = time.perf_counter()
            await peer.request(BODY)
            taken.append(time.perf_counter() - began)
    counted = sorted(taken[WARM:])
    return Turn(statistics.fmean(counted) * 1e6, counted[count * 99 // 100] * 1e6)


def turn(folder: Path, count: int, *, watched: bool) -> Turn:
    """One turn, recorded."""
    from wirelake.capture.record.recorder import Recorder
    from wirelake.explore.reading.watch import Watcher

    with contextlib.ExitStack() as stack:
        watch = stack.enter_context(Watcher(lambda _: None)) if watched else None
        recorder = stack.enter_context(
            Recorder(Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))) / "talk.pcapng", protocol="emp", watch=watch)
        )
        result = asyncio.run(asked(recorder, count))
    if watch is not None and watch.lost:
        raise SystemExit(f"{watch.lost} bytes were not watched")
    return result


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    count, turns = (QUICK_ASKS, QUICK_TURNS) if quick else (ASKS, TURNS)
    with tempfile.TemporaryDirectory() as name:
        pairs = [(turn(Path(name), count, watched=False), turn(Path(name), count, watched=True)) for _ in range(turns)]
    figures = []
    for at, what in enumerate(Turn._fields):
        alone, watched = (statistics.median(one[at] for one in some) for some in zip(*pairs, strict=True))
        figures.append(Figure(table=TABLE, name=f"recorded, {what}", ours=alone, unit="µs"))
        figures.append(
            Figure(
                table=TABLE, name=f"recorded and watched, {what}", ours=watched, unit="µs", rival="recorded alone", theirs=alone, most=GOAL
            )
        )
    return figures


if __name__ == "__main__":
    main(run, __doc__)

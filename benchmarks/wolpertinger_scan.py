"""The compiled wolpertinger scanner against itself uncompiled: what a session is made of, held equal first.

Goal: at least 5 million texts a second on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from figures import Figure, best, main
from wirelake.protocols.kernel import compiled
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call
from wirelake.protocols.wolpertinger.messages import Envelope, Message, Result
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, ROW_COLUMNS, scan
from wirelake.protocols.wolpertinger.wire import Keys, encode, sealed

GOAL = 5_000_000
TABLE = "Compiled scans, messages a second on one core"
ROWS = 4096
"""Rows scanned in one go, so that they stay in the cache as they do in the lake."""
CALL = Call("Core", "testMethod1", "f5afec97-5839-4666-b8d3-8c108b241720", ("This is a string-example", True))
KEYS = Keys(bytes(32), bytes(16))


def calls(count: int) -> list[Message]:
    """The call of the specification and its result, in turn."""
    text = sealed(documents.encode(CALL), None).text
    return [Envelope(number, text) if number % 2 else Result(0, number) for number in range(1, count + 1)]


def encrypted(count: int) -> list[Message]:
    """The same encrypted."""
    what = sealed(documents.encode(CALL), KEYS)
    return [Envelope(number, what.text, None, what.encryption) if number % 2 else Result(0, number) for number in range(1, count + 1)]


def lines(messages: list[Message]) -> bytes:
    """WOLP-11: a stream of them."""
    return b"".join(encode(message) + b"\n" for message in messages)


def in_turns(form: Callable[..., tuple[int, int, int, int]], data: Any, rows: Any) -> int:
    """Walk everything, `ROWS` at a time; says how many texts there were."""
    at, count, limits = 0, 0, DEFAULT_LIMITS.for_scan()
    parts = [] if isinstance(rows, list) else np.zeros(1, np.int64)
    while at < len(data):
        found, _, at, _ = form(data, at, len(data), rows, parts, limits)
        count += found
    return count


def check(messages: list[Message]) -> None:
    """Both forms write the same rows."""
    data = lines(messages)
    fast, slow = np.zeros(len(messages) * ROW_COLUMNS, np.int64), [0] * (len(messages) * ROW_COLUMNS)
    limits = DEFAULT_LIMITS.for_scan()
    said = compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), fast, np.zeros(1, np.int64), limits)
    assert said == scan(data, 0, len(data), slow, [], limits)
    assert said[0] == len(messages)
    assert fast.tolist() == slow


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    count, times = (100_000, 3) if quick else (400_000, 7)
    figures = []
    for name, make in {"calls and results": calls, "calls and results, encrypted": encrypted}.items():
        check(make(1000))
        data = lines(make(count))
        view, rows = np.frombuffer(data, np.uint8), np.zeros(ROWS * ROW_COLUMNS, np.int64)
        fast = best(lambda view=view, rows=rows: in_turns(compiled(scan), view, rows), times)
        figures.append(Figure(table=TABLE, name=f"wolpertinger {name}", ours=1e9 / fast, unit="/s", least=GOAL))
    return figures


if __name__ == "__main__":
    main(run, __doc__)

"""The compiled wolpertinger scanner against itself uncompiled: what a session is made of, held equal first.

Goal: at least 5 million texts a second on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from figures import show, verdict
from wirelake.protocols.kernel import compiled
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call
from wirelake.protocols.wolpertinger.messages import Envelope, Message, Result
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, ROW_COLUMNS, scan
from wirelake.protocols.wolpertinger.wire import Keys, encode, sealed

GOAL = 5_000_000
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


def best(run: Callable[[], int], times: int) -> float:
    """Nanoseconds a text, the best of several runs: the least disturbed one."""
    found = []
    for _ in range(times):
        began = time.perf_counter_ns()
        count = run()
        found.append((time.perf_counter_ns() - began) / count)
    return min(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=400_000)
    options.add_argument("--times", type=int, default=7)
    chosen = options.parse_args()
    shown, rates = [], []
    for name, make in {"calls and results": calls, "the same encrypted": encrypted}.items():
        check(make(1000))
        data = lines(make(chosen.messages))
        view, rows = np.frombuffer(data, np.uint8), np.zeros(ROWS * ROW_COLUMNS, np.int64)
        fast = best(lambda view=view, rows=rows: in_turns(compiled(scan), view, rows), chosen.times)
        short = lines(make(2000))
        slow = best(lambda short=short: in_turns(scan, short, [0] * (ROWS * ROW_COLUMNS)), 3)
        rates.append(1e9 / fast)
        size = f"{len(data) / chosen.messages:.0f}"
        shown.append([name, size, f"{fast:.1f}", f"{1e3 / fast:.1f}", f"{slow:,.0f}", f"{slow / fast:.0f} x"])
    columns = ["texts", "bytes", "compiled, ns", "million/s", "uncompiled, ns", "uncompiled takes"]
    show("Scanning wolpertinger texts: nanoseconds a text, best of several", columns, shown)
    found = " ".join(f"{rate / 1e6:.1f}" for rate in rates)
    verdict(f"scan >= {GOAL / 1e6:.0f} million texts/s a core", min(rates) >= GOAL, f"{found} million/s")


if __name__ == "__main__":
    main()

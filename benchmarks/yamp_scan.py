"""The compiled YAMP scanner against itself uncompiled: what a session is made of, held equal first.

Goal: at least 20 million messages a second on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from figures import Figure, best, main
from wirelake.protocols.kernel import compiled
from wirelake.protocols.yamp.messages import Cancel, Event, Message, Ping, Pong, Request, Response
from wirelake.protocols.yamp.scanner import DEFAULT_LIMITS, ROW_COLUMNS
from wirelake.protocols.yamp.wire import encode, scan

GOAL = 20_000_000
TABLE = "Compiled scans, messages a second on one core"
ROWS = 4096
"""Rows scanned in one go, so that they stay in the cache as they do in the lake."""
UIDS = [number.to_bytes(16) for number in range(1, 9)]
BODY = b'{"sensor": 4, "value": 21.5, "unit": "C"}'


def events(count: int) -> list[Message]:
    """Events of about 80 bytes."""
    return [Event(UIDS[number & 7], "sensor.changed", BODY) for number in range(count)]


def exchanges(count: int) -> list[Message]:
    """Requests and responses of about 100 bytes."""
    made: list[Message] = []
    for number in range(count // 2):
        uid = UIDS[number & 7]
        made += [Request(uid, "sensor.read", False, BODY), Response(UIDS[number + 1 & 7], "sensor.read", uid, 0, BODY)]
    return made


def mixed(count: int) -> list[Message]:
    """A conversation: exchanges with progress, events, now and then a cancel and keep-alive."""
    uid, other = UIDS[:2]
    turn: list[Message] = [
        *(
            Request(uid, "report.make", True, BODY),
            Response(other, "report.make", uid, 2, b"1"),
            Response(other, "report.make", uid, 0, BODY),
        ),
        *(Event(uid, "été.changé", BODY), Event(uid, "a", b"1"), Event(uid, "sensor.changed", BODY), Event(uid, "x" * 40, BODY)),
        *(Cancel(other, "report.make", uid), Ping(b"12345678"), Pong(b"12345678")),
    ]
    return [turn[number % len(turn)] for number in range(count)]


def in_turns(form: Callable[..., tuple[int, int, int, int]], data: Any, rows: Any) -> int:
    """Walk everything, `ROWS` at a time; says how many messages there were."""
    at, count, limits = 0, 0, DEFAULT_LIMITS.for_scan()
    parts = [] if isinstance(rows, list) else np.zeros(1, np.int64)
    while at < len(data):
        found, _, at, _ = form(data, at, len(data), rows, parts, limits)
        count += found
    return count


def check(messages: list[Message]) -> None:
    """Both forms write the same rows."""
    data = b"".join(map(encode, messages))
    fast, slow = np.zeros(len(messages) * ROW_COLUMNS, np.int64), [0] * (len(messages) * ROW_COLUMNS)
    limits = DEFAULT_LIMITS.for_scan()
    said = compiled(scan)(np.frombuffer(data, np.uint8), 0, len(data), fast, np.zeros(1, np.int64), limits)
    assert said == scan(data, 0, len(data), slow, [], limits)
    assert said[0] == len(messages)
    assert fast.tolist() == slow


def whole(data: bytes) -> int:
    """Where the last whole message ends."""
    rows = [0] * ROW_COLUMNS
    at = 0
    while (said := scan(data, at, len(data), rows, [], DEFAULT_LIMITS.for_scan()))[0]:
        at = said[2]
    return at


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    count, times = (200_000, 3) if quick else (1_000_000, 7)
    figures = []
    for name, make in {"events": events, "requests and responses": exchanges, "mix": mixed}.items():
        check(make(2000))
        data = b"".join(map(encode, make(count)))
        view, rows = np.frombuffer(data, np.uint8), np.zeros(ROWS * ROW_COLUMNS, np.int64)
        fast = best(lambda view=view, rows=rows: in_turns(compiled(scan), view, rows), times)
        figures.append(Figure(table=TABLE, name=f"YAMP {name}", ours=1e9 / fast, unit="/s", least=GOAL))
    return figures


if __name__ == "__main__":
    main(run, __doc__)

"""The compiled scanner against a `struct` loop and against itself uncompiled: same frames, same columns, same checks, held equal first.

Both read the same 2 MB again and again: the lake reads a capture in windows of 2 MiB, which are in the processor's cache when they are
scanned. 100 MB that are in no cache are shown, too: there the compiled scanner waits for memory, and the `struct` loop does not.

Goal: compiled at least 100 times as fast as the `struct` loop.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import structloop
from figures import Figure, best, main
from wirelake.capture.containers.walk import WINDOW
from wirelake.protocols.emp import wire
from wirelake.protocols.emp.messages import Bye, Compression, Data, Error, Hello, Message, Ping, Pong, RequestResponse
from wirelake.protocols.emp.scanner import PART_COLUMNS, ROW_COLUMNS
from wirelake.protocols.kernel import FAULT, FAULT_AT, PART, compiled

LIMITS = wire.DEFAULT_LIMITS
GOAL = 100
TABLE = "Compiled scans, messages a second on one core"
BROKEN = bytes.fromhex(
    "0000000809000000 0000001005000000aabbccddeeff0011 0000000802010000 00000010058000000000000400000000 0000000405000000"
)
ROWS = 4096
"""Rows scanned in one go, so that they stay in the cache as they do in the lake."""
MEMORY = 100 << 20
"""Bytes that no cache holds."""


def plain(count: int) -> list[Message]:
    """Data frames of 100 bytes."""
    return [Data(b"x" * 92) for _ in range(count)]


def requests(count: int) -> list[Message]:
    """Requests and responses of 100 bytes."""
    return [Data(b"x" * 72, (RequestResponse(bool(number & 1), number + 1),)) for number in range(count)]


def mixed(count: int) -> list[Message]:
    """A session: mostly requests, responses and data of about 100 bytes, and a few other messages."""
    draw = random.Random(4)  # noqa: S311 - frames, not secrets
    packed = wire.pack(b"x" * 100)
    others: list[Message] = [Hello(), Bye(), Error(3, message="no")]
    kinds: list[Callable[[int], Message]] = [
        lambda n: Data(b"x" * 72, (RequestResponse(bool(n & 1), n + 1),)),
        lambda _: Data(b"x" * draw.randrange(60, 120)),
        lambda n: Data(packed, (RequestResponse(True, n + 1), Compression(1))),
        lambda n: Ping() if n & 1 else Pong(),
        lambda _: draw.choice(others),
    ]
    return [draw.choices(kinds, (60, 30, 5, 4, 1))[0](number) for number in range(count)]


def in_turns(scan: Callable[..., tuple[int, int, int, int]], data: np.ndarray | bytes, rows: object, parts: object) -> int:
    """Walk everything, `ROWS` at a time; says how many messages there were."""
    at, count, limits = 0, 0, LIMITS.for_scan()
    while at < len(data):
        found, _, at, _ = scan(data, at, len(data), rows, parts, limits)
        count += found
    return count


def check(messages: list[Message]) -> None:
    """All three see the same rows and parts, also of broken frames."""
    broken = bytes.fromhex(
        "0000000809000000 0000001005000000aabbccddeeff0011 0000000802010000 0000001005800000 0000000400000000 0000000405000000"
    )
    data = b"".join(map(wire.encode, messages)) + broken
    room = len(messages) + 8
    fast_rows, fast_parts = np.zeros(room * ROW_COLUMNS, np.int64), np.zeros((2 * room + 16) * PART_COLUMNS, np.int64)
    slow_rows, slow_parts = [0] * (room * ROW_COLUMNS), [0] * ((2 * room + 16) * PART_COLUMNS)
    fast = compiled(wire.scan)(np.frombuffer(data, np.uint8), 0, len(data), fast_rows, fast_parts, LIMITS.for_scan())
    slow = wire.scan(data, 0, len(data), slow_rows, slow_parts, LIMITS.for_scan())
    rows, parts, end = structloop.scan(data, LIMITS)
    assert fast[:3] == slow[:3] == (len(rows), len(parts), end), (fast, slow, len(rows), len(parts), end)
    wanted = np.array(rows, np.int64)
    sound = wanted[:, FAULT] == 0
    wanted[sound, FAULT_AT] = 0  # says nothing where nothing is wrong
    for found in (fast_rows, np.array(slow_rows)):
        seen = found[: wanted.size].reshape(wanted.shape).copy()
        seen[sound, FAULT_AT] = 0
        assert (seen == wanted).all()
    assert (fast_parts[: len(parts) * PART_COLUMNS] == np.array(parts, np.int64).ravel()).all()
    assert wanted[:, PART].max(initial=0) <= len(parts)


def run(quick: bool, seed: int) -> list[Figure]:
    """See the top of this file."""
    random.seed(seed)
    fast, times, turns = compiled(wire.scan), (5 if quick else 15), (10 if quick else 20)
    figures = []
    for name, make in (("plain data", plain), ("request-response", requests), ("mix", mixed)):
        messages = make(10_000)
        check(messages)
        frames = b"".join(map(wire.encode, messages))
        window = frames * (WINDOW // len(frames))
        short, long = (np.frombuffer(window * count, np.uint8) for count in (1, MEMORY // WINDOW))
        rows, parts = np.zeros(ROWS * ROW_COLUMNS, np.int64), np.zeros((2 * ROWS + 16) * PART_COLUMNS, np.int64)
        # In turns, so that a busy moment of the machine hits both alike.
        found = [
            (
                best(lambda: sum(in_turns(fast, short, rows, parts) for _ in range(turns)), 2),  # noqa: B023 - run at once
                best(lambda: len(structloop.scan(window, LIMITS)[0]), 2),  # noqa: B023
            )
            for _ in range(times)
        ]
        quickest, loop = (1e9 / min(one) for one in zip(*found, strict=True))
        uncached = 1e9 / best(lambda: in_turns(fast, long, rows, parts), 3)  # noqa: B023
        more = {"table": TABLE, "unit": "/s", "rival": "a struct loop", "theirs": loop}
        figures.append(Figure(name=f"EMP {name}", ours=quickest, least=GOAL, **more))
        figures.append(Figure(name=f"EMP {name}, in no cache", ours=uncached, **more))
    return figures


if __name__ == "__main__":
    main(run, __doc__)

"""Relink: compiled scanning of packets, and what a session makes of them.

Goal: 10 million packets a second a core.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from figures import Figure, best, main
from wirelake.protocols.kernel import FAULT, compiled, use_compiled
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, Stage, scan
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import encode

GOAL = 10.0
TABLE = "Compiled scans, messages a second on one core"
SESSION = "Sessions without sockets"
ROWS = 4096
"""Rows scanned in one go, so that they stay in the cache as they do in the lake."""
LIMITS = DEFAULT_LIMITS.for_scan(Stage.PACKETS, 4, 4)
BULK = b"bulk"


def small(count: int) -> list[m.AnyMessage]:
    """Messages of one part of 128 bytes."""
    return [m.Message((BULK,), (b"x" * 128,)) for _ in range(count)]


def acknowledgements(count: int) -> list[m.AnyMessage]:
    return [m.Consumed((BULK,), number) for number in range(count)]


def mixed(count: int) -> list[m.AnyMessage]:
    """What a link carries: mostly messages, of one part or several, and what keeps it going."""
    draw = random.Random(4)  # noqa: S311 - packets, not secrets
    kinds: list[Callable[[int], m.AnyMessage]] = [
        lambda _: m.Message((BULK,), (b"x" * draw.randrange(40, 200),)),
        lambda _: m.Message((BULK,), (b"head", b"y" * draw.randrange(100), b"")),
        lambda _: m.Message((BULK, b"more", b"than"), (b"x" * 60,)),
        lambda n: m.Consumed((BULK,), n),
        lambda n: m.Commit((BULK,), n),
        lambda n: m.Ping() if n & 1 else m.Pong(),
    ]
    return [draw.choices(kinds, (60, 15, 5, 10, 7, 3))[0](number) for number in range(count)]


def in_turns(data: np.ndarray, rows: np.ndarray, parts: np.ndarray) -> int:
    """Walk everything, `ROWS` at a time; says how many packets there were."""
    at, count, fast = 0, 0, compiled(scan)
    while at < len(data):
        found, _, at, _ = fast(data, at, len(data), rows, parts, LIMITS)
        count += found
    return count


def receiving(data: bytes, count: int, times: int) -> float:
    """Nanoseconds a message from bytes to events and back to an acknowledgement, without a socket."""
    options = Options(ping_interval=None, max_unconsumed=1 << 40)
    endpoint = Endpoint("bench", 4, 4)
    session = Session(Speaker.LISTENER, options, registry=Registry([endpoint], 1, lambda: 1, options))
    session.start(0.0)
    session.receive(encode(m.Version()) + encode(m.Request("bench", 4, 4)), 0.0)
    session.events()
    link = session.link
    assert isinstance(link, LinkCore)

    def run() -> int:
        session.receive(data, 0.0)
        for event in session.events():
            link.consume(event, 0.0)
        session.output()
        return count

    return best(run, times)


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    use_compiled()
    times = 5 if quick else 20
    rows, parts = np.zeros(ROWS * ROW_COLUMNS, np.int64), np.zeros((4 * ROWS + 1024) * PART_COLUMNS, np.int64)
    figures = []
    for name, make in (("messages of 128 bytes", small), ("acknowledgements", acknowledgements), ("mix", mixed)):
        said = make(ROWS)
        data = np.frombuffer(b"".join(map(encode, said)) * 20, np.uint8)
        assert in_turns(data, rows, parts) == 20 * len(said)
        assert not rows.reshape(-1, ROW_COLUMNS)[:, FAULT].any()
        took = best(lambda: in_turns(data, rows, parts), times)  # noqa: B023 - run at once
        figures.append(Figure(table=TABLE, name=f"Relink {name}", ours=1e9 / took, unit="/s", least=1e6 * GOAL))
    took = receiving(b"".join(map(encode, small(1000))), 1000, times)
    figures.append(Figure(table=SESSION, name="Relink session, from bytes to a consumed message", ours=1e9 / took, unit="/s"))
    return figures


if __name__ == "__main__":
    main(run, __doc__)

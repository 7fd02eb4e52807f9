"""How long a Relink link takes to resume with 100,000 messages outstanding; rates and latencies are in `one_way.py` and `latency.py`.

Goal: under a second.
"""

from __future__ import annotations

import statistics
import time

from figures import Figure, main
from wirelake.protocols.relink import Endpoint, LinkCore, Options, Registry, Session, Speaker

BODY = b"x" * 128
OUTSTANDING = 100_000
TURNS, QUICK_TURNS = 5, 3


def resuming() -> float:
    """Seconds of CPU of both sides, without sockets: the handshake, what each tells, and 100,000 messages sent again and taken."""
    options = Options(ping_interval=None, window=OUTSTANDING)
    endpoint = Endpoint("bench", connector_id_size=4)
    link, registry = LinkCore(Speaker.CONNECTOR, endpoint, options), Registry([endpoint], 1, lambda: 1, options)

    def connect() -> int:
        ends = Session(Speaker.CONNECTOR, options, link=link), Session(Speaker.LISTENER, options, registry=registry)
        for end in ends:
            end.compile()  # as a connection does by itself that receives in bulk
            end.start(0.0)
        heard = 0
        while True:
            forth, back = ends[0].output(), b""
            if forth:
                ends[1].receive(forth, 0.0)
                back = ends[1].output()
                ends[0].receive(back, 0.0)
            heard += len(ends[1].events()) + len(ends[0].events())
            if not forth and not back:
                return heard

    connect()
    link.detach(link.owner or link, 0.0)
    for _ in range(OUTSTANDING):
        link.send(b"bulk", (BODY,))
    began = time.process_time()
    heard = connect()
    seconds = time.process_time() - began
    assert heard > OUTSTANDING
    return seconds


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    seconds = statistics.median(resuming() for _ in range(QUICK_TURNS if quick else TURNS))
    return [Figure(table="Resuming a Relink link", name=f"{OUTSTANDING:,} outstanding messages resumed", ours=seconds, unit="s", most=1)]


if __name__ == "__main__":
    main(run, __doc__)

"""A live Event Mesh node on loopback: datagrams that it receives, verifies and delivers to a subscriber, a second.

A sender in a process of its own says packets that were built before, first as fast as it can (then most of them are lost, because saying is
cheaper than verifying), then at four fifths of the rate that was reached. Every packet has an id of its own; a rate limit, a replay cache
that is too small or a slow subscriber would show as a loss.

Goals: 20,000 HMACs and 3,000 signatures a second, and no loss at four fifths of what was reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import time
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

import uvloop

from figures import Figure, main
from wirelake.peers.event_mesh import Node, Options, node
from wirelake.peers.subscriptions import Subscription
from wirelake.protocols.event_mesh import Credentials, Key, TrustStore
from wirelake.protocols.event_mesh.events import Delivered
from wirelake.protocols.event_mesh.packet.builder import build, public_key_of
from wirelake.protocols.event_mesh.packet.values import binary, text

NODE, AUTH, SECRET, SEED = bytes(range(16)), b"\0\0\0\1", bytes(range(32)), bytes(range(32))
PROOFS = {"HMAC": Credentials(NODE, AUTH, SECRET), "Ed25519": Credentials(NODE, AUTH, seed=SEED)}
GOALS = {"HMAC": 20_000, "Ed25519": 3_000}
COUNTS = {"HMAC": 100_000, "Ed25519": 20_000}
QUIET = 1.0
"""Seconds without a datagram, after the sender is done, after which there will be none."""
BODY = b"x" * 20
PUBLISHED = 5000
TABLE = "Event Mesh node on loopback"


def say(credentials: Credentials, port: int, count: int, rate: float | None, built: Event, begin: Event) -> None:
    """The sender: build all, wait for the word, send."""
    made = int(time.time())
    fields = [text("temp.changed"), binary(BODY)]
    packets = [build(3, fields, credentials, message_id=number, timestamp=made) for number in range(count)]
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    built.set()
    begin.wait()
    to, began = ("127.0.0.1", port), time.perf_counter()
    for number, data in enumerate(packets):
        if rate is not None and number % 16 == 0:
            while (ahead := number / rate - (time.perf_counter() - began)) > 0:
                time.sleep(ahead)
        out.sendto(data, to)


async def hear(proof: str, count: int, rate: float | None) -> tuple[int, float]:
    """One node that hears one sender: events delivered, and seconds from the first to the last."""
    store = TrustStore([Key(NODE, AUTH, SECRET, public_key_of(SEED))])
    # Without its limits: they, and not the node, would be measured (20,000 packets a second of one host).
    options = Options(rate_limit=None, replay_capacity=2 * count, trust=store)
    async with node("udp://127.0.0.1:0", options=options) as here:
        heard = here.subscribe("temp.*")
        built, begin = multiprocessing.Event(), multiprocessing.Event()
        sender = multiprocessing.Process(target=say, args=(PROOFS[proof], here.target.port, count, rate, built, begin), daemon=True)
        sender.start()
        await asyncio.to_thread(built.wait)
        begin.set()
        got, seconds = await listen(here, heard, sender, count)
        sender.join()
        counted = here.metrics
        # An event is read, or it waits, or it found the inbox full.
        assert counted.session.delivered == got + len(heard) + counted.inbox_full, (got, len(heard), counted)
        assert not counted.session.rejected
        return got, max(seconds, 1e-9)


async def listen(here: Node, heard: Subscription[Delivered], sender: BaseProcess, count: int) -> tuple[int, float]:
    """Read until all are there, or the sender is done and the node has taken nothing more for a while.

    A timeout alone proves nothing: a node that works for longer than it, for instance because it loads a library, delivers all the same.
    """
    got, first, last, taken = 0, 0.0, 0.0, -1
    while got < count:
        try:
            async with asyncio.timeout(QUIET):
                await anext(heard)
        except TimeoutError:
            before, taken = taken, here.metrics.session.received
            if not len(heard) and not sender.is_alive() and taken == before:
                break
            continue
        while True:  # what waits already needs no timer
            got += 1
            last = time.perf_counter()
            first = first or last
            if not len(heard):
                break
            await anext(heard)
    return got, last - first


async def publish(proof: str) -> float:
    """One node that publishes to an address where nothing listens, built, proven and sent: events a second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        peer = f"udp://127.0.0.1:{deaf.getsockname()[1]}"
        async with node("udp://127.0.0.1:0", credentials=PROOFS[proof], peers=[peer]) as here:
            await here.publish("temp.changed", BODY)  # loads what it needs
            began = time.perf_counter()
            for _ in range(PUBLISHED):
                await here.publish("temp.changed", BODY)
            return PUBLISHED / (time.perf_counter() - began)


async def both_ways(proof: str, count: int) -> tuple[float, float]:
    """As fast as it can, after as many to warm up, then at four fifths: events a second, and the part that was lost then."""
    await hear(proof, count, None)
    got, seconds = await hear(proof, count, None)
    kept, _ = await hear(proof, count, got / seconds * 0.8)
    return got / seconds, 1 - kept / count


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    figures = []
    for proof, goal in GOALS.items():
        rate, lost = uvloop.run(both_ways(proof, COUNTS[proof] // (5 if quick else 1)))
        figures.append(Figure(table=TABLE, name=f"{proof}, received, verified, delivered", ours=rate, unit="/s", least=goal))
        figures.append(Figure(table=f"{TABLE}: loss", name=f"{proof}, lost at four fifths of that", ours=100 * lost, unit="%", most=0))
        figures.append(Figure(table=TABLE, name=f"{proof}, published", ours=uvloop.run(publish(proof)), unit="/s"))
    return figures


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(run, __doc__)

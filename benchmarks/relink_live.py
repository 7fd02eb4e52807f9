"""Relink live: one-way messages of 128 bytes against nats-py publish-subscribe, sends one by one, and how long a resume takes.

The two sides are processes of their own, on uvloop, and the rivals take turns; the median of several runs counts. Every message is read by
the application; with Relink it is consumed and acknowledged, too, and sent again if a connection is lost. NATS goes through its server.
The rate is that of the receiver, from its first message to its last; CPU is that of both Python processes, without the NATS server's.

A send one by one waits until the message is consumed; it is compared with a ping of the same link, taken in turns with it.

Goals: at least 1.5 times nats-py; a send one by one within 3 pings; 100,000 outstanding messages resumed in under a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from echo import absent, broker
from figures import show, verdict

BODY = b"x" * 128
SUBJECT = "one-way"
GOAL = 1.5
OUTSTANDING = 100_000
RESUME_GOAL = 1.0
SEQUENTIAL = 5000
"""Sends one by one, and as many pings."""
SEND_GOAL = 3.0
"""Pings that a send one by one may take."""


class Stopwatch:
    """Counts messages, and prints how long they took."""

    def __init__(self, count: int) -> None:
        self.count, self.seen, self.began, self.worked = count, 0, 0.0, 0.0

    def take(self) -> bool:
        """One more; says whether it was the last."""
        self.seen += 1
        if self.seen == 1:
            self.began, self.worked = time.perf_counter(), time.process_time()
        elif self.seen == self.count:
            seconds, busy = time.perf_counter() - self.began, time.process_time() - self.worked
            print(json.dumps({"rate": (self.count - 1) / seconds, "busy": busy / self.count}), flush=True)
            return True
        return False


async def relink_receiver(_: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, Link, serve
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    watch = Stopwatch(count)

    async def take(link: Link) -> None:
        async for message in link:
            assert len(message.parts[0]) == len(BODY)
            watch.take()

    async with serve("tcp://127.0.0.1:0", {Endpoint("bench", connector_id_size=4): take}) as listener:
        print(listener.address, flush=True)
        await asyncio.Event().wait()


async def relink_sender(address: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, connect
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with connect(address, Endpoint("bench", connector_id_size=4)) as link:
        channel = link.channel(b"bulk")
        worked = time.process_time()
        for _ in range(count):
            receipt = await channel.post(BODY)
        await receipt
        print(json.dumps({"sender": (time.process_time() - worked) / count}), flush=True)


async def sequential_sender(address: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, connect
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    async with connect(address, Endpoint("bench", connector_id_size=4)) as link:
        channel = link.channel(b"line")
        taken: dict[str, list[float]] = {"ping": [], "send": []}
        for _ in range(count):
            began = time.perf_counter()
            await link.ping()
            between = time.perf_counter()
            await channel.send(BODY)
            taken["ping"].append(between - began)
            taken["send"].append(time.perf_counter() - between)
        print(json.dumps({name: statistics.median(found) for name, found in taken.items()}), flush=True)


async def nats_receiver(address: str, count: int) -> None:
    import nats
    from nats.aio.msg import Msg

    watch, done = Stopwatch(count), asyncio.Event()

    async def take(message: Msg) -> None:
        assert len(message.data) == len(BODY)
        if watch.take():
            done.set()

    connection = await nats.connect(address)
    await connection.subscribe(SUBJECT, cb=take, pending_msgs_limit=2 * count, pending_bytes_limit=1 << 31)
    await connection.flush()
    print(address, flush=True)
    await done.wait()


async def nats_sender(address: str, count: int) -> None:
    import nats

    connection = await nats.connect(address)
    worked = time.process_time()
    for _ in range(count):
        await connection.publish(SUBJECT, BODY)
    await connection.flush(timeout=60)
    print(json.dumps({"sender": (time.process_time() - worked) / count}), flush=True)
    await connection.close()


ROLES = {
    "relink": (relink_receiver, relink_sender),
    "nats": (nats_receiver, nats_sender),
    "sequential": (relink_receiver, sequential_sender),
}
RIVALS = ("relink", "nats")


def play(name: str, count: int) -> dict[str, float]:
    """One run of one rival, all processes fresh."""
    here = [sys.executable, str(Path(__file__).resolve()), "--messages", str(count), "--role"]
    with contextlib.ExitStack() as stack:
        through = stack.enter_context(broker()) if name == "nats" else "-"
        receiver = subprocess.Popen([*here, f"{name}-receiver", "--address", through], stdout=subprocess.PIPE, text=True)
        stack.callback(receiver.wait)
        stack.callback(receiver.terminate)
        assert receiver.stdout is not None
        address = receiver.stdout.readline().strip()
        sender = [*here, f"{name}-sender", "--address", address]
        sent = subprocess.run(sender, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
        return json.loads(receiver.stdout.readline()) | json.loads(sent.stdout)


def resuming() -> dict[str, float]:
    """Both sides in this process, without sockets: the handshake, what each tells, and 100,000 messages sent again and taken."""
    from wirelake.protocols.kernel import use_compiled
    from wirelake.protocols.relink import Endpoint, LinkCore, Options, Registry, Session, Speaker

    use_compiled()
    options = Options(ping_interval=None, window=OUTSTANDING)
    endpoint = Endpoint("bench", connector_id_size=4)
    link, registry = LinkCore(Speaker.CONNECTOR, endpoint, options), Registry([endpoint], 1, lambda: 1, options)

    def connect() -> int:
        ends = Session(Speaker.CONNECTOR, options, link=link), Session(Speaker.LISTENER, options, registry=registry)
        for end in ends:
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
    began = time.perf_counter()
    heard = connect()
    seconds = time.perf_counter() - began
    assert heard > OUTSTANDING
    return {"seconds": seconds}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=300_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--role", help=argparse.SUPPRESS)
    options.add_argument("--address", default="-", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        take_part(chosen.role, chosen.address, chosen.messages)
        return
    lacking = absent()
    if "nats" in lacking:
        print(f"nats does not take part: {lacking['nats']}", file=sys.stderr)
    names = [name for name in RIVALS if name not in lacking]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(chosen.times):
        for name in names:
            runs[name].append(play(name, chosen.messages))
    rates = {name: statistics.median(run["rate"] for run in found) for name, found in runs.items()}
    busy = {name: [statistics.median(run[side] for run in found) for side in ("sender", "busy")] for name, found in runs.items()}
    lines = [
        [
            name,
            f"{rates[name]:,.0f}",
            *(f"{1e6 * one:.1f}" for one in busy[name]),
            f"{rates['relink'] / rates[name]:.2f} x",
            f"{sum(busy[name]) / sum(busy['relink']):.2f} x",
        ]
        for name in names
    ]
    title = f"{chosen.messages:,} one-way messages of {len(BODY)} bytes on one channel, median of {chosen.times}"
    show(title, ["one-way", "messages/s", "sender CPU, µs", "receiver CPU, µs", "Relink is", "by CPU"], lines)
    if "nats" in rates:
        ratio = rates["relink"] / rates["nats"]
        verdict(f"Relink one-way >= {GOAL} x nats-py", ratio >= GOAL, f"{ratio:.2f} x")
    waited = [play("sequential", SEQUENTIAL) for _ in range(chosen.times)]
    ping, send = (statistics.median(run[name] for run in waited) for name in ("ping", "send"))
    detail = f"{1e6 * send:.0f} µs, {send / ping:.2f} pings of {1e6 * ping:.0f} µs"
    verdict(f"a send one by one within {SEND_GOAL:g} pings", send <= SEND_GOAL * ping, detail)
    seconds = statistics.median(resuming()["seconds"] for _ in range(chosen.times))
    verdict(f"{OUTSTANDING:,} outstanding messages resumed in under {RESUME_GOAL:g} s", seconds < RESUME_GOAL, f"{seconds:.2f} s")


def take_part(role: str, address: str, count: int) -> None:
    """What a child process does."""
    import uvloop

    name, _, side = role.partition("-")
    receiver, sender = ROLES[name]
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run((receiver if side == "receiver" else sender)(address, count))


if __name__ == "__main__":
    main()

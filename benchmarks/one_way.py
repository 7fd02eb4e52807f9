"""One-way messages of 128 bytes a second, of all five protocols and their rivals.

Sender and receiver are processes of their own. Everything that is asynchronous runs on uvloop. Rivals take turns; the median counts. The
rate is that of the receiver for the last quarter of the messages, when scanners are compiled; that of the first quarter is shown as cold.
Every message reaches a handler or a loop of the application there.

Relink's messages are consumed and acknowledged, too, and sent again if a connection is lost. Event Mesh packets carry an HMAC each, which
is checked, and none may be lost. A call of wolpertinger without a response is confirmed, too; 64 are on their way. NATS goes through its
server.

Goals: EMP at least 2 x nats-py. Relink at least 3 x nats-py one by one, and at least pyzmq and zenoh with `post_many`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from typing import Any

from figures import Figure, Role, main, report
from rivals import absent, broker, free_port, started, told

BODY = b"x" * 128
NAME = "one.way"
IN_FLIGHT = 64
"""Calls of wolpertinger without a response, each waiting for its confirmation."""
BATCH = 500
"""Messages of one `post_many`."""
COUNTS = {
    "emp": 1_200_000,
    "yamp": 400_000,
    "relink": 1_000_000,
    "relink-many": 2_000_000,
    "event_mesh": 20_000,
    "wolpertinger": 20_000,
    "nats": 300_000,
}
MESSAGES = 1_200_000
"""Of every rival that is not in COUNTS."""
TURNS = 5
QUICK_TURNS = 1
QUIET = 3.0
"""Seconds without a datagram after which no more will come."""
PATIENCE = 600
"""Seconds that a sender stays, so that closing its connection loses nothing; it is stopped when the receiver is done."""
MESH_RATE = 4000
"""Datagrams a second: UDP has no back-pressure, so a rate that loses nothing is kept."""
TABLE = "One-way messages of 128 bytes"
LOSS = "One-way messages, lost"
COLD = "One-way messages of 128 bytes, the first quarter"
LABELS = {
    "emp": "EMP",
    "yamp": "YAMP",
    "relink": "Relink",
    "relink-many": "Relink, post_many",
    "event_mesh": "Event Mesh",
    "wolpertinger": "wolpertinger",
}


class Stopwatch:
    """Counts messages: reports the rate of the first quarter, while a scanner may be compiled, and of the last."""

    def __init__(self, count: int) -> None:
        self.seen, self.count, self.quarter = 0, count, count // 4
        self.began = self.cold = 0.0
        self.first = 0
        """Messages before those that are being timed."""

    def take(self, messages: int = 1) -> None:
        """So many more arrived."""
        if not self.seen:
            self.began = time.perf_counter()
        before, self.seen = self.seen, self.seen + messages
        if before < self.quarter <= self.seen:
            self.cold = self._rate()
        if before < self.count - self.quarter <= self.seen:
            self.began, self.first = time.perf_counter(), self.seen
        if self.seen == self.count:
            report(rate=self._rate(), cold=self.cold)

    def end(self) -> None:
        """No more will arrive: what is missing is lost."""
        if self.seen < self.count:
            report(rate=self._rate(), cold=self.cold or self._rate(), lost=self.count - self.seen)

    def _rate(self) -> float:
        return (self.seen - self.first) / (time.perf_counter() - self.began)


# Ours. A receiver prints where it listens.


async def emp_receiver(_: str, count: int) -> None:
    from wirelake.peers.emp import Options, serve

    watch = Stopwatch(count)

    def on_data(_peer: object, _message: object) -> None:
        watch.take()

    async with serve("tcp://127.0.0.1:0", options=Options(on_data=on_data)) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def emp_sender(address: str, count: int) -> None:
    from wirelake.peers.emp import connect

    async with connect(address) as peer:
        for _ in range(count):
            await peer.send(BODY)
        await asyncio.Event().wait()


async def yamp_receiver(_: str, count: int) -> None:
    from wirelake.peers.yamp import Service, serve

    watch, service = Stopwatch(count), Service()
    service.on(NAME, lambda _peer, _event: watch.take())
    async with serve("tcp://127.0.0.1:0", service) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def yamp_sender(address: str, count: int) -> None:
    from wirelake.peers.yamp import connect

    text = "x" * (len(BODY) - 2)  # JSON puts it between quotes
    async with connect(address) as peer:
        for _ in range(count):
            await peer.send(NAME, text)
        await asyncio.Event().wait()


async def relink_receiver(_: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, Link, serve

    watch = Stopwatch(count)

    async def take(link: Link) -> None:
        async for _message in link:
            watch.take()

    async with serve("tcp://127.0.0.1:0", {Endpoint("bench", connector_id_size=4): take}) as listener:
        print(listener.address, flush=True)
        await asyncio.Event().wait()


async def relink_sender(address: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, connect

    async with connect(address, Endpoint("bench", connector_id_size=4)) as link:
        channel = link.channel(b"bulk")
        for _ in range(count):
            receipt = await channel.post(BODY)
        await receipt
        await asyncio.Event().wait()


async def relink_many_receiver(_: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, Link, serve

    watch = Stopwatch(count)

    async def take(link: Link) -> None:
        async for messages in link.batches():
            watch.take(len(messages))

    async with serve("tcp://127.0.0.1:0", {Endpoint("bench", connector_id_size=4): take}) as listener:
        print(listener.address, flush=True)
        await asyncio.Event().wait()


async def relink_many_sender(address: str, count: int) -> None:
    from wirelake.peers.relink import Endpoint, connect

    batch = [BODY] * BATCH
    async with connect(address, Endpoint("bench", connector_id_size=4)) as link:
        channel = link.channel(b"bulk")
        for _ in range(count // BATCH):
            receipt = await channel.post_many(batch)
        await receipt
        await asyncio.Event().wait()


async def event_mesh_receiver(_: str, count: int) -> None:
    from wirelake.peers.event_mesh import Options, node

    watch = Stopwatch(count)
    async with node("udp://127.0.0.1:0", options=Options(trust=_trust())) as here:
        here.subscribe(NAME, lambda _node, _event: watch.take())
        print(here.address, flush=True)
        before = -1
        while not before or watch.seen != before:  # a datagram may be lost, even on loopback
            before = watch.seen
            await asyncio.sleep(QUIET)
        watch.end()


async def event_mesh_sender(address: str, count: int) -> None:
    from wirelake.peers.event_mesh import node
    from wirelake.protocols.event_mesh import Credentials

    credentials = Credentials(bytes(range(16)), b"\0\0\0\1", bytes(range(32)))
    async with node("udp://127.0.0.1:0", credentials=credentials, peers=[address]) as here:
        began = time.perf_counter()
        for number in range(count):
            if number % 16 == 0 and (ahead := number / MESH_RATE - (time.perf_counter() - began)) > 0:
                await asyncio.sleep(ahead)
            await here.publish(NAME, BODY)
        await asyncio.Event().wait()


async def wolpertinger_receiver(_: str, count: int) -> None:
    from wirelake.peers.wolpertinger import method, serve

    watch = Stopwatch(count)

    class Sink:
        @method(trust=0)
        def Take(self, body: str) -> None:  # noqa: N802, ARG002 - a name of the protocol; what comes is only counted
            watch.take()

    async with serve("tcp://127.0.0.1:0", Sink) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


async def wolpertinger_sender(address: str, count: int) -> None:
    from wirelake.peers.wolpertinger import connect

    text = BODY.decode()
    async with connect(address) as peer:
        take = peer.Sink.Take

        async def tell(calls: int) -> None:
            for _ in range(calls):
                await take.tell(text)

        async with asyncio.TaskGroup() as group:
            for number in range(IN_FLIGHT):
                group.create_task(tell(count // IN_FLIGHT + (number < count % IN_FLIGHT)))
        await asyncio.Event().wait()


def _trust() -> object:
    from wirelake.protocols.event_mesh import Key, TrustStore

    return TrustStore([Key(bytes(range(16)), b"\0\0\0\1", bytes(range(32)))])


# Rivals.


async def nats_receiver(address: str, count: int) -> None:
    import nats

    watch = Stopwatch(count)

    async def take(_message: object) -> None:
        watch.take()

    connection = await nats.connect(address)
    await connection.subscribe(NAME, cb=take, pending_msgs_limit=2 * count, pending_bytes_limit=1 << 31)
    await connection.flush()
    print(address, flush=True)
    await asyncio.Event().wait()


async def nats_sender(address: str, count: int) -> None:
    import nats

    connection = await nats.connect(address)
    for _ in range(count):
        await connection.publish(NAME, BODY)
    await connection.flush(timeout=60)
    await asyncio.Event().wait()


def zmq_receiver(_: str, count: int) -> None:
    import zmq

    watch = Stopwatch(count)
    with zmq.Context() as context, context.socket(zmq.PULL) as sock:
        sock.setsockopt(zmq.RCVHWM, 0)
        port = sock.bind_to_random_port("tcp://127.0.0.1")
        print(f"tcp://127.0.0.1:{port}", flush=True)
        for _ in range(count):
            sock.recv()
            watch.take()


def zmq_sender(address: str, count: int) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.PUSH) as sock:
        sock.connect(address)
        for _ in range(count):
            sock.send(BODY)
        time.sleep(PATIENCE)


def _zenoh(mode: str, address: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5(f"{mode}/endpoints", json.dumps([address]))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("mode", '"peer"')
    return zenoh.open(config)


def zenoh_receiver(_: str, count: int) -> None:
    watch, address = Stopwatch(count), f"tcp/127.0.0.1:{free_port()}"
    with _zenoh("listen", address) as session, session.declare_subscriber(NAME, lambda _sample: watch.take()):
        print(address, flush=True)
        while True:
            time.sleep(1)


def zenoh_sender(address: str, count: int) -> None:
    import zenoh

    with _zenoh("connect", address) as session:
        publisher = session.declare_publisher(NAME, congestion_control=zenoh.CongestionControl.BLOCK)
        while not publisher.matching_status.matching:
            time.sleep(0.01)
        for _ in range(count):
            publisher.put(BODY)
        time.sleep(PATIENCE)


OURS = ("emp", "yamp", "relink", "relink-many", "event_mesh", "wolpertinger")
ROLES: dict[str, Role] = {
    "emp-receiver": emp_receiver,
    "emp-sender": emp_sender,
    "yamp-receiver": yamp_receiver,
    "yamp-sender": yamp_sender,
    "relink-receiver": relink_receiver,
    "relink-sender": relink_sender,
    "relink-many-receiver": relink_many_receiver,
    "relink-many-sender": relink_many_sender,
    "event_mesh-receiver": event_mesh_receiver,
    "event_mesh-sender": event_mesh_sender,
    "wolpertinger-receiver": wolpertinger_receiver,
    "wolpertinger-sender": wolpertinger_sender,
    "nats-receiver": nats_receiver,
    "nats-sender": nats_sender,
    "zmq-receiver": zmq_receiver,
    "zmq-sender": zmq_sender,
    "zenoh-receiver": zenoh_receiver,
    "zenoh-sender": zenoh_sender,
}


def play(name: str, count: int) -> dict[str, float]:
    """One run, all processes fresh: messages a second, cold and warm."""
    with contextlib.ExitStack() as stack:
        through = stack.enter_context(broker()) if name == "nats" else "-"
        receiver = stack.enter_context(started(__file__, f"{name}-receiver", through, count))
        stack.enter_context(started(__file__, f"{name}-sender", told(receiver), count))
        return dict(json.loads(told(receiver)))


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    lacking = absent()
    names = [*OURS, *(one for one in ("nats", "zmq", "zenoh") if one not in lacking)]
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(QUICK_TURNS if quick else TURNS):
        for name in names:
            count = COUNTS.get(name, MESSAGES)
            rates[name].append(play(name, count // 2 // BATCH * BATCH if quick else count))
    found = {name: statistics.median(one["rate"] for one in seen) for name, seen in rates.items()}
    cold = {name: statistics.median(one["cold"] for one in seen) for name, seen in rates.items()}

    def figure(name: str, ours: str, rival: str = "", theirs: str = "", least: float | None = None) -> Figure:
        return Figure(table=TABLE, name=name, ours=found[ours], unit="/s", rival=rival, theirs=found.get(theirs), least=least)

    return [
        figure("EMP, send to on_data", "emp", "nats-py", "nats", 2),
        figure("YAMP, events to a handler", "yamp", "nats-py", "nats"),
        figure("Relink, one by one, consumed", "relink", "nats-py", "nats", 3),
        figure("Relink, post_many, consumed", "relink-many", "pyzmq", "zmq", 1),
        figure("Relink, post_many, consumed", "relink-many", "zenoh", "zenoh", 1),
        figure(f"Event Mesh, HMAC checked, at {MESH_RATE:,}/s", "event_mesh"),
        Figure(table=LOSS, name="Event Mesh, datagrams lost", ours=sum(one.get("lost", 0) for one in rates["event_mesh"]), unit="", most=0),
        figure("wolpertinger, calls without a response, confirmed", "wolpertinger"),
        *(Figure(table=COLD, name=f"{LABELS[name]}, cold", ours=cold[name], unit="/s") for name in OURS),
    ]


if __name__ == "__main__":
    main(run, __doc__, ROLES)

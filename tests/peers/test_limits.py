"""Each row of docs/limits.md is attacked: memory stays within 1.5 x the budget, and an honest client of the same host is served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.peers.limit_server import CONNECTION, DECIDED, DEMO, HOST
from tests.peers.raw import place
from tests.peers.world import HELLO, run

from wirelake.peers import emp, event_mesh, relink, wolpertinger, yamp
from wirelake.protocols.emp.messages import Data, RequestResponse
from wirelake.protocols.emp.wire import encode

SECONDS = 15.0
"""Of one attack, at most."""
STUCK = 0.15
"""Seconds after which a server counts as reading no more."""
MSGPACK = b"\0\0\1\7msgpack"
EMPTY_LISTS = b"\xdd" + struct.pack(">I", 40_000) + b"\x90" * 40_000
"""40 KB that become 2.9 MB."""
LARGE_LISTS = b"\xdd" + struct.pack(">I", 150_000) + b"\x90" * 150_000
"""150 KB that become 11 MB, in a thread."""
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def resident(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def ticks(pid):
    """Hundredths of a second that the process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@contextlib.asynccontextmanager
async def server(protocol):
    """A server process: its address and its id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.peers.limit_server", protocol, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.kill()
        await process.wait()


def say(address, pieces, *, reads=True):
    """Send pieces on a connection of its own until all are sent, or the server closes or reads no more; returns the socket."""
    line = socket.create_connection(place(address), timeout=STUCK)
    with contextlib.suppress(OSError):
        for piece in pieces:
            line.sendall(piece)
            if reads:
                line.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    line.recv(1 << 20)
                line.settimeout(STUCK)
    return line


def ask(number, body):
    return encode(Data(body, (RequestResponse(True, number),)))


def yamp_message(kind, number, uri, body):
    progressive = b"\0" if kind == 6 else b""
    return bytes((kind,)) + number.to_bytes(16) + bytes((len(uri),)) + uri + progressive + struct.pack(">I", len(body)) + body


def half_messages(address):
    return [say(address, [HELLO, (16_000_000).to_bytes(4) + b"\5\0\0\0", *[bytes(100_000)] * 60]) for _ in range(16)]


def waiting_bodies(address):
    return [say(address, [HELLO, *(ask(number, b"sleep" + bytes(200_000)) for number in range(1, 50))]) for _ in range(8)]


def small_requests(address):
    return [say(address, [HELLO, *(b"".join(ask(number * 1000 + one + 1, b"sleep") for one in range(1000)) for number in range(70))])]


def unread_answers(address):
    """The server has more to say than its peers read."""
    return [say(address, [HELLO, *(ask(number, b"much") for number in range(1, 12))], reads=False) for _ in range(20)]


def bodies_as_objects(address):
    return [say(address, [MSGPACK, *(yamp_message(6, number, b"sleep", EMPTY_LISTS) for number in range(20))]) for _ in range(8)]


def events_for_subscribers(address):
    return [say(address, [MSGPACK, *(yamp_message(5, number, b"news", EMPTY_LISTS) for number in range(20))]) for _ in range(5)]


def bodies_in_work(address):
    def connect(number):
        return say(address, [MSGPACK, yamp_message(6, number, b"sleep", LARGE_LISTS) + yamp_message(5, number, b"news", b"") * 3000])

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(connect, range(12)))


def half_frames(address):
    """The beginning of a frame of 16 MB: one binary message of a client."""
    frame = b"\x82\xff" + (16_000_000).to_bytes(8) + bytes(4)
    return [say(address, [UPGRADE, frame, *[bytes(100_000)] * 60]) for _ in range(16)]


def fragments(address):
    blob = b"A" * 100_000
    return [
        say(address, (b"fragment_index:%d;fragment_count:4000;message_id:%d;" % (index, index % 7) + blob + b"\n" for index in range(100)))
        for _ in range(10)
    ]


ATTACKS = {
    "half messages": ("emp", half_messages, HOST),
    "waiting bodies": ("emp", waiting_bodies, HOST),
    "small requests": ("emp", small_requests, HOST),
    "unread answers": ("emp", unread_answers, HOST),
    "bodies as objects": ("yamp", bodies_as_objects, HOST),
    "bodies in work": ("yamp", bodies_in_work, HOST),
    "half frames": ("yamp over WebSocket", half_frames, HOST),
    "events for subscribers": ("yamp", events_for_subscribers, HOST),
    "fragments": ("wolpertinger", fragments, HOST),
}


@contextlib.asynccontextmanager
async def honest_client(protocol, address):
    """A client of the same host: what it does once, and expects to be done."""
    if protocol == "emp":
        async with emp.connect(address) as peer:

            async def once():
                assert await peer.request(b"hello", timeout=10) == b"hello"

            yield once
    elif protocol.startswith("yamp"):
        async with yamp.connect(address) as peer:

            async def once():
                assert await peer.request("echo", "hello", timeout=10) == "hello"

            yield once
    elif protocol == "wolpertinger":
        async with wolpertinger.connect(address) as peer:

            async def once():
                assert await peer.call("Sample", "Echo", "hello", timeout=10) == "hello"

            yield once
    else:
        async with relink.connect(address, DEMO) as link:

            async def once():
                async with asyncio.timeout(10):
                    assert await (await link.channel(b"good").post(b"hello")) is relink.Outcome.CONSUMED

            yield once


async def attacked(protocol, address, pid, attack):
    """Attack, with an honest client beside; returns how much memory grew, and how often the client was served."""
    async with honest_client(protocol, address) as once:
        await once()
        before = most = resident(pid)
        served = 0
        attacking = asyncio.ensure_future(attack)
        async with asyncio.timeout(SECONDS * 2):
            while not attacking.done() or served < 3:
                await once()
                served += 1
                most = max(most, resident(pid))
                await asyncio.sleep(0.02)
        lines = await attacking
        quiet = 0
        async with asyncio.timeout(SECONDS):
            while quiet < 3:  # until all that was sent is taken
                before_this = ticks(pid)
                await asyncio.sleep(0.1)
                quiet = quiet + 1 if ticks(pid) - before_this <= 1 else 0
                most = max(most, resident(pid))
        await once()
    return lines, most - before, served


@pytest.mark.slow
@pytest.mark.parametrize("row", ATTACKS)
def test_memory_of_strangers_is_bounded_and_an_honest_client_is_served(row):
    protocol, attack, budget = ATTACKS[row]

    async def main():
        async with server(protocol) as (address, pid):
            lines, growth, served = await attacked(protocol, address, pid, asyncio.to_thread(attack, address))
            for line in lines:
                line.close()
            assert growth <= 1.5 * budget, f"{growth / budget:.2f} x the budget"
            assert served >= 3

    run(main)


async def transactions(address, *, is_cut):
    """Links whose messages are never decided; cut, they are kept without a connection."""
    options = relink.Options(close_timeout=0.05, linger=0.05)
    links = []
    for _ in range(6):
        connector = relink.connect(address, DECIDED, options=options, reconnect=None)
        link = await connector.__aenter__()
        links.append((connector, link))
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                for number in range(100):
                    await link.channel(b"%04d" % (number % 8)).post(bytes(120_000))
                await asyncio.sleep(0.1)
        if is_cut and link._carrier is not None:
            link._carrier.driver._stream.abort()
    return links


async def channels(address):
    """Channels that are opened with nothing in them, and never decided."""
    connector = relink.connect(address, DECIDED, options=relink.Options(close_timeout=0.05, linger=0.05), reconnect=None)
    link = await connector.__aenter__()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(8):
            for number in range(50_000):
                await link.channel(number.to_bytes(4)).post(b"")
    return [(connector, link)]


RELINK = {
    "undecided messages": lambda address: transactions(address, is_cut=False),
    "links without a connection": lambda address: transactions(address, is_cut=True),
    "channels": channels,
}


@pytest.mark.slow
@pytest.mark.parametrize("row", RELINK)
def test_memory_of_links_is_bounded_and_an_honest_link_lives(row):
    async def main():
        async with server("relink") as (address, pid):
            links, growth, served = await attacked("relink", address, pid, RELINK[row](address))
            for connector, link in links:
                link.abandon()
                with contextlib.suppress(Exception):
                    await connector.__aexit__(None, None, None)
            assert growth <= 1.5 * HOST, f"{growth / HOST:.2f} x the budget"
            assert served >= 3

    run(main)


@pytest.mark.slow
def test_events_that_no_subscriber_reads_are_bounded_in_memory():
    async def main():
        async with server("event-mesh") as (address, pid), event_mesh.node("udp://127.0.0.1:0", peers=[address]) as node:
            await node.publish("hello")
            await asyncio.sleep(0.2)
            before = resident(pid)
            for _ in range(8000):
                await node.publish("news", *[b"x"] * 50)
            await asyncio.sleep(0.3)
            growth = resident(pid) - before
            assert growth <= 1.5 * CONNECTION, f"{growth / CONNECTION:.2f} x the budget"

    run(main)

"""What a byte of a hostile body costs a server, and how long another client waits meanwhile.

Each case is one connection to `wirelake serve` with its default options. It sends bodies made to be dear: to read, or to decompress. CPU of
the server counts, up to its answer to what comes last. Decompressed bytes count as bytes, because they have a budget a second. Beside it
another client connects and asks, again and again.

Goals: 0.1 s of CPU a MB, or twice what as many of the smallest valid messages cost; another client is served within 0.2 s.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from figures import Figure, main

TABLE = "CPU of hostile bodies"
WAITS = "Another client beside hostile bodies"
CPU_GOAL = 0.1
"""Seconds a MB."""
TIMES_CHEAPEST = 2.0
WAIT_GOAL = 0.2
PATIENCE = 60.0
MIB = 1 << 20
CHEAPEST = "smallest messages"


class Case(NamedTuple):
    """Bodies of one kind."""

    protocol: str
    greeting: bytes
    frames: list[bytes]
    inflated: int
    """Bytes that all of them are decompressed to."""
    last: bytes
    """What is sent at the end, to be answered when all before it is done."""
    is_done: Callable[[bytes], bool]
    """Whether what the server said shows that."""


def yamp(body: bytes, count: int, serializer: bytes = b"json") -> Case:
    """So many events with this body."""
    greeting = b"\0\0\1" + bytes([len(serializer)]) + serializer
    frames = [b"\5" + number.to_bytes(16) + b"\1x" + len(body).to_bytes(4) + body for number in range(count)]
    return Case("yamp", greeting, frames, 0, b"\1\4done", lambda said: said.endswith(b"\2\4done"))


def emp(body: bytes, count: int, inflated: int = 0) -> Case:
    """So many messages with this body, compressed if it says what it inflates to."""
    block = bytes.fromhex("0000000c0100000001000000") if inflated else b""
    frame = struct.pack(">IBBH", 8 + len(block) + len(body), 5, 0x80 if block else 0, 0) + block + body
    ping, pong = (struct.pack(">IBBH", 8, kind, 0, 0) for kind in (EMP_PING, EMP_PONG))
    return Case("emp", EMP_HELLO, [frame] * count, inflated * count, ping, lambda said: said.endswith(pong))


EMP_HELLO = struct.pack(">IBBHBBH", 12, 0, 0, 0, 1, 0, 0)
EMP_PING, EMP_PONG = 2, 3


def wolpertinger(document: bytes, count: int) -> Case:
    """So many messages with this document, compressed if that makes them smaller."""
    packed = gzip.compress(document, mtime=0)
    is_packed = len(packed) < len(document) // 2
    payload = base64.b64encode(packed if is_packed else document)
    metadata = b"gzip:%d;" % len(packed) if is_packed else b""
    frames = [b"message_id:%d;%s%s\n" % (number, metadata, payload) for number in range(1, count + 1)]
    inflated = len(document) * count if is_packed else 0
    return Case("wolpertinger", b"", frames, inflated, b"", lambda said: said.count(b"result:") >= count)


def answer(inside: bytes, attributes: bytes = b"") -> bytes:
    """A response to no call: it is read, and needs no answer."""
    return (
        b'<RemoteMethodResponse xmlns="http://nerdcave.eu/wolpertinger"%s><ComponentName>Demo</ComponentName>'
        b"<CallId>9e5ec6ce-c6f0-4e8d-818c-000000000001</CallId><ResponseValue>%s</ResponseValue></RemoteMethodResponse>"
    ) % (attributes, inside)


def cases(share: int) -> dict[str, Case]:
    """All of them, each with a count divided by `share`; the smallest messages of each protocol first."""
    from wirelake.protocols.yamp.serializers.bounds import DEFAULT_BOUNDS

    items, keys = 999_000, DEFAULT_BOUNDS.max_integer_keys
    arrays = b"".join(b"\x92\xcf%s\xcf%s\xc0" % (number.to_bytes(8), number.to_bytes(8)) for number in range(16_000))
    integers = b"\xde" + keys.to_bytes(2) + b"".join(b"\xcf" + (number << 40).to_bytes(8) + b"\xc0" for number in range(keys))
    few, many = max(8 // share, 1), max(40 // share, 1)
    return {
        f"yamp: {CHEAPEST}": yamp(b"1", 40_000 // share),
        f"emp: {CHEAPEST}": emp(b"x", 40_000 // share),
        f"wolpertinger: {CHEAPEST}": wolpertinger(answer(b'<object type="int32">1</object>'), 20_000 // share),
        "yamp: JSON, 16 MiB of []": yamp(b"[" + b"[]," * (5 * MIB) + b"[]]", few),
        "yamp: JSON, a million []": yamp(b"[" + b"[]," * (items // 2) + b"[]]", many),
        "yamp: JSON, 256 deep": yamp(b"[" * 256 + b"]" * 256, 20_000 // share),
        "yamp: JSON, quotes without an end": yamp(b"[" * 300 + b'"\\' * 700_000, many),
        "yamp: JSON, 16 MiB of escapes": yamp(b'["' + b'\\"' * (8 * MIB - 8) + b'"]', few),
        "yamp: MessagePack, keys that are arrays": yamp(b"\xdf" + (16_000).to_bytes(4) + arrays, many, b"msgpack"),
        "yamp: MessagePack, integer keys": yamp(b"\xdc\0\x64" + integers * 100, many, b"msgpack"),
        "yamp: MessagePack, a million []": yamp(b"\xdd" + items.to_bytes(4) + b"\x90" * items, many, b"msgpack"),
        "yamp: CBOR, a million []": yamp(b"\x9a" + items.to_bytes(4) + b"\x80" * items, many, b"cbor"),
        "yamp: XML, attributes": yamp(b"<a " + b" ".join(b'b%d="1"' % number for number in range(900_000)) + b"/>", few, b"xml"),
        "yamp: XML, 100,000 elements": yamp(b"<a>" + b"<b/>" * 99_000 + b"</a>", many, b"xml"),
        "emp: 16 MiB of zeros in gzip": emp(gzip.compress(bytes(16 * MIB - 64), mtime=0), few, 16 * MIB - 64),
        "wolpertinger: 60 MiB of zeros in gzip": wolpertinger(bytes(60 * MIB), max(few // 4, 1)),
        "wolpertinger: 30,000 elements in gzip": wolpertinger(answer(b'<object type="int32">1</object>' * 30_000), many // 2),
        "wolpertinger: 60,000 attributes in gzip": wolpertinger(
            answer(b"", b"".join(b' a%d="x"' % number for number in range(60_000))), many // 2
        ),
    }


@contextmanager
def server(protocol: str) -> Iterator[tuple[int, str]]:
    """`wirelake serve`: its process and its address."""
    command = [sys.executable, "-m", "wirelake", "serve", protocol, "tcp://127.0.0.1:0", "-q"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            words = (word for line in process.stderr for word in line.split())
            yield process.pid, next(word for word in words if "://" in word).rstrip(";,.")
        finally:
            process.kill()


def cpu(process: int) -> float:
    """Seconds of CPU of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(protocol: str, address: str) -> float:
    """Seconds that another client takes to connect and get an answer."""
    from wirelake.peers import emp, wolpertinger, yamp

    began = time.perf_counter()
    async with asyncio.timeout(PATIENCE):
        peer: Any
        if protocol == "emp":
            async with emp.connect(address) as peer:
                await peer.request(b"hello", timeout=PATIENCE)
        elif protocol == "yamp":
            async with yamp.connect(address, options=yamp.Options(handshake_timeout=PATIENCE)) as peer:
                await peer.request("echo", "hello", timeout=PATIENCE)
        else:
            async with wolpertinger.connect(address) as peer:
                await peer.Demo.Add(1, 2)
    return time.perf_counter() - began


async def attack(case: Case, address: str) -> None:
    """Send all frames, and wait until the server has done them."""
    host, port = address.partition("://")[2].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    said = b""

    async def read() -> None:
        nonlocal said
        while not case.is_done(said) and (data := await reader.read(MIB)):
            said = (said + data) if case.protocol == "wolpertinger" else data[-64:]

    reading = asyncio.ensure_future(read())
    writer.write(case.greeting)
    for frame in case.frames:
        writer.write(frame)
        await writer.drain()
    writer.write(case.last)
    await reading
    writer.close()
    if not case.is_done(said):
        raise SystemExit(f"{case.protocol}: the server closed the connection")


async def measured(case: Case) -> tuple[float, float]:
    """Seconds of CPU of the server, and the longest that another client waited."""
    with server(case.protocol) as (process, address):
        for _ in range(3):
            await ask(case.protocol, address)
        before = cpu(process)
        attacking = asyncio.ensure_future(attack(case, address))
        longest = 0.0
        while not attacking.done():
            longest = max(longest, await ask(case.protocol, address))
            await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE):
            await attacking
        return cpu(process) - before, longest


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    import uvloop

    figures: list[Figure] = []
    cheapest: dict[str, float] = {}
    for name, case in cases(4 if quick else 1).items():
        seconds, wait = uvloop.run(measured(case))
        size = (sum(map(len, case.frames)) + case.inflated) / 1e6
        if name.endswith(CHEAPEST):
            cheapest[case.protocol] = seconds / len(case.frames)
        least = TIMES_CHEAPEST * cheapest[case.protocol] * len(case.frames)
        goal = max(CPU_GOAL, least / size)
        figures.append(Figure(table=TABLE, name=f"{name}: CPU a MB", ours=seconds / size, unit="s", most=goal))
        figures.append(Figure(table=WAITS, name=f"{name}: wait", ours=wait, unit="s", most=WAIT_GOAL))
    return figures


if __name__ == "__main__":
    main(run, __doc__)

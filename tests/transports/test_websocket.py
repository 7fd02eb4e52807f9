"""WebSockets as streams: whole messages out, bytes in, however frames are cut; the closing handshake; what is refused."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.peers.world import run
from websockets.frames import Frame, Opcode, apply_mask

from wirelake.errors import UsageError
from wirelake.transports import frames, websocket
from wirelake.transports.address import Target
from wirelake.transports.memory import HIGH, pair
from wirelake.transports.stream import MessageStream

TARGET = Target("ws", "example.org", 80, "/path?x=1")


# Frames.

SIZES = st.sampled_from((0, 1, 5, 124, 125, 126, 127, 128, 300, 65_535))


@examples(150)
@given(st.lists(SIZES, max_size=6), st.booleans(), st.integers(0, 200_000))
def test_frames_are_those_of_the_library(sizes, masked, cut):
    messages = [bytes((number,)) * size for number, size in enumerate(sizes)]
    ours = [frames.write(message, b"mask" if masked else b"", apply_mask) for message in messages]
    for message, frame in zip(messages, ours, strict=True):
        expected = Frame(Opcode.BINARY, message).serialize(mask=masked)
        assert len(frame) == len(expected)
        assert frame[: len(frame) - len(message) - 4 * masked] == expected[: len(frame) - len(message) - 4 * masked]
    whole = b"".join(ours)
    assert frames.read(whole, masked, apply_mask) == (messages, len(whole), False)
    found, at, is_simple = frames.read(whole[:cut], masked, apply_mask)
    assert found == messages[: len(found)]
    assert at == sum(map(len, ours[: len(found)]))
    left = min(cut, len(whole)) - at
    assert is_simple is (left > 0)


@pytest.mark.parametrize(
    "other",
    [
        b"\x81\x01x",
        b"\x02\x01x",
        b"\x80\x01x",
        b"\x88\x00",
        b"\x89\x00",
        b"\xc2\x01x",
        b"\x82\x81maskx",
        b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00",
    ],
)
def test_everything_else_is_left_to_the_library(other):
    assert frames.read(b"\x82\x01a" + other, False, apply_mask) == ([b"a"], 3, False)


# Streams.


async def both(cut=None, **options):
    one, two = pair(cut)
    async with asyncio.TaskGroup() as group:
        client = group.create_task(websocket.connect(one, TARGET, **options))
        server = group.create_task(websocket.accept(two, "ws", **options))
    return client.result(), server.result(), one, two


async def take(stream, size):
    data = b""
    while len(data) < size:
        piece = await stream.receive()
        assert piece
        data += piece
    return data


@pytest.mark.parametrize("cut", [None, 1, 3, 1000])
def test_bytes_arrive_whatever_the_cut(cut):
    async def main():
        client, server, *_ = await both(cut)
        sizes = [1, 125, 126, 200] if cut == 1 else [1, 125, 126, 65_535, 65_536, 200_000]
        for one, other in ((client, server), (server, client)):
            messages = [os.urandom(size) for size in sizes]
            one.send_messages(messages)
            one.send(b"last")
            assert await take(other, sum(sizes) + 4) == b"".join(messages) + b"last"
        await client.close()
        assert await server.receive() == b""
        await server.close()

    run(main)


def test_a_stream_keeps_messages_apart():
    async def main():
        client, server, one, two = await both()
        assert isinstance(client, MessageStream)
        assert not isinstance(one, MessageStream)
        client.send_messages([b"a", b"bc", b""])
        frames_seen = bytes(two._incoming)
        assert [frames_seen[0], frames_seen[7], frames_seen[15]] == [0x82] * 3
        assert (client.kind, client.local, client.remote) == ("ws", one.local, one.remote)
        assert (client.congested, client.unsent) == (False, len(frames_seen))
        await client.drain()
        assert await server.receive() == b"abc"
        await client.close()
        await server.close()

    run(main)


def test_large_messages_are_fragmented():
    async def main():
        client, server, _, two = await both()
        client.send(bytes(200_000))
        seen, at, heads = bytes(two._incoming), 0, []
        while at < len(seen):
            heads.append(seen[at])
            size = seen[at + 1] & 0x7F
            at += 2 + 4 + (size if size < 126 else 2 + int.from_bytes(seen[at + 2 : at + 4]))
        assert heads == [0x02, 0x00, 0x00, 0x80]
        assert await take(server, 200_000) == bytes(200_000)
        await client.close()
        await server.close()

    run(main)


@pytest.mark.parametrize("size", [websocket.FRAGMENT, websocket.FRAGMENT + 1, 2 * websocket.FRAGMENT, 2 * websocket.FRAGMENT + 1])
def test_a_message_ends_with_its_last_fragment(size):
    """One that fills its fragments exactly has no empty one behind them."""

    async def main():
        client, server, _, _ = await both()
        client.send(bytes(size))
        client.send(b"next")
        async with asyncio.timeout(10):
            assert len(await take(server, size + 4)) == size + 4
        for stream in (client, server):
            await stream.close()

    run(main)


def test_frames_of_all_kinds_among_each_other():
    async def main():
        client, server, one, _ = await both()
        raw = b"".join(
            [
                Frame(Opcode.BINARY, b"a").serialize(mask=True),
                Frame(Opcode.PING, b"p").serialize(mask=True),
                Frame(Opcode.BINARY, b"b", fin=False).serialize(mask=True),
                Frame(Opcode.PONG, b"").serialize(mask=True),
                Frame(Opcode.CONT, b"c", fin=False).serialize(mask=True),
                Frame(Opcode.CONT, b"d").serialize(mask=True),
                Frame(Opcode.BINARY, b"").serialize(mask=True),
                Frame(Opcode.BINARY, b"e").serialize(mask=True),
            ]
        )
        for size in (1, 2, 5, len(raw)):
            for at in range(0, len(raw), size):
                one.send(raw[at : at + size])
                await asyncio.sleep(0)
            assert await take(server, 5) == b"abcde"
            assert bytes(one._incoming) == Frame(Opcode.PONG, b"p").serialize(mask=False)
            one._incoming.clear()
        await client.close()
        await server.close()

    run(main)


@pytest.mark.parametrize("is_server", [True, False])
def test_a_frame_cut_anywhere_is_one_though_its_bytes_look_like_another(is_server):
    """The library has read a head and waits: what follows, a mask or a payload, is no head."""
    looks = b"\x82\x81\x82\x80" if is_server else b""
    payload = apply_mask(b"\x82\x01abcde", looks) if is_server else b"\x82\x01abcde"
    flag = 0x80 if is_server else 0
    raw = bytes((0x02, flag | len(payload))) + looks + payload + bytes((0x80, flag)) + looks

    async def main():
        client, server, one, two = await both()
        reader, writer = (server, one) if is_server else (client, two)
        for cut in range(len(raw)):
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                reading = group.create_task(take(reader, 7))
                for piece in (raw[:cut], raw[cut:]):
                    writer.send(piece)
                    for _ in range(3):
                        await asyncio.sleep(0)
            assert reading.result() == b"\x82\x01abcde", cut
        await client.close()
        await server.close()

    run(main)


@pytest.mark.parametrize("cut", [None, 1])
def test_a_refusal_with_a_body_is_told_at_once(cut):
    async def main():
        one, two = pair(cut)
        two.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        with pytest.raises(OSError, match="403"):
            await asyncio.wait_for(websocket.connect(one, TARGET), 5)

    run(main)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (Frame(Opcode.TEXT, b"text").serialize(mask=True), 1003),
        (Frame(Opcode.BINARY, b"x").serialize(mask=False), 1002),
        (b"\x83\x80mask", 1002),
        (b"\xc2\x81maskx", 1002),
        (b"\x82\xff" + (2000).to_bytes(8) + b"mask", 1009),
        (b"\x82\xfe" + (2000).to_bytes(2) + b"mask" + bytes(2000), None),
    ],
    ids=["text", "not masked", "reserved opcode", "reserved bits", "too long", "long, and handed on in pieces"],
)
def test_what_is_refused_ends_the_connection_with_its_code(said, code):
    async def main():
        client, server, one, _ = await both(max_frame=1000)
        one.send(Frame(Opcode.BINARY, b"before").serialize(mask=True) + said)
        assert (await server.receive())[:6] == b"before"
        if code is not None:
            assert await server.receive() == b""
            close = bytes(one._incoming)
            assert (close[0], int.from_bytes(close[2:4])) == (0x88, code)
            server.send(b"nobody hears this")
            assert bytes(one._incoming) == close
        await client.close()
        await server.close()

    run(main)


def test_a_message_inside_another_is_refused_wherever_the_stream_is_cut():
    async def main():
        client, server, one, _ = await both()
        one.send(Frame(Opcode.BINARY, b"a", fin=False).serialize(mask=True))
        assert await server.receive() == b"a"
        one.send(Frame(Opcode.BINARY, b"b").serialize(mask=True))
        assert await server.receive() == b""
        assert int.from_bytes(bytes(one._incoming)[2:4]) == 1002
        await client.close()
        await server.close()

    run(main)


def test_the_closing_handshake():
    async def main():
        client, server, *_ = await both()
        client.send(b"last word")
        client.finish()
        client.finish()
        client.send(b"too late")
        assert await server.receive() == b"last word"
        assert await server.receive() == b""
        assert await server.receive() == b""
        assert await client.receive() == b""
        assert (client._protocol.close_rcvd.code, server._protocol.close_rcvd.code) == (1000, 1000)
        await server.close()
        await client.close()

    run(main)


def test_a_connection_that_breaks():
    async def main():
        client, server, *_ = await both()
        client.abort()
        with pytest.raises(ConnectionResetError):
            await server.receive()
        client, _, _, two = await both()
        two.finish()
        assert await client.receive() == b""

    run(main)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        (b"\x00\x00\x01\x04json\r\n", "valid HTTP response"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", "Accept"),
        (b"", "no WebSocket"),
    ],
)
def test_a_server_that_is_none(said, told):
    async def main():
        one, two = pair()
        two.send(said)
        if not said:
            two.finish()
        with pytest.raises(OSError, match=told):
            await websocket.connect(one, TARGET)
        request = bytes(two._incoming).decode()
        assert request.startswith("GET /path?x=1 HTTP/1.1\r\n") or not request
        assert "Origin: http://example.org" in request or not request

    run(main)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"4"),
        (b"\x00\x00\x01\x04json\r\n", b""),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n", b"431"),
    ],
)
def test_a_client_that_is_none(said, status):
    async def main():
        one, two = pair()
        one.send(said)
        with pytest.raises(OSError, match="no WebSocket"):
            await websocket.accept(two, "ws")
        assert bytes(one._incoming)[9:].startswith(status)

    run(main)


def test_silence_is_no_handshake(monkeypatch):
    async def main():
        monkeypatch.setattr(websocket, "HANDSHAKE_TIMEOUT", 0.01)
        one, two = pair()
        with pytest.raises(OSError, match=r"no WebSocket handshake in 0\.01 s"):
            await websocket.accept(two, "ws")
        with pytest.raises(ConnectionResetError):
            await one.receive()

    run(main)


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "websockets.uri", None)

    async def main():
        one, _ = pair()
        with pytest.raises(UsageError, match=r"pip install 'wirelake\[websocket\]'"):
            await websocket.connect(one, TARGET)

    run(main)


# Pings.


def pings(first, count, size=125):
    return b"".join(Frame(Opcode.PING, b"%0*d" % (size, number)).serialize(mask=True) for number in range(first, first + count))


def test_a_peer_that_sends_pings_and_does_not_read_fills_no_memory():
    async def main():
        _, server, one, _ = await both(cut=131)  # each ping arrives alone
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(server.receive())
            for round_ in range(40):
                one.send(pings(round_ * 250, 250))
                while one.unsent:
                    await asyncio.sleep(0)
            unread = len(one._incoming)
            one._incoming.clear()  # now the peer reads
            while not one._incoming:
                await asyncio.sleep(0.005)
            newest = bytes(one._incoming)
            reading.cancel()
        assert HIGH < unread <= HIGH + 2 * 127  # of 1.3 MB
        assert newest == Frame(Opcode.PONG, b"%0125d" % 9999).serialize(mask=False)

    run(main)


def test_of_pings_that_arrive_together_the_newest_is_answered():
    async def main():
        _, server, one, _ = await both()
        one.send(pings(0, 100, size=3) + Frame(Opcode.BINARY, b"x").serialize(mask=True))
        assert await server.receive() == b"x"
        assert bytes(one._incoming) == Frame(Opcode.PONG, b"099").serialize(mask=False)

    run(main)


# Web pages.


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        ("http://example.org", True),
        ("https://EXAMPLE.org:8443", True),
        ("https://listed.example", True),
        ("https://listed.example:444", False),
        ("http://evil.example", False),
        ("http://example.org.evil.example", False),
        ("http://example.org@evil.example", False),
        ("http://[", False),
        ("null", False),
        ("", False),
        (None, True),
    ],
)
def test_a_page_of_another_host_may_not_connect(origin, may):
    async def main():
        one, two = pair()
        header = "" if origin is None else f"Origin: {origin}\r\n"
        head = "GET / HTTP/1.1\r\nHost: example.org:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        one.send(f"{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{header}\r\n".encode())
        if may:
            await websocket.accept(two, "ws", origins=("https://listed.example",))
        else:
            with pytest.raises(OSError, match="may not connect: list it in `origins`"):
                await websocket.accept(two, "ws", origins=("https://listed.example",))
        assert (await one.receive()).startswith(b"HTTP/1.1 101 " if may else b"HTTP/1.1 403 ")

    run(main)

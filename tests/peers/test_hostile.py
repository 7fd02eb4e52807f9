"""Hostile peers over real sockets: each hears what it did wrong, costs little, and the next client is served as if nothing had been."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import struct
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from tests.peers.raw import place
from tests.peers.world import ANY, HELLO, PING, QUIET, Raw, error_of, log_of, quick, raw_client, raw_server, run, until

from wirelake.errors import ConnectFailed, PeerError, RemoteProtocolError
from wirelake.peers.admission import ServerLimits
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.messages import Compression, Data, Hello, OtherExtension, RequestResponse
from wirelake.protocols.emp.wire import encode

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "emp.json").read_text())
REJECTED = [vector for vector in VECTORS if vector["expect"] == "reject"]
LIVE = msgspec.structs.replace(QUIET, on_request=lambda _peer, request: request.body, linger=0.2, answers_other_versions=True)


async def still_serves(address: str) -> None:
    async with connect(address) as peer:
        assert await peer.request(b"next, please") == b"next, please"


@pytest.mark.parametrize("vector", REJECTED, ids=lambda vector: vector["name"])
def test_every_rejected_vector_is_answered_as_it_says_and_the_server_lives_on(vector):
    wanted = vector["reject"]
    raw_bytes = bytes.fromhex(vector["hex"])

    async def main():
        async with serve(ANY, options=LIVE) as server:
            async with raw_client(server.address) as raw:
                if wanted.get("in") != "handshake":
                    await raw.say(HELLO)
                await raw.say(raw_bytes)
                if wanted["error_code"] is None:  # EMP-22: an error is never answered
                    assert await raw.hear_rest() == [Hello()]
                else:
                    error = await error_of(raw)
                    assert error.error_code == wanted["error_code"]
                    assert error.extension_id == wanted.get("extension_id", 0)
                    assert error.message.startswith("EMP-")
            await still_serves(server.address)

    run(main)


@pytest.mark.parametrize("vector", REJECTED, ids=lambda vector: vector["name"])
def test_every_rejected_vector_is_answered_by_a_client_too(vector):
    wanted = vector["reject"]
    raw_bytes = bytes.fromhex(vector["hex"])

    async def main():
        heard = []

        async def talk(raw: Raw) -> None:
            await raw.say((b"" if wanted.get("in") == "handshake" else HELLO) + raw_bytes)
            heard.extend(await raw.hear_rest())

        async with raw_server(talk) as address:
            with pytest.raises((ConnectFailed, RemoteProtocolError, PeerError)):
                async with connect(address, options=LIVE) as peer:
                    await anext(peer)
            await until(lambda: heard)
        assert heard[0] == Hello()
        assert [message.error_code for message in heard[1:]] == ([] if wanted["error_code"] is None else [wanted["error_code"]])

    run(main)


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "tls": bytes.fromhex("16030100a5010000a10303"),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_instead_of_a_hello_is_a_protocol_error(name):
    async def main():
        async with serve(ANY, options=LIVE) as server:
            async with raw_client(server.address) as raw:
                await raw.say(GARBAGE[name])
                assert (await error_of(raw)).error_code == 3
            await still_serves(server.address)

    run(main)


def test_an_announced_size_of_4_gib_is_refused_before_anything_is_kept():  # EMP-35
    async def main():
        async with serve(ANY, options=LIVE) as server:
            async with raw_client(server.address) as raw:
                await raw.say(HELLO, b"\xff\xff\xff\xff")
                error = await error_of(raw)
                assert (error.error_code, "EMP-35" in error.message) == (3, True)
            await still_serves(server.address)

    run(main)


def test_a_gzip_bomb_is_refused_before_it_unfolds():  # EMP-37
    bomb = gzip.compress(bytes(64 << 20), 9)
    assert len(bomb) < 100_000

    async def main():
        options = Options(ping_interval=None, max_body_size=1 << 20, linger=0.2, answers_other_versions=True)
        async with serve(ANY, options=options, on_request=LIVE.on_request) as server:
            tracemalloc.start()
            async with raw_client(server.address) as raw:
                await raw.say(HELLO, Data(bomb, (Compression(1),)))
                error = await error_of(raw)
                assert (error.error_code, error.extension_id, error.extension_error_code) == (4, 1, 4)
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert most < 8 << 20
            await still_serves(server.address)

    run(main)


@pytest.mark.parametrize(
    ("said", "code", "extension"),
    [
        (Data(b"", (RequestResponse(True, 0),)), 4, 0),  # EMP-12
        (Data(b"", (OtherExtension(77, b""),)), 4, 77),  # EMP-9
        (Data(b"", (RequestResponse(False, 5),)), 3, 0),  # EMP-16
        (HELLO, 3, 0),  # EMP-25
        (b"\x00\x00\x00\x08\x80\x00\x00\x00", 3, 0),  # EMP-24
        (b"\x00\x00\x00\x08\x06\x00\x00\x00", 3, 0),  # EMP-24
    ],
)
def test_broken_rules_after_the_handshake(said, code, extension):
    async def main():
        async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, said)
            error = await error_of(raw)
            assert (error.error_code, error.extension_id) == (code, extension)

    run(main)


def test_the_same_identifier_twice_in_flight_is_an_error():  # EMP-18
    async def never(_peer, _request):
        await asyncio.Event().wait()

    async def main():
        async with serve(ANY, options=msgspec.structs.replace(QUIET, on_request=never)) as server, raw_client(server.address) as raw:
            request = Data(b"", (RequestResponse(True, 1),))
            await raw.say(HELLO, request, request)
            assert "EMP-18" in (await error_of(raw)).message

    run(main)


def test_data_before_the_hello_is_an_error():  # EMP-26
    async def main():
        for said in (Data(b""), PING):
            async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
                await raw.say(said)
                assert "EMP-26" in (await error_of(raw)).message

    run(main)


def test_one_byte_at_a_time_is_slow_but_understood():
    async def main():
        async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
            for byte in HELLO + encode(Data(b"slow", (RequestResponse(True, 1),))):
                await raw.say(bytes([byte]))
                await asyncio.sleep(0)
            assert await raw.hear() == Hello()
            assert (await raw.hear()).body == b"slow"

    run(main)


@pytest.mark.slow
@pytest.mark.parametrize("greeted", [False, True])
def test_who_dribbles_for_ever_is_left(greeted):  # EMP-29, EMP-32
    """Slow-loris: always a byte more, never a whole message."""

    async def main():
        options = Options(handshake_timeout=0.2, ping_interval=0.1, pong_timeout=0.2)
        options = msgspec.structs.replace(options, on_request=LIVE.on_request, linger=0.2, answers_other_versions=True)
        async with serve(ANY, options=options) as server:
            async with raw_client(server.address) as raw, asyncio.TaskGroup() as group:
                dribbling = group.create_task(dribble(raw))
                error = await error_of(raw)
                dribbling.cancel()
                assert (error.error_code, ("EMP-32" if greeted else "EMP-29") in error.message) == (2, True)
            await still_serves(server.address)

    async def dribble(raw: Raw) -> None:
        await raw.say(HELLO if greeted else b"", b"\x00\x10\x00\x00\x05\x00\x00\x00")
        with contextlib.suppress(ConnectionError):
            while True:
                await raw.say(b"x")
                await asyncio.sleep(0.01)

    run(main)


def test_a_flood_of_connections_stops_at_the_limit_and_leaves_room_afterwards():
    async def main():
        with log_of("wirelake.server") as lines:
            async with serve(ANY, options=LIVE, limits=ServerLimits(max_connections=20)) as server:
                async with contextlib.AsyncExitStack() as stack:
                    good = [await stack.enter_async_context(raw_client(server.address)) for _ in range(20)]
                    for raw in good:
                        await raw.greet()
                    socks = [stack.enter_context(socket.create_connection(place(server.address))) for _ in range(100)]
                    loop = asyncio.get_running_loop()
                    for sock in socks:
                        sock.setblocking(False)
                        with contextlib.suppress(ConnectionError):
                            assert await loop.sock_recv(sock, 100) == b""
                    assert server.accepted == len(server.peers) == 20
                    await good[0].say(Data(b"x", (RequestResponse(True, 1),)))
                    assert (await good[0].hear()).body == b"x"
                await until(lambda: not server.peers)
                await still_serves(server.address)
            assert len(lines) == 100

    run(main)


def test_connections_that_come_all_at_once_count_from_the_first_moment():
    async def main():
        async with serve(ANY, options=LIVE, limits=ServerLimits(max_connections=5)) as server, contextlib.AsyncExitStack() as stack:
            for _ in range(50):
                stack.enter_context(socket.create_connection(place(server.address)))
            await until(lambda: server.accepted)
            for _ in range(20):
                await asyncio.sleep(0)
                assert len(server.peers) <= 5
            assert server.accepted == 5

    run(main)


def test_resets_at_every_moment_are_survived():
    async def main():
        async with serve(ANY, options=LIVE) as server:
            hello = HELLO + encode(Data(bytes(5000), (RequestResponse(True, 1),)))
            for size in (0, 1, 4, 11, 12, 13, 16, 40, 1000, len(hello)):
                sock = socket.create_connection(place(server.address))
                sock.sendall(hello[:size])
                await asyncio.sleep(0.002)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            await until(lambda: not server.peers)
            await still_serves(server.address)

    with quick(15):
        run(main)


def test_thousands_of_tiny_messages_in_one_go_are_all_read():
    async def main():
        seen = 0

        def count(_peer, _message):
            nonlocal seen
            seen += 1

        options = msgspec.structs.replace(QUIET, on_data=count)
        async with serve(ANY, options=options) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, encode(Data(b"")) * 5_000)
            await until(lambda: seen == 5_000)

    run(main)

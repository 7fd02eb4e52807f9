"""The same session over every transport: events, requests, progress, cancellation, close."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import uvloop
from tests.peers.world import run, until
from tests.peers.yamp.world import demo, two_peers

from wirelake.errors import ConnectFailed, LocalProtocolError, RequestCancelled, RequestFailed, SessionClosed, UsageError
from wirelake.peers.yamp import Options, Service, connect, serve
from wirelake.protocols.yamp.faults import Fault


async def converse(server_service, heard, peer, other):
    """A bit of everything, both ways."""
    assert await peer.request("echo", {"a": [1, None, "é"]}) == {"a": [1, None, "é"]}
    assert await peer.request("sum", [1, 2, 3]) == 6
    ask = await peer.ask("sum", [1, 2, 3])
    assert [step async for step in ask] == [1, 3, 6]
    assert await ask.answer() == 6
    with pytest.raises(RequestFailed) as failed:
        await peer.request("nothing.here")
    assert failed.value.body == "unknown uri 'nothing.here'"
    assert await other.request("client.name") == "me"
    for number in range(20):
        await peer.send(f"news.{number}", number)
    await until(lambda: len(heard) == 20)
    assert heard == list(range(20))
    waiting = await peer.ask("wait")
    assert [await anext(waiting)] == ["begun"]
    assert waiting.cancel()
    with pytest.raises(RequestCancelled):
        await waiting.answer()
    assert 0 <= await peer.ping() < 10
    assert 0 <= await other.ping() < 10


def services():
    heard = []
    service = demo()
    service.on("news.*", lambda _, event: heard.append(event.body))

    @service.request("wait")
    async def wait(_, call):
        await call.progress("begun")
        await asyncio.Event().wait()

    mine = Service()
    mine.request("client.name", lambda *_: "me")
    return service, mine, heard


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_a_session_over_every_transport(way, factory, serializer):
    async def main():
        service, mine, heard = services()
        options = Options(serializer=serializer)
        async with (
            serve(way.address, service, tls=way.server) as server,
            connect(server.address, mine, options=options, tls=way.client) as peer,
        ):
            await until(lambda: server.peers)
            (other,) = server.peers
            await other.opened()
            assert server.address.partition(":")[0] == way.address.partition(":")[0] == peer.stream.kind == other.stream.kind
            assert peer.serializer == other.serializer == serializer
            await converse(service, heard, peer, other)
            peer.close("that is all")
            assert str(await other.over()) == "the peer closed the session: that is all"
            with pytest.raises(SessionClosed, match="this side closed the session: that is all"):
                await peer.request("echo")

    run(main, loop_factory=factory)


def test_a_session_in_memory():
    async def main():
        service, mine, heard = services()
        async with two_peers(Options(service=mine), Options(service=service), cut=7) as (peer, other):
            await converse(service, heard, peer, other)

    run(main)


def test_large_bodies(way):
    async def main():
        async with serve(way.address, demo(), tls=way.server) as server, connect(server.address, tls=way.client) as peer:
            if peer.stream.kind == "udp":
                assert await peer.request("echo", "x" * 65_000) == "x" * 65_000
                with pytest.raises(LocalProtocolError) as caught:
                    await peer.request("echo", "x" * 66_000)
                assert caught.value.fault is Fault.DATAGRAM_TOO_LARGE
                return
            for size in (125, 126, 127, 65_400, 65_535, 65_536, 65_537, 131_070, 3_000_000):
                assert await peer.request("echo", "x" * size) == "x" * size
            with pytest.raises(LocalProtocolError) as caught:
                await peer.request("echo", "x" * 17_000_000)
            assert caught.value.fault is Fault.BODY_OVER_LIMIT

    run(main)


def test_many_at_the_same_time(way):
    async def main():
        async with serve(way.address, demo(), tls=way.server) as server, connect(server.address, tls=way.client) as peer:
            answers = await asyncio.gather(*(peer.request("sum", [number, 1]) for number in range(200)))
            assert answers == [number + 1 for number in range(200)]

    run(main)


def test_a_server_that_leaves_says_so(way):
    async def main():
        async with serve(way.address, demo(), tls=way.server) as server:
            client = connect(server.address, tls=way.client)
            peer = await client.__aenter__()
        assert str(await peer.over()) == "the peer closed the session: the server is shutting down"
        await client.__aexit__(None, None, None)

    run(main)


def test_nobody_there(way):
    async def main():
        async with serve(way.address, tls=way.server) as server:
            address = server.address
        options = Options(handshake_timeout=0.3)
        with pytest.raises(ConnectFailed) as caught:
            async with connect(address, tls=way.client, options=options):
                pass
        assert address in str(caught.value)

    run(main)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tcp://127.0.0.1", "names no port"),
        ("ws://localhost/path", "names no port"),
        ("http://localhost:1", "not one of tcp, tls, ws, wss, unix, udp"),
        ("unix:", "unix:///path"),
        ("tcp://localhost:1/path", "host:port"),
    ],
)
def test_addresses_that_are_none(address, told):
    for make in (connect, serve):
        with pytest.raises(UsageError, match=told):
            make(address)


def test_tls_where_it_belongs(contexts):
    server, client = contexts
    for address in ("tcp://a:1", "ws://a:1", "unix:///a", "udp://a:1"):
        with pytest.raises(UsageError, match="TLS"):
            serve(address, tls=server)
        with pytest.raises(UsageError, match="TLS"):
            connect(address, tls=client)
    for address in ("tls://a:1", "wss://a:1"):
        with pytest.raises(UsageError, match="TLS"):
            serve(address)


LEAN = """
import asyncio, sys
from wirelake.peers.yamp import Service, connect, serve

async def main():
    service = Service()
    service.request("echo", lambda peer, call: call.body)
    async with serve("tcp://127.0.0.1:0", service) as server, connect(server.address) as peer:
        assert await peer.request("echo", 1) == 1

asyncio.run(main())
heavy = {"numpy", "numba", "pyarrow", "pyspark", "websockets", "bson", "cbor2", "lxml", "google", "xmltodict"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_nobody_pays_for_libraries_they_do_not_use():
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_server_takes_pages_of_the_origins_it_was_given():
    async def main():
        options = Options(origins=("https://listed.example",))
        async with serve("ws://127.0.0.1:0", options=options) as server:
            for origin, status in (("https://listed.example", b"101"), ("https://other.example", b"403"), ("http://127.0.0.1", b"101")):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.target.port)
                head = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                writer.write(f"{head}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nOrigin: {origin}\r\n\r\n".encode())
                assert (await reader.readline()).split()[1] == status
                writer.close()
                await writer.wait_closed()

    run(main)

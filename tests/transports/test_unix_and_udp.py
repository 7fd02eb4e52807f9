"""Unix sockets and datagrams behind the interface of a stream, and addresses of every scheme."""

from __future__ import annotations

import asyncio
import socket
import stat

import pytest
import uvloop
from tests.peers.world import run, until

from wirelake.errors import UsageError
from wirelake.transports import reach, udp_stream, unix
from wirelake.transports.address import Target, parse
from wirelake.transports.stream import MessageStream

# Unix sockets.


@pytest.mark.parametrize("factory", [None, uvloop.new_event_loop])
def test_bytes_over_a_path(tmp_path, factory):
    async def main():
        path, arrived = str(tmp_path / "a.sock"), asyncio.Queue()
        listener = await reach.listen(Target("unix", path, 0), None, arrived.put_nowait)
        one = await reach.connect(Target("unix", path, 0))
        two = await (await arrived.get()).stream()
        assert (one.kind, one.remote, two.kind, two.local) == ("unix", (path, 0), "unix", (path, 0))
        one.send(b"hello")
        assert await two.receive() == b"hello"
        two.send(bytes(3_000_000))
        size = 0
        while size < 3_000_000:
            size += len(await one.receive())
        one.finish()
        assert await two.receive() == b""
        await two.close()
        await one.close()
        listener.close()
        listener.close()
        assert not (tmp_path / "a.sock").exists()
        await listener.run()

    run(main, loop_factory=factory)


def test_a_socket_that_was_left_is_replaced_and_one_in_use_is_not(tmp_path):
    async def main():
        path = tmp_path / "a.sock"
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
        listener = await unix.listen(str(path), lambda sock: sock.close())
        assert stat.S_ISSOCK(path.stat().st_mode)
        with pytest.raises(OSError, match="in use"):
            await unix.listen(str(path), lambda sock: None)
        listener.close()
        path.write_text("precious")
        with pytest.raises(OSError, match="in use"):
            await unix.listen(str(path), lambda sock: None)
        assert path.read_text() == "precious"
        with pytest.raises(OSError, match="No such file"):
            await unix.connect(str(tmp_path / "nothing"))
        with pytest.raises(OSError, match="too long"):
            await unix.connect("/" + "x" * 200)

    run(main)


# Datagrams.


def test_each_message_is_a_datagram_and_each_address_a_stream():
    async def main():
        arrived = []
        listener = await udp_stream.listen("127.0.0.1", 0, arrived.append)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            clients = [await udp_stream.connect("127.0.0.1", listener.port) for _ in range(2)]
            assert isinstance(clients[0], MessageStream)
            for number, client in enumerate(clients):
                client.send_messages([b"%d" % number, b"", b"again"])
            await until(lambda: len(arrived) == 2)
            for number, stream in enumerate(sorted(arrived, key=lambda one: one._waiting[0])):
                assert [await stream.receive(), await stream.receive()] == [b"%d" % number, b"again"]
                stream.send(b"to %d" % number)
                assert await clients[number].receive() == b"to %d" % number
            assert (clients[0].congested, clients[0].unsent, clients[0].kind) == (False, 0, "udp")
            await clients[0].drain()
            for client in clients:
                await client.close()
                assert await client.receive() == b""
                client.send(b"not any more")
            listener.close()
            for stream in arrived:
                stream.finish()
                assert await stream.receive() == b""
                await stream.close()

    run(main)


def test_a_client_hears_only_its_server():
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            server.bind(("127.0.0.1", 0))
            client = await udp_stream.connect("127.0.0.1", server.getsockname()[1])
            client.send(b"hello")
            data, source = await asyncio.to_thread(server.recvfrom, 100)
            assert data == b"hello"
            other.sendto(b"intruder", source)
            server.sendto(b"welcome", source)
            assert await client.receive() == b"welcome"
            client.abort()

    run(main)


def test_a_closed_address_is_quiet_for_a_while_and_memory_has_an_end(monkeypatch):
    async def main():
        arrived = []
        listener = await udp_stream.listen("127.0.0.1", 0, arrived.append)
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.run())
            client = await udp_stream.connect("127.0.0.1", listener.port)
            client.send(b"a")
            await until(lambda: arrived)
            arrived[0].abort()
            client.send(b"late")
            await asyncio.sleep(0.05)
            assert len(arrived) == 1
            monkeypatch.setattr(udp_stream, "MAX_PAST", 0)
            listener._past.clear()
            client.send(b"again")
            await until(lambda: len(arrived) == 2)
            stream = arrived[1]
            for _ in range(udp_stream.MAX_WAITING + 10):
                stream.put(b"x")
            assert len(stream._waiting) == udp_stream.MAX_WAITING
            assert stream.lost >= 10
            client.abort()
            listener.close()
            client = await udp_stream.connect("127.0.0.1", listener.port)
            client.send(b"nobody takes new ones")
            await asyncio.sleep(0.02)
            client.abort()
            assert len(arrived) == 2
            stream.abort()

    run(main)


# Addresses.

ALL = reach.SCHEMES


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ws://host:1", Target("ws", "host", 1)),
        ("ws://host:1/", Target("ws", "host", 1, "/")),
        ("wss://[::1]:8888/hello/world?msg=goodmorning", Target("wss", "::1", 8888, "/hello/world?msg=goodmorning")),
        ("unix:///run/a b.sock", Target("unix", "/run/a b.sock", 0)),
        ("unix:///run/a?b#c@d", Target("unix", "/run/a?b#c@d", 0)),
        ("udp://host:5", Target("udp", "host", 5)),
        ("host:5", Target("tcp", "host", 5)),
    ],
)
def test_addresses_of_every_scheme(text, target):
    assert parse(text, None, ALL) == target
    assert str(target) == (text if "://" in text else f"tcp://{text}")
    assert parse(str(target), None, ALL) == target


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ws://host", "names no port"),
        ("udp://host:1/path", "host:port"),
        ("ws://host:1/x#y", "host:port"),
        ("ws://me@host:1/x", "host:port"),
        ("unix:", "unix:///path"),
        ("unix://", "unix:///path"),
        ("quic://host:1", "not one of"),
    ],
)
def test_what_is_no_address(text, hint):
    with pytest.raises(UsageError, match=hint):
        parse(text, None, ALL)

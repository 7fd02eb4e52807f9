"""Sockets: listening, accepting, connecting, and what is said when that fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl

import pytest
from tests.peers.world import log_of, run, until

from wirelake.transports import tcp


async def two_streams():
    """Both ends of a connection."""
    taken = asyncio.get_running_loop().create_future()
    listener = await tcp.listen("127.0.0.1", 0, taken.set_result)
    one = await tcp.connect("127.0.0.1", listener.port)
    two = await tcp.accept(await taken)
    listener.close()
    listener.close()
    return one, two


def test_bytes_both_ways_and_a_half_close():
    async def main():
        one, two = await two_streams()
        assert (one.kind, one.local, one.remote) == ("tcp", two.remote, two.local)
        one.send(b"question")
        one.finish()
        assert await two.receive() == b"question"
        assert await two.receive() == b""
        two.send(b"answer")
        assert await one.receive() == b"answer"
        for end in (one, two, one, two):
            await end.close()
        one.send(b"ignored")
        one.finish()

    run(main)


def test_small_messages_leave_at_once():
    async def main():
        one, two = await two_streams()
        for end in (one, two):
            sock = end._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await end.close()

    run(main)


def test_a_peer_that_does_not_read_makes_the_stream_congested_until_it_does():
    async def main():
        one, two = await two_streams()
        size = 0
        while not one.congested:
            one.send(bytes(1 << 20))
            size += 1 << 20
            await asyncio.sleep(0)
        assert one.unsent > tcp.WRITE_HIGH
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(one.drain())
            await asyncio.sleep(0.02)
            assert not draining.done()
            one.finish()
            while data := await two.receive():
                size -= len(data)
            await draining
        assert size == 0
        await one.close()
        await two.close()

    run(main)


def test_abort_is_a_reset_for_the_other_end_when_it_is_still_talking():
    async def main():
        one, two = await two_streams()
        two.send(bytes(1 << 20))
        await asyncio.sleep(0.01)
        one.abort()
        with contextlib.suppress(ConnectionError):
            assert await two.receive() == b""
        await two.close()
        await one.close()

    run(main)


def test_every_address_of_a_name_listens_at_the_same_port():
    async def main():
        taken = []
        listener = await tcp.listen("localhost", 0, taken.append)
        ports = {sock.getsockname()[1] for sock in listener._sockets}
        assert ports == {listener.port}
        listener.close()

    run(main)


def test_a_port_in_use_is_said_and_leaves_no_socket_open():
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as caught:
            await tcp.listen("127.0.0.1", taken.getsockname()[1], lambda _: None)
        assert tcp.plain(caught.value) == os.strerror(errno.EADDRINUSE)

    run(main)


def test_when_no_descriptor_is_left_accepting_pauses_and_goes_on(monkeypatch):
    monkeypatch.setattr(tcp, "ACCEPT_PAUSE", 0.05)

    async def main():
        taken: list[socket.socket] = []
        listener = await tcp.listen("127.0.0.1", 0, taken.append)
        with socket.socket() as client:
            client.setblocking(False)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            lowest = os.dup(client.fileno())
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limit[1]))
            try:
                with log_of("wirelake.tcp") as lines:
                    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", listener.port))
                    await until(lambda: lines)
                    assert taken == []
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            await until(lambda: taken)
            taken[0].close()
        listener.close()
        assert lines[0] == f"cannot accept: {os.strerror(errno.EMFILE)}"

    run(main)


def test_a_listener_closed_in_a_pause_stays_closed(monkeypatch):
    monkeypatch.setattr(tcp, "ACCEPT_PAUSE", 0.0)

    async def main():
        listener = await tcp.listen("127.0.0.1", 0, lambda _: None)
        (sock,) = listener._sockets
        listener.close()
        listener._resume(sock)
        await asyncio.sleep(0)

    run(main)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "no..name", "."])
def test_a_name_that_cannot_be_one_is_an_error_of_connecting(host):
    async def main():
        for attempt in (tcp.connect(host, 1), tcp.connect(host, 1, ssl.create_default_context()), tcp.listen(host, 1, lambda _: None)):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - the text depends on the resolver
                await attempt
            assert tcp.plain(caught.value)

    run(main)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] other"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111] x, [Errno 101] y"), "Connection refused, Network is unreachable"),
        (OSError("plain words"), "plain words"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "unknown host (Name or service not known)"),
        (ssl.SSLError(1, "WRONG_VERSION"), "no TLS there, or none that we accept (wrong version)"),
        (TimeoutError(), "no answer in time"),
    ],
)
def test_failures_are_told_in_plain_words(reason, words):
    assert tcp.plain(reason) == words


def test_an_address_without_a_port_is_still_an_address():
    assert tcp._address("/run/socket") == ("/run/socket", 0)
    assert tcp._address(None) == ("unknown", 0)
    assert tcp._address(("::1", 5, 0, 0)) == ("::1", 5)


class Taken:
    """What a stream calls with."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[OSError | None] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_stream_calls_with_what_arrives_and_then_with_the_end(loop):
    async def main():
        one, two = await two_streams()
        one.send(b"early")
        await until(lambda: two._unread)
        taken = Taken()
        two.attach(taken.pieces.append, taken.ends.append)
        one.send(b" and late")
        await until(lambda: taken.data == b"early and late")
        one.finish()
        await until(lambda: taken.ends)
        two.send(b"answer")
        assert await one.receive() == b"answer"
        for end in (one, two):
            await end.close()
        assert taken.ends == [None], "the end comes once"

    import uvloop

    run(main, loop_factory=uvloop.new_event_loop if loop == "uvloop" else None)


def test_a_paused_stream_calls_no_more_until_it_goes_on():
    async def main():
        one, two = await two_streams()
        taken = Taken()
        two.attach(taken.pieces.append, taken.ends.append)
        two.pause()
        one.send(b"x" * 10_000_000)
        one.finish()
        await until(lambda: one.unsent)
        await asyncio.sleep(0.05)
        assert (taken.pieces, taken.ends) == ([], [])
        two.resume()
        await until(lambda: taken.ends)
        assert len(taken.data) == 10_000_000
        for end in (one, two):
            await end.close()

    run(main)


def test_what_arrives_after_detaching_is_received():
    async def main():
        one, two = await two_streams()
        taken = Taken()
        two.attach(taken.pieces.append, taken.ends.append)
        one.send(b"called")
        await until(lambda: taken.data == b"called")
        two.detach()
        one.send(b"received")
        one.finish()
        assert await two.receive() == b"received"
        assert await two.receive() == b""
        assert taken.ends == []
        for end in (one, two):
            await end.close()

    run(main)


def test_a_reset_is_told_after_what_arrived_before_it():
    async def main():
        one, two = await two_streams()
        taken = Taken()
        two.attach(taken.pieces.append, taken.ends.append)
        two.send(b"unread, so that closing is a reset")
        await until(lambda: one._unread)
        one._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one.abort()
        await until(lambda: taken.ends)
        assert isinstance(taken.ends[0], ConnectionResetError | None)
        await two.close()
        with pytest.raises(OSError, match=r"closed|reset"):
            await two.drain()

    run(main)

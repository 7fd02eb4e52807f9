"""Back-pressure both ways: who does not read makes the other wait, memory stays bounded, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest
from tests.peers.raw import place
from tests.peers.world import ANY, BYE, HELLO, PING, PONG, QUIET, facing, log_of, quick, raw_server, run, until

from wirelake.errors import ConnectionLost, SessionClosed
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.messages import Data, RequestResponse
from wirelake.protocols.emp.wire import encode
from wirelake.transports import tcp
from wirelake.transports.memory import HIGH

MEGABYTE = bytes(1_000_000)


@pytest.mark.slow
def test_a_peer_that_never_reads_makes_send_wait_with_bounded_memory():
    async def main():
        async def greet_and_sleep(raw):
            await raw.greet()
            raw.writer.transport.pause_reading()
            await asyncio.Event().wait()

        options = msgspec.structs.replace(QUIET, stall_timeout=0.5)
        async with raw_server(greet_and_sleep) as address, connect(address, options=options) as peer:
            sent = most = 0

            async def send():
                nonlocal sent, most
                for _ in range(100):
                    await peer.send(MEGABYTE)
                    sent += 1
                    most = max(most, peer.stream.unsent)

            with pytest.raises(ConnectionLost), quick(15):
                await send()
            assert sent < 30  # what fits into the buffers of the system, and ours
            assert most <= tcp.WRITE_HIGH
            with pytest.raises(ConnectionLost):
                await peer.send(b"after the end")

    run(main)


@pytest.mark.slow
def test_a_slow_peer_is_not_a_stalled_one():
    async def main():
        async with facing(msgspec.structs.replace(QUIET, stall_timeout=0.25)) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            other._cut = HIGH // 8

            async with asyncio.TaskGroup() as group:
                sending = group.create_task(peer.send(bytes(HIGH * 2)))
                while not sending.done():
                    await asyncio.sleep(0.1)
                    await other.receive()
            assert peer.is_open  # it took 0.8 s and more, but something moved all the time

    run(main)


def test_a_user_that_does_not_iterate_makes_the_peers_sender_wait():
    async def main():
        async with (
            serve(ANY, options=msgspec.structs.replace(QUIET, max_inbox=3)) as server,
            connect(server.address, options=QUIET) as peer,
        ):
            sent = 0

            async def send():
                nonlocal sent
                for number in range(40):
                    await peer.send(MEGABYTE + b"%d" % number)
                    sent += 1

            async with asyncio.TaskGroup() as group:
                sending = group.create_task(send())
                await until(lambda: peer.stream.congested)
                before = -1
                while before != sent:  # until nothing moves any more
                    before = sent
                    await asyncio.sleep(0.1)
                (reader,) = server.peers
                assert not sending.done()
                assert len(reader._inbox) <= 3 + 1
                assert peer.is_open
                bodies = [(await anext(reader)).body[-2:] for _ in range(40)]
            assert bodies == [(MEGABYTE + b"%d" % number)[-2:] for number in range(40)]

    run(main)


@pytest.mark.parametrize("handled", [False, True])
def test_the_bytes_of_waiting_messages_are_bounded_too(handled):
    async def main():
        gate = asyncio.Event()
        started = 0

        async def wait(_peer, _message):
            nonlocal started
            started += 1
            await gate.wait()

        options = msgspec.structs.replace(QUIET, max_memory=100_000, on_data=wait if handled else None)
        async with facing(options) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            for _ in range(20):
                other.send(encode(Data(bytes(40_000))))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            assert other.unsent > 15 * 40_000  # the peer stopped reading
            gate.set()
            for _ in range(0 if handled else 20):
                await anext(peer)
            await until(lambda: other.unsent == 0)

    run(main)


def test_no_more_handlers_run_than_allowed():
    async def main():
        gate = asyncio.Event()
        running = most = 0

        async def wait(_peer, request):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return request.body

        async with facing(msgspec.structs.replace(QUIET, max_in_flight=5, on_request=wait)) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            for number in range(1, 21):
                other.send(encode(Data(b"x", (RequestResponse(True, number),))))
                for _ in range(3):
                    await asyncio.sleep(0)
            await asyncio.sleep(0.02)
            assert running == 5
            assert other.unsent == 0  # the others wait here
            gate.set()
            await until(lambda: peer._session.serving == 0 and other.unsent == 0)
        assert most == 5

    run(main)


def test_pings_are_answered_while_all_handlers_are_busy():
    async def main():
        gate = asyncio.Event()

        async def wait(_peer, request):
            await gate.wait()
            return request.body

        async with facing(msgspec.structs.replace(QUIET, max_in_flight=2, on_request=wait)) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            for number in range(1, 11):
                other.send(encode(Data(b"x", (RequestResponse(True, number),))))
                await asyncio.sleep(0.01)
            other.send(PING)
            seen = b""
            with quick(5):
                while PONG not in seen:
                    seen += await other.receive()
            assert peer._session.serving == 10
            gate.set()
            await until(lambda: not peer._session.serving)

    run(main)


def test_both_directions_stream_megabytes_at_once_without_deadlock():
    async def main():
        async def stream(peer):
            for _ in range(24):
                await peer.send(MEGABYTE)

        async def read(peer):
            for _ in range(24):
                assert len((await anext(peer)).body) == len(MEGABYTE)

        async with serve(ANY, options=QUIET) as server, connect(server.address, options=QUIET) as client:
            await until(lambda: server.peers)
            (other,) = server.peers
            await other.opened()
            await asyncio.gather(stream(client), stream(other), read(client), read(other))

    run(main)


@pytest.mark.parametrize("slow", [False, True])
def test_large_answers_both_ways_at_once_do_not_deadlock(slow):
    """Each side has more to answer than makes a sender wait; a side that stopped reading for that would wait for ever."""

    async def later(_peer, request):
        await asyncio.sleep(0)
        return MEGABYTE

    async def main():
        options = msgspec.structs.replace(QUIET, on_request=later if slow else lambda _peer, _request: MEGABYTE)
        async with serve(ANY, options=options) as server, connect(server.address, options=options) as client:
            await until(lambda: server.peers)
            (other,) = server.peers
            await other.opened()
            with quick(15):
                answers = await asyncio.gather(*(end.request(b"x", timeout=15) for end in (client, other) for _ in range(12)))
            assert {len(answer) for answer in answers} == {len(MEGABYTE)}

    run(main)


@pytest.mark.slow
def test_a_flood_of_pings_by_who_does_not_read_does_not_grow_memory():
    async def main():
        options = msgspec.structs.replace(QUIET, max_unsent=HIGH)
        async with facing(options) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            other._cut = peer.stream._cut = 65_536
            for _ in range(10):
                other.send(PING * 8192)  # 64 KiB
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert peer.stream.unsent <= HIGH + 2 * 65_536
            assert other.unsent > 2 * 65_536  # they are not even read
            assert peer.is_open
            while other.unsent or peer.stream.unsent:
                await other.receive()
                await asyncio.sleep(0)
            assert peer.is_open

    run(main)


def test_who_asks_and_never_reads_is_given_up():
    async def main():
        options = msgspec.structs.replace(QUIET, max_unsent=HIGH, stall_timeout=0.1, on_request=lambda _peer, _request: bytes(HIGH))
        with log_of("wirelake.driver") as lines:
            async with facing(options) as (peer, other):
                other.send(HELLO + b"".join(encode(Data(b"", (RequestResponse(True, number),))) for number in range(1, 9)))
                reason = await peer.over()
                assert isinstance(reason, ConnectionLost)
        assert lines == ["gave up on ('memory', 2): it reads nothing"]

    run(main)


def test_waiting_for_the_peer_to_read_is_no_pong_timeout():
    """While we do not read because the peer does not, its pong may wait unread."""

    async def main():
        options = Options(ping_interval=0.05, pong_timeout=0.1)
        async with facing(msgspec.structs.replace(options, max_unsent=HIGH, on_request=lambda _peer, _request: bytes(HIGH * 2))) as (
            peer,
            other,
        ):
            other.send(HELLO + encode(Data(b"", (RequestResponse(True, 1),))))
            await asyncio.sleep(0.4)
            assert peer.is_open

    run(main)


def test_a_sender_that_waits_learns_that_the_session_ended():
    async def main():
        async with facing(QUIET) as (peer, other):
            other.send(HELLO)
            await peer.opened()

            async def waiting(speak):
                with pytest.raises(SessionClosed, match="the peer closed") as caught:
                    await speak
                return type(caught.value)

            async with asyncio.TaskGroup() as group:
                sending = group.create_task(waiting(peer.send(bytes(HIGH * 2))))
                await until(lambda: peer.stream.congested)
                asking = group.create_task(waiting(peer.request(b"")))
                await asyncio.sleep(0.01)
                with quick(5):
                    other.send(BYE)
                    assert await asyncio.gather(sending, asking) == [SessionClosed] * 2

    run(main)


@pytest.mark.slow
def test_what_was_sent_before_a_bye_is_flushed_to_a_slow_reader():
    async def main():
        size = 0

        async def read_slowly(raw):
            nonlocal size
            await raw.greet()
            await asyncio.sleep(0.2)
            while data := await raw.reader.read(1 << 20):
                size += len(data)
                await asyncio.sleep(0.005)

        async with raw_server(read_slowly) as address:
            async with connect(address, options=msgspec.structs.replace(QUIET, linger=0.05)) as peer:
                for _ in range(16):
                    peer._session.send(MEGABYTE)  # without waiting for room, so that the bye finds all of it unsent
            await until(lambda: size == 16 * (len(MEGABYTE) + 8) + 8)
        assert peer.ended.how is Ending.BYE

    run(main)


def test_a_flush_to_who_never_reads_ends_with_the_stall_time():
    async def main():
        async with facing(msgspec.structs.replace(QUIET, stall_timeout=0.1, linger=0.1)) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            peer._session.send(bytes(1000))
            peer.close()
            with quick(5):
                while not peer.stream._broken:
                    await asyncio.sleep(0.01)

    run(main)


def test_a_peer_with_a_tiny_window_gets_everything():
    """A receive buffer of a few KiB: what is written leaves in small pieces, and arrives whole."""

    async def main():
        async with serve(ANY, options=Options(ping_interval=None, on_request=lambda _peer, _request: MEGABYTE)) as server:
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sock, place(server.address))
                await loop.sock_sendall(sock, HELLO + encode(Data(b"", (RequestResponse(True, 1),))))
                size = 0
                while size < 12 + 28 + len(MEGABYTE):
                    size += len(await loop.sock_recv(sock, 65_536))
            assert size == 12 + 28 + len(MEGABYTE)

    run(main)

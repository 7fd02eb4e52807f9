"""Closing: politely, in a hurry, by exception and by cancellation; the peer hears of it and nothing stays open."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import msgspec
import pytest
from tests.peers.raw import place
from tests.peers.world import ANY, BYE, HELLO, PATIENCE, QUIET, Raw, quick, raw_client, raw_server, run, until

from wirelake.capture.record.recorder import Recorder
from wirelake.errors import SessionClosed
from wirelake.peers.admission import ServerLimits
from wirelake.peers.emp import Peer, connect, serve
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.messages import Bye, Data, Error, Hello, Pong, RequestResponse
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import encode
from wirelake.transports import tcp
from wirelake.transports.memory import pair

LIVE = QUIET
MEGABYTE = bytes(1_000_000)


async def never(_peer, _request):
    await asyncio.Event().wait()


async def refused(peer: Peer) -> str:
    """Why a request comes to nothing."""
    with pytest.raises(SessionClosed) as caught:
        await peer.request(b"")
    return str(caught.value)


async def greet_and_stay(raw: Raw) -> None:
    """A peer that says hello, and then neither reads nor leaves."""
    await raw.greet()
    raw.writer.transport.pause_reading()
    await asyncio.Event().wait()


def test_a_bye_is_not_answered_and_the_connection_is_closed():  # EMP-33
    async def main():
        async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
            await raw.say(HELLO, BYE)
            assert await raw.hear_rest() == [Hello()]
            await until(lambda: not server.peers)

    run(main)


@pytest.mark.parametrize("word", [BYE, encode(Error(0, message="no"))])
def test_a_parting_as_the_first_word_is_not_answered(word):  # EMP-26
    async def main():
        async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
            await raw.say(word)
            assert await raw.hear_rest() == [Hello()]

    run(main)


def test_after_our_bye_we_wait_for_the_peer_to_close_and_no_longer_than_the_linger_time():  # EMP-33
    async def main():
        async with raw_server(greet_and_stay) as address:
            with quick(10):
                async with connect(address, options=msgspec.structs.replace(QUIET, linger=0.1)) as peer:
                    pass
            assert peer.ended.here

    run(main)


def test_a_graceful_shutdown_says_bye_to_every_client_and_cancels_handlers():
    cancelled = 0

    async def work(_peer, _request):
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def main():
        async with serve(ANY, options=msgspec.structs.replace(QUIET, on_request=work)) as server, contextlib.AsyncExitStack() as stack:
            raws = [await stack.enter_async_context(raw_client(server.address)) for _ in range(10)]
            for raw in raws:
                await raw.greet()
                await raw.say(Data(b"work", (RequestResponse(True, 1),)))
            await until(lambda: sum(peer._session.serving for peer in server.peers) == 10)
            with quick(10):
                closing = asyncio.gather(*(hear_and_close(raw) for raw in raws))
                await server.__aexit__(None, None, None)
                assert await closing == [[Bye()]] * 10
            assert not server.peers
            with pytest.raises(OSError, match="Connect call failed"):
                await asyncio.open_connection(*place(server.address))

    async def hear_and_close(raw):
        said = await raw.hear_rest()
        await raw.close()
        return said

    run(main)
    assert cancelled == 10


def test_what_a_client_sent_before_it_left_is_attended_to_but_a_closing_server_does_not_wait_for_it():
    attended = cancelled = 0

    async def work(_peer, _message):
        nonlocal attended, cancelled
        try:
            attended += 1
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async def main():
        async with serve(ANY, options=msgspec.structs.replace(QUIET, on_data=work)) as server:
            async with raw_client(server.address) as raw:
                await raw.say(HELLO, Data(b"work"), BYE)
                assert await raw.hear_rest() == [Hello()]
            assert (attended, cancelled) == (1, 0)
            assert len(server.peers) == 1

    with quick(10):
        run(main)
    assert cancelled == 1


def test_an_exception_in_the_body_comes_out_as_it_is_and_says_bye():
    async def main():
        heard = []

        async def talk(raw: Raw) -> None:
            await raw.greet()
            heard.extend(await raw.hear_rest())

        async with raw_server(talk) as address:
            with pytest.raises(KeyError, match="mine"):
                async with connect(address, options=LIVE):
                    raise KeyError("mine")
            await until(lambda: heard)
        assert heard == [Bye()]
        with pytest.raises(KeyError, match="mine"):
            async with serve(ANY):
                raise KeyError("mine")

    run(main)


def test_cancelling_who_holds_a_client_or_a_server_says_bye_and_stays_a_cancellation():
    async def main():
        holding = asyncio.Event()

        async def hold():
            async with serve(ANY, options=LIVE) as server, connect(server.address, options=LIVE) as peer:
                peers.append(peer)
                holding.set()
                await asyncio.Event().wait()

        peers = []
        async with asyncio.TaskGroup() as group:
            task = group.create_task(hold())
            await holding.wait()
            task.cancel()
        assert task.cancelled()
        assert peers[0].ended.how is Ending.BYE

    run(main)


def test_a_timeout_while_leaving_is_a_timeout():
    """A cancellation that arrives during the good-bye is not swallowed, and leaves nothing open."""

    async def main():
        async with raw_server(greet_and_stay) as address:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), connect(address, options=msgspec.structs.replace(QUIET, linger=30)):
                    pass
        async with serve(ANY, options=msgspec.structs.replace(QUIET, linger=30)) as server, raw_client(server.address) as raw:
            await raw.greet()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await server.__aexit__(None, None, None)
            assert not server.peers

    with quick(15):
        run(main)


def test_leaving_who_never_reads_takes_no_longer_than_the_stall_time():
    async def main():
        async with raw_server(greet_and_stay) as address:
            with quick(10):
                async with connect(address, options=msgspec.structs.replace(QUIET, linger=0.1, stall_timeout=0.3)) as peer:
                    for _ in range(10):
                        peer._session.send(bytes(1_000_000))

    run(main)


@pytest.mark.parametrize("queued", [0, 20])
def test_cancelling_the_run_of_a_peer_is_prompt_whatever_is_unsent(queued):
    async def main():
        async with raw_server(greet_and_stay) as address:
            stream = await tcp.connect(*place(address))
            peer = Peer(Speaker.CLIENT, stream, msgspec.structs.replace(QUIET, stall_timeout=60, linger=0.1))
            async with asyncio.TaskGroup() as group:
                task = group.create_task(peer.run())
                await peer.opened()
                for _ in range(queued):
                    peer._session.send(bytes(1_000_000))
                asking = group.create_task(refused(peer))
                await until(lambda: peer._session.pending or stream.congested)
                with quick(5):
                    task.cancel()
                    assert await asking == "this side closed the session: cancelled"
                    await asyncio.wait([task])
            assert task.cancelled()

    run(main)


def test_cancelling_a_second_time_does_not_even_wait_for_the_linger_time():
    async def main():
        async with raw_server(greet_and_stay) as address:
            stream = await tcp.connect(*place(address))
            peer = Peer(Speaker.CLIENT, stream, msgspec.structs.replace(QUIET, stall_timeout=60, linger=60))
            async with asyncio.TaskGroup() as group:
                task = group.create_task(peer.run())
                await peer.opened()
                for _ in range(20):
                    peer._session.send(bytes(1_000_000))
                with quick(5):
                    task.cancel()
                    await peer.over()
                    assert stream.unsent > 0
                    await asyncio.sleep(0.01)
                    task.cancel()
                    await asyncio.wait([task])
                    await until(lambda: stream.unsent == 0)  # what could not be sent is thrown away, and the socket with it

    run(main)


def test_a_peer_whose_run_is_cancelled_still_says_bye():
    async def main():
        heard = []

        async def talk(raw: Raw) -> None:
            await raw.greet()
            heard.extend(await raw.hear_rest())

        async with raw_server(talk) as address:
            peer = Peer(Speaker.CLIENT, await tcp.connect(*place(address)), LIVE)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(peer.run())
                await peer.opened()
                task.cancel()
            await until(lambda: heard)
        assert heard == [Bye()]

    run(main)


def test_a_peer_closed_before_it_runs_says_bye_and_nothing_else():
    async def main():
        stream, other = pair()
        peer = Peer(Speaker.CLIENT, stream, msgspec.structs.replace(QUIET, linger=0.01))
        peer.close()
        await asyncio.gather(peer.run(), other.receive())
        with pytest.raises(SessionClosed):
            await peer.opened()

    run(main)


def test_closing_twice_does_nothing():
    async def main():
        server = serve(ANY)
        async with server:
            client = connect(server.address)
            async with client:
                pass
            await client.__aexit__(None, None, None)
        await server.__aexit__(None, None, None)

    run(main)


# Shutdown.


def test_a_peer_that_does_not_read_does_not_hold_up_the_end_of_a_server(tmp_path):
    async def main():
        recorder = Recorder(tmp_path / "closing.pcapng", protocol="emp", flush_seconds=600.0)
        options = msgspec.structs.replace(
            QUIET, recorder=recorder, on_request=lambda _, request: request.body
        )  # and a stall timeout of 60 s
        server = serve(ANY, options=options, limits=ServerLimits(linger=0.05))
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(server)
            small = socket.socket()
            small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # a kernel that grows buffers may take all answers
            small.setblocking(False)
            await asyncio.get_running_loop().sock_connect(small, place(server.address))
            reader, writer = await asyncio.open_connection(sock=small)
            writer.write(HELLO + b"".join(encode(Data(MEGABYTE, (RequestResponse(True, number),))) for number in range(1, 9)))
            await until(lambda: any(peer.stream.unsent > 1_000_000 for peer in server.peers))
            del reader
            with quick(10):
                await stack.aclose()
            assert (tmp_path / "closing.pcapng").stat().st_size > 8_000_000, "what was recorded is written before the wait"
            writer.transport.abort()
        recorder.close()

    run(main)


def test_a_server_waits_for_open_requests_as_long_as_it_is_told():
    async def main():
        finish, answers = asyncio.Event(), []

        async def slow(_peer, request):
            await finish.wait()
            return request.body

        server = serve(ANY, options=msgspec.structs.replace(QUIET, on_request=slow), limits=ServerLimits(drain=PATIENCE))
        async with asyncio.TaskGroup() as group:
            await server.__aenter__()
            client = connect(server.address, options=LIVE)
            peer = await client.__aenter__()

            async def ask():
                answers.append(await peer.request(b"last"))

            group.create_task(ask())
            await until(lambda: any(one.is_busy for one in server.peers))
            ending = group.create_task(server.__aexit__(None, None, None))
            await asyncio.sleep(0)
            assert not ending.done()
            finish.set()
            await ending
            await client.__aexit__(None, None, None)
        assert answers == [b"last"]

    run(main)


@pytest.mark.parametrize("says", [True, False])
def test_what_was_sent_before_a_bye_arrives_however_slowly_the_peer_reads(says):
    """It reads for many linger times, and says something now and then: a connection that is closed too early is reset by that."""

    async def main():
        linger, count, heard, done = 0.1, 30, 0, asyncio.Event()

        async def slow(reader, writer):
            nonlocal heard
            writer.write(HELLO)
            while data := await reader.read(1 << 16):
                heard += len(data)
                if says:
                    writer.write(encode(Pong()))  # one that was not asked for: it is not answered
                await asyncio.sleep(linger / 4)
            done.set()
            writer.close()

        server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=1 << 16)
        port, options = server.sockets[0].getsockname()[1], msgspec.structs.replace(LIVE, linger=linger)
        async with server, connect(f"tcp://127.0.0.1:{port}", options=options) as peer:
            for _ in range(count):
                await peer.send(bytes(1 << 16))
            peer.close()
            await asyncio.wait_for(done.wait(), PATIENCE)
        assert heard == len(HELLO) + count * ((1 << 16) + 8) + len(BYE)

    run(main)

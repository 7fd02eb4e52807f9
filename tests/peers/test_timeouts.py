"""Time: requests that expire or are given up, silent peers, pings that are answered whatever the user does."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.peers.world import ANY, HELLO, PING, PONG, QUIET, error_of, facing, heard, quick, raw_client, raw_server, run, two_peers, until

from wirelake.errors import ConnectFailed, RemoteProtocolError, RequestTimeout
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Data, Hello, Ping, Pong, RequestResponse
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import encode
from wirelake.transports.memory import HIGH


def answer_to(request_id: int, body: bytes = b"late") -> Data:
    return Data(body, (RequestResponse(False, request_id),))


def test_a_request_that_expires_leaves_the_connection_usable_and_its_late_answer_is_swallowed():  # EMP-16
    async def main():
        expired = asyncio.Event()

        async def talk(raw):
            await raw.greet()
            await heard(raw.hear(), Data)
            await expired.wait()
            await raw.say(answer_to(1))
            assert await raw.answer(b"second") == 2
            await raw.hear_rest()

        async with raw_server(talk) as address, connect(address, options=QUIET) as peer:
            with pytest.raises(RequestTimeout, match="request 1"):
                await peer.request(b"first", timeout=0.05)
            expired.set()
            assert await peer.request(b"second", timeout=10) == b"second"
            assert peer.is_open
            assert peer.noticed == {Fault.RESPONSE_LATE: 1}

    run(main)


def test_the_default_timeout_is_the_sessions():
    async def main():
        async def never(_peer, _request):
            await asyncio.Event().wait()

        async with two_peers(Options(request_timeout=0.05), Options(on_request=never)) as (client, _):
            with pytest.raises(RequestTimeout):
                await client.request(b"")
            assert client.is_open

    run(main)


def test_many_timeouts_fire_in_their_own_order():
    async def main():
        async def never(_peer, _request):
            await asyncio.Event().wait()

        order = []

        async def ask(client, timeout):
            with pytest.raises(RequestTimeout):
                await client.request(b"", timeout=timeout)
            order.append(timeout)

        async with two_peers(Options(), Options(on_request=never)) as (client, _):
            await asyncio.gather(*(ask(client, timeout) for timeout in (0.3, 0.05, 0.175)))
        assert order == [0.05, 0.175, 0.3]

    run(main)


def test_a_cancelled_request_is_given_up_and_its_answer_swallowed():  # EMP-16
    async def main():
        cancelled = asyncio.Event()

        async def talk(raw):
            await raw.greet()
            await heard(raw.hear(), Data)
            await cancelled.wait()
            await raw.say(answer_to(1))
            await raw.answer(b"second")
            await raw.hear_rest()

        async with raw_server(talk) as address, connect(address, options=QUIET) as peer:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(peer.request(b"first"))
                await until(lambda: peer._session.pending)
                asking.cancel()
            assert asking.cancelled()
            assert peer._session.pending == 0
            cancelled.set()
            assert await peer.request(b"second") == b"second"
            assert peer.noticed == {Fault.RESPONSE_LATE: 1}

    run(main)


def test_a_request_cancelled_in_the_moment_the_session_ends_leaves_no_unseen_exception():
    async def main():
        async with facing(QUIET) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(peer.request(b""))
                await until(lambda: peer._session.pending)
                peer._session.bye()
                peer._driver._settle()  # the answer fails now, and the task is cancelled before it runs again
                asking.cancel()
            assert asking.cancelled()

    run(main)


def test_a_request_that_cannot_be_sent_expires_too():
    async def main():
        async with facing(QUIET) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(peer.send(bytes(HIGH * 2)))
                await until(lambda: peer.stream.congested)
                with pytest.raises(RequestTimeout, match="reads too slowly"):
                    await peer.request(b"", timeout=0.05)
                assert peer.is_open
                while peer.stream.congested:
                    await other.receive()
                await sending

    run(main)


@pytest.mark.parametrize("speaker", Speaker)
def test_a_silent_peer_is_told_and_left_after_the_handshake_timeout(speaker):  # EMP-29
    options = Options(handshake_timeout=0.1)

    async def main():
        if speaker is Speaker.SERVER:
            async with serve(ANY, options=options) as server, raw_client(server.address) as raw:
                error = await error_of(raw)
                await raw.close()
                await until(lambda: not server.peers)
        else:
            told = asyncio.get_running_loop().create_future()

            async def talk(raw):
                told.set_result(await error_of(raw))

            async with raw_server(talk) as address:
                with pytest.raises(ConnectFailed, match="EMP-29") as caught:
                    async with connect(address, options=options):
                        pass
                assert isinstance(caught.value.__cause__, RemoteProtocolError)
                assert caught.value.__cause__.fault is Fault.HANDSHAKE_TIMEOUT
                error = await told
        assert error.error_code == 2

    run(main)


def test_a_peer_without_a_pong_is_told_and_left():  # EMP-32
    options = Options(ping_interval=0.05, pong_timeout=0.1)

    async def main():
        async with serve(ANY, options=options) as server, raw_client(server.address) as raw:
            await raw.say(HELLO)
            said = await raw.hear_rest()
            assert [type(message) for message in said[:2]] == [Hello, Ping]
            assert len(said) == 3  # EMP-31: never a second ping before the pong
            assert (said[2].error_code, "EMP-32" in said[2].message) == (2, True)

    run(main)


def test_traffic_does_not_replace_the_pong():  # EMP-32
    options = Options(ping_interval=0.05, pong_timeout=0.2)

    async def main():
        async with facing(options) as (peer, other):
            other.send(HELLO)
            await until(lambda: peer._session._pong.waits)
            while peer.ended is None:
                other.send(encode(Data(b"traffic")))
                await asyncio.sleep(0.02)
            assert peer.ended.fault is Fault.PONG_TIMEOUT

    run(main)


def test_pings_and_pongs_keep_a_quiet_connection_alive():
    options = Options(ping_interval=0.02, pong_timeout=5)

    async def main():
        async with two_peers(options, options) as (client, server):
            await asyncio.sleep(0.3)
            assert client.is_open
            assert server.is_open
            assert client.noticed == server.noticed == {}

    run(main)


def test_pings_are_answered_while_the_user_does_not_iterate():
    async def main():
        async with serve(ANY, options=QUIET) as server, raw_client(server.address) as raw:
            await raw.greet()
            for _ in range(3):
                await raw.say(Data(b"nobody reads this"), PING)
                await heard(raw.hear(), Pong)

    run(main)


def test_pings_are_answered_while_a_handler_works():
    async def main():
        gate = asyncio.Event()

        async def wait(_peer, request):
            await gate.wait()
            return request.body

        async with serve(ANY, options=msgspec.structs.replace(QUIET, on_request=wait)) as server, raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(Data(b"x", (RequestResponse(True, 1),)), PING, PING)
            assert [await raw.hear(), await raw.hear()] == [Pong(), Pong()]  # EMP-31: every one
            gate.set()
            assert (await raw.hear()).body == b"x"

    run(main)


def test_paused_reading_is_no_silent_peer():
    """The pong waits unread because our user does not iterate: that is not the peer's fault."""
    options = Options(ping_interval=0.05, pong_timeout=0.1)

    async def main():
        async with facing(msgspec.structs.replace(options, max_inbox=2)) as (peer, other):
            other.send(HELLO)
            await peer.opened()
            other.send(encode(Data(b"1")) + encode(Data(b"2")))
            await until(lambda: peer._session._pong.waits)
            other.send(PONG)
            await asyncio.sleep(0.4)
            assert peer.is_open
            assert [(await anext(peer)).body for _ in range(2)] == [b"1", b"2"]
            await until(lambda: not peer._session._pong.waits)
            assert peer.is_open

    run(main)


def test_after_a_pause_the_peer_has_the_whole_pong_time_again_and_no_more():
    options = Options(ping_interval=0.05, pong_timeout=0.1)

    async def main():
        async with facing(msgspec.structs.replace(options, max_inbox=1)) as (peer, other):
            other.send(HELLO + encode(Data(b"1")))
            await until(lambda: peer._session._pong.waits)
            await asyncio.sleep(0.2)
            assert peer.is_open
            await anext(peer)
            await peer.over()
            assert (peer.ended.how, peer.ended.fault) == (Ending.ERROR, Fault.PONG_TIMEOUT)

    run(main)


def test_timers_do_not_outlive_the_session():
    async def main():
        options = Options(ping_interval=0.05, pong_timeout=0.05, request_timeout=0.05)
        async with two_peers(options, options) as (client, server):
            pass
        for end in (client, server):
            assert end._driver._timer is None or end._driver._timer.cancelled()
        with quick(5):
            await asyncio.sleep(0.1)

    run(main)

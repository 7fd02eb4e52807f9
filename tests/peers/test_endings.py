"""Every way a conversation ends: what the user is told, what the peer hears, and that nothing stays open."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from tests.peers.world import ANY, BYE, HELLO, QUIET, Raw, error_of, raw_client, raw_server, run, two_peers, until

from wirelake.errors import ConnectionLost, PeerError, RemoteProtocolError, SessionClosed
from wirelake.peers.emp import Options, Peer, connect, serve
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Data, Error
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import encode

LIVE = QUIET


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


async def endings(address: str, requests: int = 5, options: Options = LIVE) -> list[Exception]:
    """Ask, and see how all requests fail; then speak after the end, and ask the iteration."""
    async with connect(address, options=options) as peer:
        failures = await asyncio.gather(*(peer.request(b"?") for _ in range(requests)), return_exceptions=True)
        assert not peer.is_open
        for speak in (peer.request, peer.send):
            with pytest.raises(type(failures[0])) as caught:
                await speak(b"after the end")
            assert str(caught.value) == str(failures[0])
        assert str(await peer.over()) == str(failures[0])
        if type(failures[0]) is SessionClosed:
            assert [message async for message in peer] == []
        else:
            with pytest.raises(type(failures[0])):
                await anext(peer)
    assert len({id(failure) for failure in failures}) == requests  # one for each
    return failures


def after_five_requests(*said):
    async def talk(raw: Raw) -> None:
        await raw.greet()
        for _ in range(5):
            await raw.hear()
        await raw.say(*said)

    return talk


def test_a_bye_fails_every_pending_request_with_the_reason():  # EMP-33
    async def main():
        async with raw_server(after_five_requests(BYE)) as address:
            failures = await endings(address)
        assert {(type(one), str(one)) for one in failures} == {(SessionClosed, "the peer closed the session")}

    run(main)


def test_an_error_of_the_peer_fails_every_pending_request_and_carries_the_message():
    error = Error(130, message="out of cheese")

    async def main():
        async with raw_server(after_five_requests(error)) as address:
            failures = await endings(address)
        assert {type(one) for one in failures} == {PeerError}
        assert failures[0].message == error
        assert str(failures[0]) == "the peer reported error 130: out of cheese"

    run(main)


def test_the_end_of_the_stream_without_a_word_is_a_lost_connection():  # EMP-43
    async def main():
        async with raw_server(after_five_requests()) as address:
            failures = await endings(address)
        assert {(type(one), str(one)) for one in failures} == {
            (ConnectionLost, "the connection was lost: the connection was closed without bye or error")
        }

    run(main)


def test_the_end_of_the_stream_inside_a_message_is_said():  # EMP-43
    async def main():
        async with raw_server(after_five_requests(b"\x00\x00\x00\x0c\x05\x00")) as address:
            failures = await endings(address)
        assert {(type(one), str(one)) for one in failures} == {
            (ConnectionLost, "the connection was lost: the connection was closed inside a message")
        }

    run(main)


def test_a_reset_is_a_lost_connection():
    async def talk(raw: Raw) -> None:
        await after_five_requests()(raw)
        raw.reset()

    async def main():
        async with raw_server(talk) as address:
            assert {type(one) for one in await endings(address)} == {ConnectionLost}

    run(main)


def test_a_peer_that_breaks_a_rule_fails_every_pending_request_with_the_rule():
    async def main():
        async with raw_server(after_five_requests(HELLO)) as address:
            failures = await endings(address)
        assert {(type(one), one.fault) for one in failures} == {(RemoteProtocolError, Fault.HELLO_REPEATED)}

    run(main)


def test_a_server_that_leaves_fails_the_requests_of_its_clients_with_the_reason():
    async def main():
        options = msgspec.structs.replace(QUIET, on_request=never)
        async with serve(ANY, options=options) as server, connect(server.address, options=LIVE) as peer, asyncio.TaskGroup() as group:
            asking = group.create_task(refused(peer))
            await until(lambda: peer._session.pending)
            await server.__aexit__(None, None, None)
            assert await asking == "the peer closed the session"

    run(main)


def test_our_own_bye_fails_our_own_requests_and_says_why():
    async def main():
        async with two_peers(LIVE, msgspec.structs.replace(QUIET, on_request=never)) as (client, server):
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(refused(client))
                await until(lambda: server._session.serving)
                client.close("we have what we want")
                assert await asking == "this side closed the session: we have what we want"
            client.close("again")
            client.fail(Fault.HANDLER_FAILED)
            assert client.ended.how is Ending.BYE

    run(main)


@pytest.mark.parametrize("speaker", Speaker)
def test_our_error_arrives_at_a_peer_that_is_still_sending(speaker):  # EMP-34
    """A socket closed with unread bytes sends a reset, and a reset takes the error message with it."""
    flood = encode(Data(bytes(100_000)))
    heard = []

    async def talk(raw: Raw) -> None:
        await raw.greet()
        await raw.say(b"\x00\x00\x00\x08\x7f\x00\x00\x00")  # a reserved type
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await raw.say(flood)
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        heard.append(await error_of(raw))

    async def main():
        if speaker is Speaker.SERVER:
            async with serve(ANY, options=LIVE) as server, raw_client(server.address) as raw:
                await talk(raw)
        else:
            async with raw_server(talk) as address, connect(address, options=LIVE) as peer:
                reason = await peer.over()
                assert isinstance(reason, RemoteProtocolError)

    run(main)
    assert [(error.error_code, "EMP-24" in error.message) for error in heard] == [(3, True)]

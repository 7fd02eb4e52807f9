"""Handlers that fail, in every way they can: the asker always hears of it, and the other connections live on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.peers.world import ANY, BYE, HELLO, QUIET, error_of, facing, raw_client, run, two_peers, until

from wirelake.errors import PeerError
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.events import Ending
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Data, RequestResponse
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import encode


def raising(_peer, _request):
    raise KeyError("my own bug")


async def raising_later(_peer, _request):
    await asyncio.sleep(0)
    raise KeyError("my own bug")


def too_large(_peer, _request):
    return bytes(2000)


async def too_large_later(_peer, _request):
    return bytes(2000)


def no_bytes(_peer, _request):
    return "text"


async def nothing(_peer, _request):
    return None


async def cancelling_itself(_peer, _request):
    raise asyncio.CancelledError


FAILING = [raising, raising_later, too_large, too_large_later, no_bytes, nothing, cancelling_itself]
SMALL = Options(ping_interval=None, max_message_size=1000)


async def failure(options: Options, speaker: Speaker = Speaker.SERVER) -> PeerError:
    """What a peer with this handler tells who asks it."""
    lives = (QUIET, options) if speaker is Speaker.SERVER else (options, QUIET)
    async with two_peers(*lives) as ends:
        handling, asking = ends[speaker], ends[speaker.other]
        with pytest.raises(PeerError) as caught:
            await asking.request(b"?")
        await handling.over()
        assert handling.ended.how is Ending.ERROR
        return caught.value


@pytest.mark.parametrize("speaker", Speaker)
def test_who_has_no_handler_says_error_0_and_closes(speaker):  # EMP-19
    async def main():
        reason = await failure(QUIET, speaker)
        assert reason.message.error_code == 0
        assert "EMP-19: no handler here answers requests: request 1" in reason.message.message

    run(main)


@pytest.mark.parametrize("handler", FAILING)
@pytest.mark.parametrize("speaker", Speaker)
def test_a_failing_handler_says_error_0_and_closes(handler, speaker):  # EMP-19
    async def main():
        reason = await failure(msgspec.structs.replace(SMALL, on_request=handler), speaker)
        assert reason.message.error_code == 0
        assert "EMP-19: the request could not be answered: request 1" in reason.message.message
        assert "my own bug" not in reason.message.message  # what went wrong inside is nobody else's business

    run(main)


@pytest.mark.parametrize("handler", [raising, raising_later, cancelling_itself])
def test_on_failure_may_answer_instead(handler):  # EMP-19
    async def main():
        seen = []

        def explain(_peer, request, reason):
            seen.append((request.body, type(reason)))
            return b"sorry"

        options = msgspec.structs.replace(QUIET, on_request=handler, on_failure=explain)
        async with two_peers(QUIET, options) as (client, _):
            assert await client.request(b"one") == b"sorry"
            assert await client.request(b"two") == b"sorry"
            assert client.is_open
        kind = RuntimeError if handler is cancelling_itself else KeyError
        assert seen == [(b"one", kind), (b"two", kind)]

    run(main)


@pytest.mark.parametrize("handler", [raising, raising_later])
def test_an_on_failure_that_fails_or_says_nonsense_is_error_0(handler):
    def fail(_request, _reason):
        raise ZeroDivisionError

    async def main():
        for on_failure in (fail, lambda _peer, _request, _reason: None):
            reason = await failure(msgspec.structs.replace(QUIET, on_request=handler, on_failure=on_failure))
            assert reason.message.error_code == 0

    run(main)


def test_a_data_handler_that_fails_ends_the_session_with_error_0():
    def plain(_peer, _message):
        raise KeyError("my own bug")

    async def later(_peer, _message):
        raise KeyError("my own bug")

    async def main():
        for on_data in (plain, later):
            async with serve(ANY, options=msgspec.structs.replace(QUIET, on_data=on_data)) as server, raw_client(server.address) as raw:
                await raw.say(HELLO, Data(b"x"))
                assert (await error_of(raw)).error_code == 0

    run(main)


def test_one_failing_connection_does_not_disturb_the_others():
    def pick(_peer, request):
        return raising(_peer, request) if request.body == b"fail" else request.body

    async def main():
        async with serve(ANY, options=Options(on_request=pick)) as server, connect(server.address) as good:
            for _ in range(3):
                async with connect(server.address) as bad:
                    with pytest.raises(PeerError):
                        await bad.request(b"fail")
            assert await good.request(b"fine") == b"fine"
            await until(lambda: len(server.peers) == 1)

    run(main)


def test_an_answer_that_comes_after_the_end_goes_nowhere():
    async def main():
        answered = asyncio.Event()

        async def stubborn(_peer, _request):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                answered.set()
                return b"anyway"

        async with two_peers(QUIET, msgspec.structs.replace(QUIET, on_request=stubborn)) as (client, server):
            client._session.request(b"", 0.0)
            client._driver.wake()
            await until(lambda: server._session.serving)
        assert answered.is_set()
        assert server.ended.how is Ending.BYE

    run(main)


def test_requests_in_the_segment_of_the_bye_are_handled_but_not_answered():
    async def main():
        seen = []

        async def later(_peer, request):
            seen.append(request.body)
            await asyncio.sleep(0)
            return b""

        for handler in (lambda _peer, request: seen.append(request.body) or b"", later):
            seen.clear()
            async with facing(msgspec.structs.replace(QUIET, on_request=handler, linger=0.05)) as (peer, other):
                assert await other.receive() == HELLO
                other.send(HELLO + encode(Data(b"last", (RequestResponse(True, 1),))) + BYE)
                await peer.over()
                assert peer.ended.how is Ending.BYE
                assert await other.receive() == b""
            assert seen == [b"last"]

    run(main)


def test_a_codec_with_a_bug_does_not_vanish_silently():
    class Broken:
        def undo(self, content, body):
            raise ZeroDivisionError("my own bug")

    async def main():
        options = Options(codecs={130: Broken()}, ping_interval=None)
        async with serve(ANY, options=options, on_request=lambda _peer, request: request.body) as server:
            async with raw_client(server.address) as raw:
                await raw.greet()
                await raw.say(b"\x00\x00\x00\x10\x05\x80\x00\x00\x00\x00\x00\x08\x82\x00\x00\x00")
                assert (await error_of(raw)).error_code == 0
            async with connect(server.address) as peer:
                assert await peer.request(b"next") == b"next"

    run(main)


def test_a_broken_rule_that_is_tolerated_is_counted():
    async def main():
        async with facing(QUIET) as (peer, other):
            other.send(HELLO + b"\x00\x00\x00\x08\x03\x00\x00\x00" * 3)
            await until(lambda: peer.noticed.get(Fault.PONG_UNSOLICITED) == 3)  # EMP-30
            assert peer.is_open

    run(main)

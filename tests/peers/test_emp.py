"""Two peers that talk: handshake, data, requests both ways, handlers of every kind; on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
import uvloop
from tests.peers.world import ANY, BYE, HELLO, Raw, facing, heard, raw_client, raw_server, run, two_peers, until

from wirelake.errors import LocalProtocolError, SessionClosed, UsageError
from wirelake.peers.emp import Options, Peer, connect, serve
from wirelake.protocols.emp.events import DataReceived, Ending
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import Application, Data, OtherExtension, RequestResponse
from wirelake.protocols.emp.state_machine import Speaker
from wirelake.protocols.emp.wire import encode

LOOPS = {"asyncio": run, "uvloop": partial(run, loop_factory=uvloop.new_event_loop)}


@pytest.fixture(params=LOOPS)
def live_on(request):
    """Run a test on this kind of loop."""
    return LOOPS[request.param]


def upper(_peer, request):
    return request.body.upper()


async def slow_upper(_peer, request):
    await asyncio.sleep(0)
    return request.body.upper()


@pytest.mark.parametrize("handler", [upper, slow_upper])
def test_a_request_gets_its_answer(live_on, handler):
    async def main():
        async with serve(ANY, on_request=handler) as server, connect(server.address) as peer:
            assert peer.is_open
            assert await peer.opened() == 1
            assert await peer.request(b"hello", timeout=10) == b"HELLO"
            assert await peer.request(b"", timeout=10) == b""
            assert server.accepted == 1
            assert len(server.peers) == 1
        assert not peer.is_open
        assert peer.ended.how is Ending.BYE
        assert peer.ended.here

    live_on(main)


def test_data_arrives_whole_and_in_order_and_the_bye_ends_the_iteration(live_on):
    bodies = [b"", b"a", bytes(range(256)) * 5000, b"z" * 70_000]
    got = []

    async def read(peer):
        got.extend([message async for message in peer])

    async def main():
        async with serve(ANY) as server, asyncio.TaskGroup() as group, connect(server.address) as peer:
            await until(lambda: server.peers)  # before it is over, which may take less time than one look
            group.create_task(read(*server.peers))
            for body in bodies:
                await peer.send(body)
                await peer.send(body, compress=True)

    live_on(main)
    assert got == [DataReceived(body) for body in bodies for _ in range(2)]


def test_compressed_requests_are_unpacked_and_take_less_room_on_the_wire(live_on):
    body = b"very repetitive " * 5000

    async def main():
        async with raw_server(answer_with_length) as address, connect(address) as peer:
            assert await peer.request(body, compress=True) == b"small"
            assert await peer.request(body) == b"large"

    async def answer_with_length(raw: Raw) -> None:
        await raw.greet()
        for _ in range(2):
            request = await heard(raw.hear(), Data)
            word = b"small" if len(request.body) < 1000 else b"large"
            await raw.say(Data(word, (RequestResponse(False, request.extensions[0].request_id),)))
        await raw.hear_rest()

    live_on(main)


def test_both_ends_ask_each_other_at_once():
    async def double(peer, request):
        return request.body + await peer.request(request.body) if request.body.endswith(b"!") else request.body * 2

    async def main():
        options = Options(on_request=double)
        async with two_peers(options, options) as (client, server):
            ends = [client, server] * 20
            words = [b"%d" % number for number in range(40)]
            answers = await asyncio.gather(*(end.request(word) for end, word in zip(ends, words, strict=True)))
            assert answers == [word * 2 for word in words]

    run(main)


def test_a_handler_may_ask_the_asker_back(live_on):
    async def ask_back(peer, request):
        return await peer.request(b"who are you, " + request.body)

    async def main():
        async with serve(ANY, on_request=ask_back) as server, connect(server.address, options=Options(on_request=upper)) as peer:
            assert await peer.request(b"ann") == b"WHO ARE YOU, ANN"

    live_on(main)


def test_a_thousand_requests_with_64_in_flight_get_their_own_answers(live_on):
    in_flight = most = 0

    async def echo(_peer, request):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.001 * (request.request_id % 3))
        in_flight -= 1
        return b"answer to " + request.body

    async def main():
        async with serve(ANY, on_request=echo) as server, connect(server.address) as peer:
            numbers = iter(range(1000))

            async def ask():
                for number in numbers:
                    assert await peer.request(b"%d" % number) == b"answer to %d" % number

            async with asyncio.TaskGroup() as group:
                for _ in range(64):
                    group.create_task(ask())

    live_on(main)
    assert most == 64


def test_handlers_may_finish_in_any_order():  # EMP-17
    async def main():
        gates = {word: asyncio.Event() for word in (b"one", b"two", b"three")}

        async def wait(_peer, request):
            await gates[request.body].wait()
            return request.body

        order = []
        async with two_peers(Options(), Options(on_request=wait)) as (client, _), asyncio.TaskGroup() as group:
            for word in gates:
                group.create_task(client.request(word)).add_done_callback(lambda task: order.append(task.result()))
            await asyncio.sleep(0)
            for word in (b"three", b"one", b"two"):
                gates[word].set()
                await until(lambda word=word: word in order)
        assert order == [b"three", b"one", b"two"]

    run(main)


def test_in_order_mode_holds_answers_back_until_their_turn():  # EMP-17
    async def main():
        last = asyncio.Event()

        async def wait(_peer, request):
            if request.body == b"1":
                await last.wait()
            if request.body == b"3":
                last.set()
            return request.body

        options = Options(in_order=True, ping_interval=None, on_request=wait)
        async with serve(ANY, options=options) as server, raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(*(Data(b"%d" % number, (RequestResponse(True, number),)) for number in (1, 2, 3)))
            assert [(await raw.hear()).body for _ in range(3)] == [b"1", b"2", b"3"]

    run(main)


def test_application_types_carry_data_requests_and_answers():  # EMP-24, EMP-44
    options = Options(application_types=frozenset({128, 255}))

    async def main():
        answering = msgspec.structs.replace(options, on_request=lambda _peer, request: b"%d" % request.type_id)
        async with two_peers(answering, answering) as (client, server):
            await client.send(b"event", type_id=255)
            assert await anext(server) == DataReceived(b"event", 255)
            assert await client.request(b"", type_id=128) == b"128"
            with pytest.raises(LocalProtocolError) as caught:
                await client.send(b"", type_id=127)
            assert caught.value.fault is Fault.TYPE_RESERVED
            assert client.is_open

    run(main)


def test_an_answer_has_the_type_of_its_request():
    async def main():
        options = Options(application_types=frozenset({200}), ping_interval=None)
        async with serve(ANY, options=msgspec.structs.replace(options, on_request=upper)) as server, raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(Application(200, b"", (RequestResponse(True, 9),)))
            answer = await raw.hear()
            assert (answer.type_id, answer.extensions) == (200, (RequestResponse(False, 9),))

    run(main)


def test_a_registered_codec_undoes_its_extension():  # EMP-9
    class Reverse:
        def undo(self, content, body):
            return content + body[::-1]

    async def main():
        options = Options(codecs={130: Reverse()}, on_request=upper)
        async with two_peers(options, options) as (client, server):
            await client.send(b"cba", extensions=(OtherExtension(130, b">"),))
            message = await anext(server)
            assert (message.body, message.extensions) == (b">abc", (OtherExtension(130, b">"),))
            assert await client.request(b"cba", extensions=(OtherExtension(130, b">"),)) == b">ABC"

    run(main)


@pytest.mark.parametrize("cut", [1, 3, 4096])
def test_peers_do_not_care_where_the_stream_is_cut(cut):
    body = bytes(range(256)) * 20

    async def main():
        options = Options(on_request=slow_upper)
        async with two_peers(options, options, cut) as (client, server):
            answers = await asyncio.gather(*(client.request(body, compress=bool(number % 2)) for number in range(4)))
            assert answers == [body.upper()] * 4
            await server.send(body)
            assert (await anext(client)).body == body

    run(main)


def test_data_handlers_plain_and_awaitable_see_every_message_in_order():
    async def main():
        plain, awaited = [], []

        async def later(_peer, message):
            awaited.append(message.body)

        lives = Options(on_data=lambda _peer, message: plain.append(message.body)), Options(on_data=later)
        async with two_peers(*lives) as (client, server):
            for number in range(50):
                await client.send(b"%d" % number)
                await server.send(b"%d" % number)
            await until(lambda: len(plain) == len(awaited) == 50)
        assert plain == awaited == [b"%d" % number for number in range(50)]

    run(main)


def test_what_the_peer_sent_before_its_bye_is_attended_to():
    done = []

    async def slowly(_peer, message):
        await asyncio.sleep(0.05)
        done.append(message.body)

    async def main():
        async with two_peers(Options(), Options(on_data=slowly, linger=0.01)) as (client, _):
            for number in range(5):
                await client.send(b"%d" % number)

    run(main)
    assert sorted(done) == [b"%d" % number for number in range(5)]


def test_data_and_bye_in_one_segment_are_both_heard():  # EMP-28 for hello and data
    async def main():
        async with facing(Options()) as (peer, other):
            other.send(HELLO + encode(Data(b"a")) + encode(Data(b"b")) + BYE)
            assert [message.body async for message in peer] == [b"a", b"b"]
            assert [message async for message in peer] == []

    run(main)


def test_leaving_an_iteration_leaves_no_generator_behind():
    async def main():
        async with two_peers(Options(), Options()) as (client, server):
            await client.send(b"a")
            await client.send(b"b")
            async for message in server:
                assert message.body == b"a"
                break
            assert (await anext(server)).body == b"b"

    run(main)


def test_speaking_before_the_handshake_is_refused():  # EMP-28
    async def main():
        async with facing(Options(), Speaker.CLIENT) as (peer, _):
            for speak in (peer.send, peer.request):
                with pytest.raises(LocalProtocolError) as caught:
                    await speak(b"too soon")
                assert caught.value.fault is Fault.SPOKE_TOO_SOON

    run(main)


def test_a_message_over_the_limit_is_refused_and_the_session_goes_on():  # EMP-35
    async def main():
        options = Options(max_message_size=1000, on_request=upper)
        async with two_peers(options, options) as (client, _):
            for speak in (client.send, client.request):
                with pytest.raises(LocalProtocolError) as caught:
                    await speak(bytes(1000))
                assert caught.value.fault is Fault.SIZE_OVER_LIMIT
            assert await client.request(b"small") == b"SMALL"

    run(main)


def test_a_client_can_be_used_again_but_not_twice_at_once():
    async def main():
        async with serve(ANY, on_request=upper) as server:
            client = connect(server.address)
            with pytest.raises(SessionClosed, match="not in use"):
                await client.peer()
            for _ in range(2):
                async with client as peer:
                    assert await peer.request(b"a") == b"A"
                    assert await client.peer() is peer
                    with pytest.raises(UsageError, match="in use already"):
                        await client.__aenter__()
                    with pytest.raises(UsageError, match="in use already"):
                        await server.__aenter__()
            assert client.connections == 2
            with pytest.raises(SessionClosed):
                await client.peer()

    run(main)


def test_ipv6_loopback():
    async def main():
        async with serve("tcp://[::1]:0", on_request=upper) as server, connect(server.address) as peer:
            assert server.address.startswith("tcp://[::1]:")
            assert await peer.request(b"six") == b"SIX"
            assert peer.stream.remote[0] == "::1"

    try:
        run(main)
    except Exception as reason:
        if "Cannot assign" in str(reason) or "not supported" in str(reason):
            pytest.skip("this machine has no IPv6 loopback: sysctl net.ipv6.conf.lo.disable_ipv6=0 enables it")
        raise


def test_a_peer_needs_no_client_and_no_server():
    async def main():
        async with facing(Options()) as (peer, _):
            assert isinstance(peer, Peer)
            assert not peer.is_open
            assert peer.ended is None

    run(main)

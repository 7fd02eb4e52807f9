"""What a hostile or broken peer does over a real socket: answered as ruled, and nobody else notices."""

from __future__ import annotations

import asyncio
import random

import pytest
import websockets.asyncio.client
from tests.peers.world import log_of, run, until
from tests.peers.yamp.world import ANY, demo, raw_client, raw_server
from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import OTHER, UID

from wirelake.errors import ConnectFailed, RemoteProtocolError
from wirelake.peers.yamp import Options, Service, connect, serve
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Close, Handshake, Response

QUICK = Options(handshake_timeout=0.1)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff", "Unknown type 255"),
        (b"GET / HTTP/1.1\r\n\r\n", "Unknown type 71"),
        (speech.ping(), "handshake expected"),
        (speech.close(), "handshake expected"),
        (speech.handshake(2), "Version 2 not supported. Use 1"),
        (b"\x00\x01\x00\x04json", "Version 256 not supported. Use 1"),
        (speech.handshake(1, b"yaml"), "Serializer yaml not supported. Use json, msgpack"),
        (speech.handshake(1, b"\xff"), "serializer is not UTF-8"),
        (speech.redirect(), "redirect by a client"),
        (speech.handshake() + b"\x09", "Unknown type 9"),
        (speech.handshake() + speech.event(body=b"", size=2**32 - 1), "message too large"),
        (speech.handshake() + speech.event(b"\xff"), "uri is not UTF-8"),
        (speech.handshake() + speech.response(kind=4), "Unknown response type 4"),
        (speech.handshake() + speech.request(b"wait") * 2, "duplicate request uid"),
        (speech.handshake() + speech.redirect(), "redirect by a client"),
        (b"", "handshake timeout"),
        (b"\x00\x00\x01", "handshake timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_must_not_be_said_is_answered_with_a_close(said, reason):
    async def main():
        service = demo()

        @service.request("wait")
        async def wait(_, call):
            await asyncio.Event().wait()

        async with serve(ANY, service, options=QUICK) as server, connect(server.address) as friend:
            async with raw_client(server.address) as raw:
                await raw.say(said)
                heard = await raw.hear_rest()
                assert heard[-1] == Close(reason)
                assert [one for one in heard[:-1] if not isinstance(one, Handshake)] == []
            assert await friend.request("echo", 1) == 1

    run(main)


def test_what_is_tolerated_costs_nothing_but_a_count():
    async def main():
        async with serve(ANY, demo()) as server, raw_client(server.address) as raw:
            await raw.greet()
            with log_of("wirelake.yamp"):
                await raw.say(
                    *(speech.handshake(), speech.pong(b"x"), speech.response(), speech.response(kind=speech.PROGRESS)),
                    *(
                        speech.cancel(),
                        speech.cancel(kill=1),
                        speech.event(b"", b""),
                        speech.event(body=b"{"),
                        speech.request(b"echo", b"{"),
                    ),
                    speech.request(b"echo", b"1", progressive=7),
                )
                answers = [await raw.hear() for _ in range(2)]
            assert [(type(one), one.response_type) for one in answers] == [(Response, 1), (Response, 0)]
            (peer,) = server.peers
            assert peer.noticed == {
                Fault.HANDSHAKE_REPEATED: 1,
                Fault.PONG_UNSOLICITED: 1,
                Fault.RESPONSE_UNMATCHED: 2,
                Fault.CANCEL_UNMATCHED: 2,
                Fault.URI_EMPTY: 1,
                Fault.BODY_UNDECODABLE: 2,
                Fault.BOOL_ODD: 1,
            }
            assert peer.unheard == 1
            assert peer.is_open

    run(main)


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (speech.handshake(1, b"msgpack"), Fault.ECHO_DIFFERS),
        (speech.event(), Fault.HANDSHAKE_EXPECTED),
        (b"HTTP/1.1 400 Bad Request\r\n", Fault.TYPE_UNKNOWN),
    ],
)
def test_a_server_that_answers_a_handshake_with_something_else(said, fault):
    async def main():
        heard = []

        async def odd(raw):
            await raw.hear()
            await raw.say(said)
            heard.extend(await raw.hear_rest())

        async with raw_server(odd) as address:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(address):
                    pass
            assert caught.value.__cause__.fault is fault
            await until(lambda: heard)
            assert isinstance(heard[0], Close)

    run(main)


def test_answers_that_are_wrong_fail_one_request_each():
    async def main():
        async def odd(raw):
            await raw.greet_back()
            uids = [(await raw.hear()).uid for _ in range(3)]
            await raw.say(
                speech.response(uids[0], body=b"{"), speech.response(uids[1], speech.ERROR, b""), speech.response(uids[2], 3, b"4")
            )
            await raw.hear_rest()

        async def talk(raw):
            raw.greet_back = lambda: _echo(raw)
            await odd(raw)

        async with raw_server(talk) as address, connect(address) as peer:
            tasks = await asyncio.gather(*(peer.request("a") for _ in range(3)), return_exceptions=True)
            assert [type(one).__name__ for one in tasks] == ["RemoteProtocolError", "RequestFailed", "RequestCancelled"]
            assert isinstance(tasks[0], RemoteProtocolError)
            assert tasks[0].fault is Fault.BODY_UNDECODABLE
            assert tasks[1].body is None
            assert peer.is_open

    run(main)


async def _echo(raw):
    await raw.hear()
    await raw.say(Handshake())


def test_a_large_body_that_never_comes_takes_no_memory():
    async def main():
        async with serve(ANY, demo(), options=Options(max_body_size=1 << 30)) as server:
            async with raw_client(server.address) as raw:
                await raw.greet()
                await raw.say(speech.event(body=b"x" * 1000, size=1 << 30))
                (peer,) = server.peers
                await until(lambda: len(peer._session.rest) > 1000)
                assert peer._session._buffer.size < 2000
            assert (await peer.over()).__class__.__name__ == "ConnectionLost"
            assert peer.ended.fault is Fault.CLOSED_INSIDE_MESSAGE

    run(main)


def test_a_flood_of_requests_is_read_no_faster_than_it_is_answered():
    async def main():
        service, working = Service(), []
        may = asyncio.Event()

        @service.request("work")
        async def work(_, call):
            working.append(call.uid)
            await may.wait()

        async with serve(ANY, service, options=Options(max_in_flight=10)) as server, raw_client(server.address) as raw:
            await raw.greet()
            flood = b"".join(speech.request(b"work", b"1", uid=number.to_bytes(16)) for number in range(50_000))
            task = asyncio.ensure_future(raw.say(flood))
            await until(lambda: len(working) >= 10)
            before = -1
            while before != len(working):
                before = len(working)
                await asyncio.sleep(0.05)
            assert before < 20_000, "a read is at most 256 KiB"
            task.cancel()
            may.set()

    run(main)


@pytest.mark.parametrize("seed", range(8))
def test_noise_never_takes_a_server_down(seed):
    async def main():
        dice = random.Random(seed)
        spoken = list(speech.SPOKEN.values())
        async with serve(ANY, demo()) as server, connect(server.address) as friend:
            for _ in range(10):
                async with raw_client(server.address) as raw:
                    said = bytearray(speech.handshake() * dice.randrange(2) + b"".join(dice.choices(spoken, k=8)))
                    for _ in range(dice.randrange(6)):
                        said[dice.randrange(len(said))] = dice.randrange(256)
                    await raw.say(bytes(said))
                    raw.writer.write_eof()
                    await raw.hear_rest()
            with log_of("wirelake.yamp"):
                assert await friend.request("echo", 1) == 1

    with log_of("wirelake.yamp"):
        run(main)


# WebSockets and datagrams.


def test_text_and_broken_frames_end_a_websocket_with_its_own_code(monkeypatch):
    async def main():
        async with serve("ws://127.0.0.1:0", demo()) as server, connect(server.address) as friend:
            async with websockets.asyncio.client.connect(server.address, ping_interval=None) as socket:
                await socket.send(speech.handshake())
                await socket.recv()
                await socket.send("text")
                with pytest.raises(websockets.exceptions.ConnectionClosedError):
                    await socket.recv()
                assert socket.close_code == 1003
            with monkeypatch.context() as patch:
                patch.setattr("wirelake.transports.websocket.HANDSHAKE_TIMEOUT", 0.5)
                async with raw_client(server.address.removesuffix("/")) as raw:
                    await raw.say(b"\x00\x00\x01\x04json")
                    assert await raw.reader.read() == b""
            async with raw_client(server.address) as raw:
                await raw.say(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await raw.reader.read()).startswith(b"HTTP/1.1 426 ")
            assert await friend.request("echo", 1) == 1

    run(main)


def test_a_frame_over_the_limit_is_refused_before_it_is_there():
    async def main():
        async with (
            serve("ws://127.0.0.1:0", demo()) as server,
            websockets.asyncio.client.connect(server.address, max_size=None, ping_interval=None) as socket,
        ):
            socket.transport.write(b"\x82\xff" + (1 << 40).to_bytes(8) + b"mask")
            with pytest.raises(websockets.exceptions.ConnectionClosedError):
                await socket.recv()
            assert socket.close_code == 1009

    run(main)


def test_datagrams_from_nowhere():
    async def main():
        loop = asyncio.get_running_loop()
        heard = asyncio.Queue()

        class Ear(asyncio.DatagramProtocol):
            def datagram_received(self, data, source):
                if data[0] != 1:  # a probe, if we are silent for a moment
                    heard.put_nowait(data)

        async with serve("udp://127.0.0.1:0", demo(), options=QUICK) as server, connect(server.address) as friend:
            host, _, port = server.address.removeprefix("udp://").rpartition(":")
            transport, _ = await loop.create_datagram_endpoint(Ear, remote_addr=(host, int(port)))
            transport.sendto(speech.event())
            assert await heard.get() == speech.close(b"handshake expected")
            transport.sendto(b"\x05 cut")
            transport.sendto(b"")
            transport.close()
            assert await friend.request("echo", 1) == 1
            other, _ = await loop.create_datagram_endpoint(Ear, remote_addr=(host, int(port)))
            other.sendto(speech.handshake())
            assert await heard.get() == speech.handshake()
            for _ in range(2):
                other.sendto(speech.handshake())
                assert await heard.get() == speech.handshake(), "the echo may have been lost"
            for _ in range(3):
                other.sendto(speech.request(b"echo", b"4"))
            answers = [await heard.get()]
            other.sendto(speech.ping(b"x"))
            while (said := await heard.get()) != speech.pong(b"x"):
                answers.append(said)
            assert {one[0] for one in answers} == {8}
            other.close()
            assert await friend.request("sum", [1, 2]) == 3
        assert OTHER != UID

    run(main)


def test_handshakes_over_udp_make_no_peer_before_their_sender_hears_us():
    """YAMP-15: their addresses may be forged."""

    async def main():
        loop = asyncio.get_running_loop()
        heard = asyncio.Queue()

        class Ear(asyncio.DatagramProtocol):
            def datagram_received(self, data, source):
                heard.put_nowait(data)

        async with serve("udp://127.0.0.1:0", demo()) as server:
            host, _, port = server.address.removeprefix("udp://").rpartition(":")
            ears = [(await loop.create_datagram_endpoint(Ear, remote_addr=(host, int(port))))[0] for _ in range(20)]
            for ear in ears:
                ear.sendto(speech.handshake())
                ear.sendto(speech.handshake())
            answers = [await heard.get() for _ in range(3 * len(ears))]
            assert answers.count(speech.handshake()) == 2 * len(ears)
            probes = [one for one in answers if one[0] == 1]
            assert len(set(probes)) == len(ears)
            assert (len(server.peers), server.accepted) == (0, 0)
            ears[0].sendto(speech.pong(b"no proof, but it speaks"))
            await until(lambda: len(server.peers) == 1)
            for ear in ears:
                ear.close()

    run(main)


def test_a_silent_client_over_udp_is_a_peer_that_gets_events():
    async def main():
        async with serve("udp://127.0.0.1:0", demo()) as server, connect(server.address) as client:
            events = client.subscribe("news")
            await until(lambda: len(server.peers) == 1)
            server.broadcast("news", 1)
            assert (await anext(events)).body == 1
            assert not client.noticed
            assert not any(peer.noticed for peer in server.peers)

    run(main)

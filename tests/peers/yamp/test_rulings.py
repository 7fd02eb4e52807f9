"""Every ruling on YAMP that only live peers can show, each with a test that names it; the others are in tests/protocols/yamp."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys

import pytest
import websockets.asyncio.client
from tests.peers.world import run, until
from tests.peers.yamp.world import ANY, HANDSHAKE, demo, raw_client, raw_server
from tests.protocols.yamp import speech
from tests.protocols.yamp import test_rulings as without_sockets

from wirelake.errors import ConnectFailed, RequestFailed, SessionClosed, UsageError
from wirelake.peers.yamp import Options, Service, connect, serve
from wirelake.protocols.yamp.messages import Close, Handshake

RULINGS = range(1, 54)


def named(module) -> set[int]:
    """The rulings that tests of a module name."""
    return {int(number) for name in vars(module) if name.startswith("test_yamp_") for number in re.findall(r"yamp_(\d+)", name)}


def test_every_ruling_has_a_test_that_names_it():
    found = named(without_sockets) | named(sys.modules[__name__])
    assert sorted(set(RULINGS) - found) == []
    assert found <= set(RULINGS)


def test_yamp_3_a_client_takes_a_refusal_for_a_connect_error():
    async def main():
        async def newer(raw):
            await raw.hear()
            await raw.say(Close("Version 1 not supported. Use 2"))

        async with raw_server(newer) as address:
            with pytest.raises(ConnectFailed, match=r"Version 1 not supported\. Use 2$"):
                async with connect(address):
                    pass

    run(main)


def test_yamp_14_one_message_for_each_of_ours_any_pieces_from_them():
    async def main():
        async with (
            serve("ws://127.0.0.1:0", demo()) as server,
            websockets.asyncio.client.connect(server.address, ping_interval=None) as socket,
        ):
            for byte in speech.handshake() + speech.request(b"echo", b"1") + speech.request(b"echo", b"2", uid=speech.OTHER):
                await socket.send(bytes((byte,)))
                await socket.send(b"")
            said = [await socket.recv() for _ in range(3)]
            assert [one[0] for one in said] == [0, 8, 8]
            (peer,) = server.peers
            peer.close("enough")
            assert await socket.recv() == speech.close(b"enough")
            with pytest.raises(websockets.exceptions.ConnectionClosedOK):
                await socket.recv()
            assert socket.close_code == 1000

    run(main)


def test_yamp_18_keep_alive_is_off_unless_it_is_wanted():
    async def main():
        quick = Options(ping_interval=0.01, ping_timeout=5.0)
        async with serve(ANY, demo()) as server, connect(server.address, options=quick) as peer:
            await until(lambda: peer._session.asked > 1)  # and so the first pong has come
            (other,) = server.peers
            assert other._session.deadline is None
            assert other.noticed == peer.noticed == {}

    run(main)


def test_yamp_20_the_sender_of_a_close_flushes_and_the_receiver_only_closes():
    async def main():
        async with serve(ANY, demo()) as server, raw_client(server.address) as raw:
            await raw.greet()
            (peer,) = server.peers
            for number in range(100):
                await peer.send("a", number)
            peer.close("enough")
            heard = await raw.hear_rest()
            assert [one.uri for one in heard[:-1]] == ["a"] * 100
            assert heard[-1] == Close("enough")
        async with serve(ANY, demo()) as server, raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(Close("mine"))
            assert await raw.hear_rest() == []

    run(main)


def test_yamp_38_a_request_of_an_unknown_uri_is_answered_with_an_error():
    async def main():
        async with serve(ANY, Service()) as server, connect(server.address) as peer:
            for service in (None, Service()):
                with pytest.raises(RequestFailed) as caught:
                    await peer.request("nowhere")
                assert caught.value.body == "unknown uri 'nowhere'"
                assert service is None or service.answerer("nowhere") is None

    run(main)


def test_yamp_39_an_event_of_an_unknown_uri_is_ignored_unless_somebody_catches_all():
    async def main():
        service, heard = Service(), []
        async with serve(ANY, service) as server, connect(server.address) as peer:
            await peer.send("nowhere")
            await peer.ping()
            (other,) = server.peers
            assert other.unheard == 1
            service.on(">", lambda _, event: heard.append(event.uri))
            await peer.send("nowhere")
            await peer.ping()
            assert (heard, other.unheard, other.noticed) == (["nowhere"], 1, {})

    run(main)


def test_yamp_46_an_event_goes_to_one_peer_and_fan_out_is_local():
    async def main():
        async with serve(ANY) as server, raw_client(server.address) as one, raw_client(server.address) as two:
            for raw in (one, two):
                await raw.greet()
            await one.say(speech.event())
            await until(lambda: sum(peer.unheard for peer in server.peers) == 1)
            assert server.broadcast("all", 1) == 2
            assert [(await raw.hear()).uri for raw in (one, two)] == ["all", "all"]

    run(main)


def test_yamp_47_events_have_many_listeners_and_requests_one_handler():
    service = Service()
    service.request("a", lambda _, call: 1)
    with pytest.raises(UsageError, match="have a handler already"):
        service.request("a", lambda _, call: 2)
    service.on("a", lambda _, event: None)
    service.on("a", lambda _, event: None)
    assert len(service.listeners("a")) == 2


def test_yamp_48_handlers_are_called_in_order_and_answer_in_any():
    async def main():
        service, called = Service(), []

        @service.request("work")
        async def work(_, call):
            called.append(call.body)
            await asyncio.sleep(0.05 if call.body == 0 else 0)
            return call.body

        async with serve(ANY, service) as server, raw_client(server.address) as raw:
            await raw.greet()
            await raw.say(*(speech.request(b"work", b"%d" % number, uid=bytes((number,)) * 16) for number in range(4)))
            answers = [(await raw.hear()).body for _ in range(4)]
            assert called == [0, 1, 2, 3]
            assert answers == [b"1", b"2", b"3", b"0"]

    run(main)


def test_yamp_49_pending_requests_fail_with_the_reason_of_the_close():
    async def main():
        async def closing(raw):
            await raw.say(HANDSHAKE)
            assert await raw.hear() == Handshake()
            for _ in range(3):
                await raw.hear()
            await raw.say(Close("going home"))

        async with raw_server(closing) as address, connect(address) as peer:
            found = await asyncio.gather(*(peer.request("a") for _ in range(3)), return_exceptions=True)
            assert [type(one) for one in found] == [SessionClosed] * 3
            assert all("going home" in str(one) for one in found)

    run(main)


def test_yamp_51_an_address_names_its_port():
    for make in (connect, serve):
        with pytest.raises(UsageError, match="names no port"):
            make("tcp://127.0.0.1")


@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_yamp_52_tls_is_verified(scheme, contexts):
    async def main():
        server, client = contexts
        async with serve(f"{scheme}://127.0.0.1:0", demo(), tls=server) as listening:
            async with connect(listening.address, tls=client) as peer:
                assert await peer.request("echo", 1) == 1
            with pytest.raises(ConnectFailed, match="its certificate is not trusted"):
                async with connect(listening.address):
                    pass
            other_name = listening.address.replace("127.0.0.1", "127.0.0.2")
            with pytest.raises(ConnectFailed):
                async with connect(other_name, tls=client):
                    pass
        assert client.verify_mode is ssl.CERT_REQUIRED

    run(main)

"""Peers as they are elsewhere: one in Go that names no serializer, one in Node that sends every field as a message of its own.

Neither answers pings. They are played here byte by byte as they were seen, over real sockets, as client and as server.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
import websockets.asyncio.client
import websockets.asyncio.server
from tests.peers.world import run, until
from tests.peers.yamp.world import ANY, demo, raw_client, raw_server
from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import UID

from wirelake.errors import ConnectFailed, RequestFailed, RequestTimeout
from wirelake.peers.yamp import Options, Service, connect, serve
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import Close, Handshake, Request, Response
from wirelake.protocols.yamp.wire import buffer, encode, message


def fields(said: bytes) -> list[bytes]:
    """A message cut into its fields, as the Node peer sends them."""
    kind = said[0]
    sizes = {0: [1, 2, 1], 1: [1, 1], 2: [1, 1], 3: [1, 2]}.get(kind)
    if sizes is None:
        uri = said[17]
        sizes = [1, 16, 1, uri, *{5: [4], 6: [1, 4], 7: [16, 1], 8: [16, 1, 4]}[kind]]
    pieces, at = [], 0
    for size in sizes:
        pieces.append(said[at : at + size])
        at += size
    return [*pieces, said[at:]]


# The Go peer: TCP, an empty serializer.


def test_a_go_client_names_no_serializer_and_is_served():
    async def main():
        async with serve(ANY, demo()) as server, raw_client(server.address) as go:
            await go.greet(speech.handshake(1, b""))
            await go.say(speech.request(b"echo", b'{"a":1}'))
            answer = await go.hear()
            assert (answer.request_uid, answer.uri, answer.response_type, answer.body) == (UID, "echo", 0, b'{"a":1}')
            await go.say(speech.request(b"sum", b"[1,2]", progressive=1))
            assert [(one.response_type, one.body) for one in [await go.hear() for _ in range(3)]] == [(2, b"1"), (2, b"3"), (0, b"3")]
            (peer,) = server.peers
            assert peer.noticed == {Fault.SERIALIZER_EMPTY: 1}
            await go.say(speech.close(b"goodbye"))
            assert await go.hear() is None
            assert peer.ended.detail == "goodbye"

    run(main)


def test_a_go_client_that_must_name_one():
    async def main():
        options = Options(accept_empty_serializer=False)
        async with serve(ANY, options=options) as server, raw_client(server.address) as go:
            await go.say(speech.handshake(1, b""))
            assert await go.hear_rest() == [Close("Serializer  not supported. Use json, msgpack")]

    run(main)


def test_a_go_server_echoes_what_it_was_sent_and_answers_no_ping():
    async def main():
        async def go(raw):
            await raw.say(encode(await raw.hear()))
            while (said := await raw.hear()) is not None:
                if isinstance(said, Request):
                    await raw.say(Response(UID, said.uri, said.uid, 0, said.body))

        async with raw_server(go) as address:
            async with connect(address) as peer:
                assert await peer.request("any", [1]) == [1]
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await peer.ping()
                with pytest.raises(RequestTimeout, match=r"no pong in 0\.01 s"):
                    await peer.ping(timeout=0.01)
                assert (await peer.request("any", [2]), peer._session.deadline) == ([2], None)
            eager = Options(ping_interval=0.02, ping_timeout=0.02)
            async with connect(address, options=eager) as peer:
                assert str(await peer.over()).startswith("YAMP-18: no pong in time")

    run(main)


# The Node peer: WebSocket, one message for each field.


class Node:
    """A WebSocket that says every field by itself, and hears messages."""

    def __init__(self, socket):
        self.socket = socket
        self.heard: list[bytes] = []

    async def say(self, said: bytes) -> None:
        for piece in fields(said):
            await self.socket.send(piece)  # empty ones, too

    async def hear(self):
        data = await self.socket.recv()
        self.heard.append(data)
        (batch,) = buffer().feed(data)
        (row,) = batch[1]
        return message(batch[0], row)


def test_a_node_client_sends_field_by_field_and_gets_whole_messages():
    async def main():
        service = demo()
        heard = []
        service.on("foo", lambda _, event: heard.append(event.body))
        async with (
            serve("ws://127.0.0.1:0", service) as server,
            websockets.asyncio.client.connect(server.address, compression=None, ping_interval=None) as socket,
        ):
            node = Node(socket)
            await node.say(speech.handshake())
            assert await node.hear() == Handshake()
            await node.say(speech.event(b"foo", b'{"a":1}'))
            await node.say(speech.request(b"sum", b"[1,2]", progressive=1))
            answers = [await node.hear() for _ in range(3)]
            assert [(one.response_type, one.body) for one in answers] == [(2, b"1"), (2, b"3"), (0, b"3")]
            assert heard == [{"a": 1}]
            (peer,) = server.peers
            ask = await peer.ask("node.work", 4)
            asked = await node.hear()
            assert (asked.uri, asked.progressive, asked.body) == ("node.work", True, b"4")
            await node.say(speech.response(asked.uid, speech.PROGRESS, b"1", uri=b"node.work"))
            await node.say(speech.response(asked.uid, speech.ERROR, b'"bad"', uri=b"node.work"))
            assert await anext(ask) == 1
            with pytest.raises(RequestFailed) as caught:
                await ask.answer()
            assert caught.value.body == "bad"
            await node.say(speech.close(b"goodbye"))
            with pytest.raises(websockets.exceptions.ConnectionClosedOK):
                await socket.recv()
            assert (socket.close_code, peer.ended.detail) == (1000, "goodbye")

    run(main)


def test_a_node_server_gets_one_message_for_each_of_ours():
    async def main():
        seen = []

        async def serve_node(socket):
            node = Node(socket)
            with contextlib.suppress(websockets.exceptions.ConnectionClosed):
                await node.say(encode(await node.hear()))
                while True:
                    said = await node.hear()
                    if isinstance(said, Request):
                        await node.say(encode(Response(UID, said.uri, said.uid, 0, said.body)))
            seen.extend(node.heard)

        async with websockets.asyncio.server.serve(serve_node, "127.0.0.1", 0, compression=None, ping_interval=None) as listening:
            address = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hello/world?msg=goodmorning"
            async with connect(address, options=Options(serializer="msgpack")) as peer:
                for number in range(5):
                    await peer.send("event", number)
                answers = await asyncio.gather(*(peer.request("any", number) for number in range(5)))
                assert answers == list(range(5))
                assert len(await peer.request("large", "x" * 200_000)) == 200_000
            await until(lambda: seen)
        assert [one[0] for one in seen] == [0, *[5] * 5, *[6] * 6, 3], "one each, whole"

    run(main)


def test_a_node_server_that_redirects_with_one_byte_of_size():
    async def main():
        async def node(raw):
            await raw.hear()
            await raw.say(speech.redirect(b"tcp://127.0.0.1:1", short=True))

        options = Options(one_byte_redirect_size=True)
        async with raw_server(node) as address:
            with pytest.raises(ConnectFailed, match=r"redirected to tcp://127\.0\.0\.1:1"):
                async with connect(address, options=options):
                    pass

    run(main)


def test_a_browser_offers_the_subprotocol_and_gets_it_back():
    async def main():
        async with serve("ws://127.0.0.1:0", Service()) as server:
            for offered, chosen in ((["yamp"], "yamp"), (["other", "yamp"], "yamp"), (["other"], None), (None, None)):
                async with websockets.asyncio.client.connect(server.address, subprotocols=offered, ping_interval=None) as socket:
                    assert socket.subprotocol == chosen
                    await socket.send(speech.handshake())
                    assert await socket.recv() == speech.handshake()

    run(main)


def test_bodies_are_what_those_peers_made_of_them():
    assert msgspec.json.decode(b'{"a":1}') == {"a": 1}
    assert fields(speech.response()) == [b"\x08", UID, b"\x03", b"sum", speech.OTHER, b"\x00", b"\x00\x00\x00\x01", b"3"]
    assert [len(piece) for piece in fields(speech.ping())] == [1, 1, 0]

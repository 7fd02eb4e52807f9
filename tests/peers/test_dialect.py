"""EMP-1 live: byte-level peers that leave the size field out of sizes, as client and as server; what is recorded of them can be read."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.peers.world import ANY, Raw, raw_client, raw_server, run

from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.errors import ConnectFailed
from wirelake.peers.emp import Options, connect, serve
from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
from wirelake.protocols.emp.options import Limits
from wirelake.protocols.emp.wire import encode

TEXT, SHORT = Limits(), Limits(sizes_exclude_themselves=True)
AUTO = Options(sizes_exclude_themselves="auto", ping_interval=None)
KINDS = pytest.mark.parametrize("limits", [TEXT, SHORT], ids=["text", "short"])
QUESTION, ANSWER = Data(b"?", (RequestResponse(True, 1),)), Data(b"!", (RequestResponse(False, 1),))


def serving(limits: Limits):
    """A server of one kind: it greets, and answers one request."""

    async def talk(raw: Raw) -> None:
        await raw.say(encode(Hello(), limits))
        expected = encode(Hello(), limits) + encode(QUESTION, limits)
        assert await raw.reader.readexactly(len(expected)) == expected
        await raw.say(encode(ANSWER, limits))
        await raw.reader.read()

    return talk


def dialects(path) -> set[tuple[str, ...]]:
    """Of every run in a recording."""
    return {
        block.flows[run[2]].dialect for block in read(identify(path), ports={}, sniff=lambda _: None) for run in block.segments.tolist()
    }


@KINDS
def test_an_auto_client_gets_on_with_servers_of_both_kinds(limits, tmp_path):
    async def main():
        with Recorder(tmp_path / "talk.pcapng") as recorder:
            async with (
                raw_server(serving(limits)) as address,
                connect(address, options=msgspec.structs.replace(AUTO, recorder=recorder)) as peer,
            ):
                assert await peer.request(b"?", timeout=5) == b"!"

    run(main)
    assert dialects(tmp_path / "talk.pcapng") == {("sizes_exclude_themselves",) if limits is SHORT else ()}


@KINDS
def test_an_auto_server_gets_on_with_clients_of_both_kinds(limits, tmp_path):
    async def main():
        with Recorder(tmp_path / "talk.pcapng") as recorder:
            options = msgspec.structs.replace(AUTO, recorder=recorder, on_request=lambda _, request: b"!")
            async with serve(ANY, options=options) as server, raw_client(server.address) as raw:
                for piece in (encode(Hello(), limits)[:4], encode(Hello(), limits)[4:] + encode(QUESTION, limits)):
                    await raw.say(piece)
                    await asyncio.sleep(0)
                expected = encode(Hello(), limits) + encode(ANSWER, limits)
                assert await raw.reader.readexactly(len(expected)) == expected

    run(main)
    assert dialects(tmp_path / "talk.pcapng") == {("sizes_exclude_themselves",) if limits is SHORT else ()}


def test_without_auto_the_error_names_the_dialect_and_not_tls():
    def greeting(limits: Limits):
        async def talk(raw: Raw) -> None:
            await raw.say(encode(Hello(), limits))
            await raw.reader.read()

        return talk

    async def main():
        async with raw_server(greeting(SHORT)) as address:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(address):
                    pass
            assert "this peer leaves the size field out of sizes: set sizes_exclude_themselves=true" in str(caught.value)
            assert "tls" not in str(caught.value)

    async def other():
        async with raw_server(greeting(TEXT)) as address:
            with pytest.raises(ConnectFailed, match="this peer counts the size field in sizes") as caught:
                async with connect(address, options=Options(sizes_exclude_themselves=True)):
                    pass
            assert "tls" not in str(caught.value)

    run(main)
    run(other)


# What hints at TLS.


@pytest.mark.parametrize(
    ("said", "hinted"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", True),  # an alert
        (b"\x15\x03\x03\x00\x02\x02\x32", True),
        (b"\x16\x03\x03\x00\x50", True),  # a handshake
        (b"", True),  # closed without a word
        (b"\x15", False),
        (b"\x15\x02\x00", False),
        (b"\x16\x04", False),
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", False),
        (encode(Hello(7)), False),
        (encode(Data(b"x")), False),
        (encode(Hello())[:7], False),
    ],
)
def test_tls_is_suggested_only_where_it_may_help(said, hinted):
    async def main():
        async def talk(raw: Raw) -> None:
            await raw.reader.readexactly(len(encode(Hello())))
            await raw.say(said)

        async with raw_server(talk) as address:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(address):
                    pass
            assert ("(does it want tls://?)" in str(caught.value)) is hinted

    run(main)

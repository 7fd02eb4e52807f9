"""Peers that follow no rules: garbage, lines without an end, errors to errors, floods, and silence. Friends must not notice."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from tests.peers.wolpertinger.world import ANY, CALL_ID, Raw, called, failed, line, raw_client, raw_server
from tests.peers.world import log_of, run, until

from wirelake.errors import ConnectionLost, RemoteProtocolError, RequestFailed, WirelakeError
from wirelake.peers.wolpertinger import Options, connect, method, serve
from wirelake.peers.wolpertinger.demo_component import Demo
from wirelake.peers.wolpertinger.outgoing_calls import _ENDINGS
from wirelake.protocols.wolpertinger.events import CallFailed, Failure
from wirelake.protocols.wolpertinger.faults import Fault


@contextlib.asynccontextmanager
async def besieged(options=None):
    """A server, a friend that must go on talking, and a raw peer."""
    async with serve(ANY, Demo, options=options or Options()) as server, connect(server.address) as friend:
        async with raw_client(server.address) as raw:
            yield server, raw
        assert await friend.Demo.Add(1, 2) == 3


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        (b"hello\n", []),
        (b"\n\r\n;;;\n", []),
        (b"message_id:x;\n", []),
        (b"message_id:1;bogus:2;\n", [("5", "1")]),
        (b"message_id:1;message_id:1;\n", [("5", "1")]),
        (b"message_id:4294967296;\n", []),
        (b"message_id:2;!!!!\n", [("5", "2")]),
        (b"message_id:3;signature:abc;PHg+\n", [("5", "3")]),
        (b"message_id:4;encryption:aes;AAAA\n", [("4", "4")]),
        (b"message_id:6;fragment_index:0;PHg+\n", [("3", "6")]),
        (b"message_id:7;fragment_index:5;fragment_count:2;PHg+\n", [("3", "7")]),
        (b"result:0;message_id:99;\n", []),
        (b"result:0;message_id:1;gzip:1;\n", []),
        (bytes(range(256)).replace(b"\n", b"") + b"\n", []),
        (b"\xff\xfe\x00\n", []),
    ],
)
def test_a_line_that_breaks_layer_1_is_answered_there_or_not_at_all(said, answers):
    async def main():
        async with besieged() as (_, raw):
            await raw.say(said, line(1000, called("Demo", "Add", *['<object type="int32">2</object>'] * 2)))
            heard = []
            while (one := await raw.hear()).metadata.get("message_id") != "1000" or "result" not in one.metadata:
                heard.append((one.metadata["result"], one.metadata["message_id"]))
            assert heard == answers
            assert '<object type="int32">4</object>' in (await raw.message()).document

    run(main)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("", 301),
        ("not xml", 301),
        ("<a>" * 100, 301),
        ('<!DOCTYPE a [<!ENTITY b "c">]><RemoteMethodCall>&b;</RemoteMethodCall>', 301),
        ('<Surprise xmlns="http://nerdcave.eu/wolpertinger"/>', 302),
        (called("Demo", "Add"), 305),
        (called("Demo", "Add", '<object type="int32">1</object>', '<object type="int32">x</object>'), 305),
        (called("Demo", "Add", '<object type="int32">1</object>', '<object type="string">1</object>'), 305),
        (called("Demo", "Add", '<object type="directoryObjectDiff"/>', '<object type="int32">1</object>'), 306),
        (called("Demo", "Add", '<object type="shoe">1</object>'), 301),
        (called("Nobody", "Add"), 304),
        (called("demo", "add"), 303),
        (called("Demo", "Private"), 201),
        (called("Authentication", "UserAuthGetToken"), 201),
    ],
)
def test_a_document_that_breaks_layer_2_is_confirmed_and_answered_with_its_error(document, code):
    async def main():
        async with besieged() as (_, raw):
            await raw.say(line(1, document))
            assert (await raw.result()).metadata == {"result": "0", "message_id": "1"}
            heard = await raw.message()
            assert (heard.root, heard.of("ErrorCode")) == ("RemoteError", str(code))

    run(main)


def test_errors_and_results_are_never_answered():
    async def main():
        async with besieged() as (_, raw):
            for number in range(1, 20):
                await raw.say(line(number, failed("Demo", 301, CALL_ID)), b"result:5;message_id:%d;\n" % number)
            await raw.say(line(50, "<RemoteError><ErrorCode>x</ErrorCode></RemoteError>"))
            for number in (*range(1, 20), 50):
                assert (await raw.result()).metadata == {"result": "0", "message_id": str(number)}
            await raw.say(line(51, called("Demo", "Add")))
            await raw.result()
            assert (await raw.message()).of("ErrorCode") == "305"

    run(main)


@pytest.mark.slow
def test_a_line_without_an_end_ends_the_connection_and_not_the_memory():
    async def main():
        options = Options(max_text_size=10_000)
        async with besieged(options) as (server, raw):
            with contextlib.suppress(OSError):
                for _ in range(200):
                    await raw.say(b"x" * 1000)
            with contextlib.suppress(OSError):
                assert await raw.reader.read() == b""
            await until(lambda: len(server.peers) == 1)

    run(main)


@pytest.mark.slow
def test_who_never_reads_is_read_no_more():
    async def main():
        options = Options(max_unsent=200_000, stall_timeout=0.5, linger=0.1)
        with log_of("wirelake.driver"):
            async with besieged(options) as (server, raw):
                text = "x" * 20_000
                for number in range(1, 4000):
                    identifier = f"00000000-0000-0000-0000-{number:012}"  # an id in flight would not be answered
                    raw.writer.write(line(number, called("Demo", "Echo", f'<object type="string">{text}</object>', call_id=identifier)))
                    if number % 50 == 0:
                        await asyncio.sleep(0)
                        if len(server.peers) == 1:
                            break
                await until(lambda: len(server.peers) == 1)
                raw.writer.transport.abort()

    run(main)


def test_a_flood_of_calls_is_read_no_faster_than_it_is_worked_on():
    async def main():
        may, working = asyncio.Event(), []

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                working.append(1)
                await may.wait()
                return True

        options = Options(max_outgoing_calls=1_000_000, max_in_flight=10)
        async with serve(ANY, Slow, options=options) as server, raw_client(server.address) as raw:
            flood = b"".join(
                line(number, called("Slow", "Wait", call_id=f"00000000-0000-0000-0000-{number:012}")) for number in range(1, 20_000)
            )
            task = asyncio.ensure_future(raw.say(flood))
            await until(lambda: len(working) >= 10)
            before = -1
            while before != len(working):
                before = len(working)
                await asyncio.sleep(0.05)
            assert before < 2000, "a read is at most 256 KiB"
            task.cancel()
            may.set()

    run(main)


@pytest.mark.parametrize("seed", range(6))
def test_noise_never_takes_a_server_down(seed):
    async def main():
        dice = random.Random(seed)
        spoken = [
            line(1, called("Demo", "Echo", '<object type="string">x</object>')),
            line(2, failed("Demo", 100)),
            b"result:0;message_id:1;\n",
            line(3, called("Core", "SendResetNotice")),
            line(4, called("Authentication", "EstablishConnection")),
            line(
                5,
                called(
                    "Authentication", "KeyExchange", '<object type="string">RUNLNUIAAAA=</object>', '<object type="string">AA==</object>'
                ),
            ),
            line(6, b"\x1f\x8b", gzip=2),
            line(7, "<x/>", fragment_index=0, fragment_count=2),
        ]
        async with serve(ANY, Demo) as server, connect(server.address) as friend:
            for _ in range(10):
                async with raw_client(server.address) as raw:
                    said = bytearray(b"".join(dice.choices(spoken, k=8)))
                    for _ in range(dice.randrange(6)):
                        said[dice.randrange(len(said))] = dice.randrange(256)
                    await raw.say(bytes(said))
                    raw.writer.write_eof()
                    await raw.reader.read()
            assert await friend.Demo.Add(1, 2) == 3

    with log_of("wirelake.wolpertinger"):
        run(main)


def test_a_client_survives_a_server_that_answers_nonsense():
    async def main():
        async def mad(raw: Raw):
            heard = await raw.message()
            call_id = heard.of("CallId")
            await raw.say(b"garbage\n", line(1, "<RemoteMethodResponse/>"), line(2, failed("Demo", 999, call_id.upper())))
            while await raw.message() is not None:
                pass

        async with raw_server(mad) as address, connect(address) as peer:
            with pytest.raises(RequestFailed) as caught:
                await peer.Demo.Add(1, 2)
            assert caught.value.body == 999
            assert "unknown" in str(caught.value)
            assert peer.noticed

    run(main)


def test_a_response_that_cannot_be_read_fails_its_call():
    async def main():
        async def mad(raw: Raw):
            call_id = (await raw.message()).of("CallId")
            await raw.say(
                line(
                    1,
                    f"<RemoteMethodResponse><ComponentName>Demo</ComponentName><CallId>{call_id}</CallId>"
                    '<ResponseValue><object type="int32">many</object></ResponseValue></RemoteMethodResponse>',
                )
            )
            while await raw.message() is not None:
                pass

        async with raw_server(mad) as address, connect(address) as peer:
            with pytest.raises(RemoteProtocolError, match=r"the response to Demo\.Add cannot be read") as caught:
                await peer.Demo.Add(1, 2)
            assert caught.value.fault is Fault.ANSWER_WRONG

    run(main)


def test_every_way_a_call_can_fail_has_its_error():
    for why in Failure:
        assert why is Failure.ENDED or isinstance(_ENDINGS[why]("Demo.Add", CallFailed(CALL_ID, why, 5)), WirelakeError)


def test_a_connection_that_breaks_fails_every_call_with_the_reason():
    async def main():
        async def hang_up(raw: Raw):
            await raw.message()
            raw.writer.transport.abort()

        async with raw_server(hang_up) as address, connect(address) as peer:
            results = await asyncio.gather(*(peer.Demo.Add(1, 2) for _ in range(5)), return_exceptions=True)
            assert {type(one) for one in results} == {ConnectionLost}
            assert peer.ended.fault in Fault

    run(main)

"""Timeouts of both layers, heartbeats, and repetition, with timers short enough to wait for."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.wolpertinger.world import ANY, NAMESPACE, Raw, Shop, called, failed, line, raw_client, raw_server
from tests.peers.world import run

from wirelake.errors import DeliveryFailed, RequestTimeout
from wirelake.peers.wolpertinger import Options, connect, method, serve


def answered(heard):
    """A response to a call, written by hand."""
    return line(
        5,
        f'<RemoteMethodResponse xmlns="{NAMESPACE}"><ComponentName>Shop</ComponentName><CallId>{heard.of("CallId")}</CallId>'
        '<ResponseValue><object type="int32">7</object></ResponseValue></RemoteMethodResponse>',
    )


def test_a_call_that_is_confirmed_and_not_answered_times_out_and_a_late_answer_is_ignored():
    async def main():
        async def slow(raw: Raw):
            first = await raw.message()
            second = await raw.message()
            await raw.say(answered(first), answered(second).replace(b"message_id:5", b"message_id:6"))
            while await raw.message() is not None:
                pass

        async with raw_server(slow) as address, connect(address) as peer:
            with pytest.raises(RequestTimeout, match=r"no response to Shop\.Level1 in time"):
                await peer.Shop.Level1(timeout=0.1)
            assert await peer.Shop.Level1() == 7

    run(main)


def test_a_message_that_nobody_confirms_is_repeated_and_then_given_up():
    async def main():
        heard = []

        async def deaf(raw: Raw):
            while (one := await raw.message(confirm=False)) is not None:
                heard.append(one)

        options = Options(confirm_timeout=0.05, retries=2)
        async with raw_server(deaf) as address, connect(address, options=options) as peer, peer.subscribe("unavailable") as events:
            with pytest.raises(DeliveryFailed, match=r"Shop\.Note was not delivered"):
                await peer.Shop.Note.tell("x")
            assert (await anext(events)).name == "unavailable"
        assert [one.metadata["message_id"] for one in heard[:3]] == ["1", "1", "1"]

    run(main)


def test_a_void_call_is_done_when_it_is_confirmed_and_not_before():
    async def main():
        may = asyncio.Event()

        async def late(raw: Raw):
            heard = await raw.message(confirm=False)
            await may.wait()
            await raw.say(f"result:0;message_id:{heard.metadata['message_id']};\n".encode())
            await raw.hear()

        async with raw_server(late) as address, connect(address) as peer:
            told = asyncio.ensure_future(peer.Shop.Note.tell("x"))
            await asyncio.sleep(0.05)
            assert not told.done()
            may.set()
            await told

    run(main)


def test_a_refused_message_fails_its_call_with_the_result():
    async def main():
        async def refusing(raw: Raw):
            heard = await raw.message(confirm=False)
            await raw.say(f"result:5;message_id:{heard.metadata['message_id']};\n".encode())
            await raw.hear()

        async with raw_server(refusing) as address, connect(address) as peer:
            with pytest.raises(DeliveryFailed, match="result 5") as caught:
                await peer.Shop.Level1()
            assert caught.value.outcome == 5

    run(main)


@pytest.mark.slow
def test_heartbeats_keep_a_call_alive_that_takes_longer_than_its_timeout():
    async def main():
        may = asyncio.Event()

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                await may.wait()
                return True

        beating = Options(heartbeat_interval=0.05)
        async with serve(ANY, Slow, options=beating) as server, connect(server.address) as peer:
            waiting = asyncio.ensure_future(peer.Slow.Wait(timeout=2.0))
            await asyncio.sleep(2.5)
            assert not waiting.done(), "heartbeats restart its timer"
            may.set()
            assert await waiting is True

    run(main)


def test_heartbeats_are_sent_only_while_a_call_with_a_response_is_at_work():
    async def main():
        may, began = asyncio.Event(), asyncio.Event()

        class Slow:
            @method(trust=0)
            async def Wait(self) -> bool:  # noqa: N802
                await may.wait()
                return True

            @method(trust=0)
            async def Begin(self) -> None:  # noqa: N802
                began.set()
                await may.wait()

        beating = Options(heartbeat_interval=0.05)
        async with serve(ANY, Slow, options=beating) as server, raw_client(server.address) as raw:
            await raw.say(line(1, called("Slow", "Begin")))
            await began.wait()
            assert (await raw.result()).metadata["message_id"] == "1"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(raw.reader.read(1), 0.2)
            await raw.say(line(2, called("Slow", "Wait", call_id="0" * 8 + "-0000-0000-0000-" + "0" * 12)))
            for _ in range(2):
                heard = await raw.message()
                assert (heard.of("ComponentName"), heard.of("MethodName")) == ("Core", "Heartbeat")
            may.set()
            while (heard := await raw.message()).root != "RemoteMethodResponse":
                assert heard.of("MethodName") == "Heartbeat"

    run(main)


def test_a_repeated_message_is_confirmed_again_and_carried_out_once():
    async def main():
        shops = []

        class Till(Shop):
            component = "Shop"

            def __init__(self):
                super().__init__()
                shops.append(self)

        async with serve(ANY, Till) as server, raw_client(server.address) as raw:
            said = line(1, called("Shop", "Note", '<object type="string">once</object>'))
            for _ in range(3):
                await raw.say(said)
                assert (await raw.result()).metadata == {"result": "0", "message_id": "1"}
            await raw.say(line(1, called("Shop", "Note", '<object type="string">another</object>')))
            assert (await raw.result()).metadata == {"result": "0", "message_id": "1"}
        assert [one.notes for one in shops] == [["once", "another"]]

    run(main)


def test_errors_that_answer_no_call_are_told_both_ways():
    async def main():
        told = asyncio.Queue()
        options = Options(on_event=lambda _, event: told.put_nowait(event))
        async with serve(ANY, Shop, options=options) as server:
            async with raw_client(server.address) as raw:
                await raw.say(line(1, failed("Shop", 1)), line(2, failed("Shop", 502, "0" * 8 + "-0000-0000-0000-" + "0" * 12)))
                assert [(event.component, event.code, event.name) for event in [await told.get(), await told.get()]] == [
                    ("Shop", 1, None),
                    ("Shop", 502, "ItemNotFoundError"),
                ]
            async with connect(server.address) as peer, peer.subscribe("error") as errors:
                assert await peer.Shop.testMethod1("x", False) == "x"
                other = next(one for one in server.peers if one.is_open)
                other.send_error("Shop", 500)
                assert (await anext(errors)).event.code == 500

    run(main)

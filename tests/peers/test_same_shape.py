"""Incoming messages, handlers and `reconnect` have the same shape in all five protocols."""

from __future__ import annotations

import asyncio
import inspect

import msgspec
import pytest
from tests.peers.relink_world import ANY, DEMO, Proxy, make_options
from tests.peers.world import run, until

import wirelake
from wirelake import emp, event_mesh, relink, wolpertinger, yamp
from wirelake.errors import DeliveryFailed, SessionClosed

PROTOCOLS = [emp, event_mesh, relink, yamp, wolpertinger]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__.rpartition(".")[2])
def test_options_are_flat_frozen_and_keyword_only(protocol):
    options = protocol.Options
    assert issubclass(options, msgspec.Struct)
    assert options.__struct_config__.frozen
    kinds = {parameter.kind for parameter in inspect.signature(options).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    nested = [field.name for field in msgspec.structs.fields(options) if field.name in ("session", "limits", "live")]
    assert nested == []


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__.rpartition(".")[2])
def test_live_options_are_those_of_the_session_and_more(protocol):
    session = protocol.Options.__base__
    assert session.__module__ == protocol.__name__.replace("peers", "protocols") + ".options"
    assert set(session.__struct_fields__) < set(protocol.Options.__struct_fields__)
    assert protocol.Options().limits == protocol.Options()


def test_messages_are_read_with_async_for():
    async def main():
        async with emp.serve(ANY) as server, emp.connect(server.address) as peer:
            await until(lambda: any(one.is_open for one in server.peers))
            await next(iter(server.peers)).send(b"data")
            assert [message.body async for message in _first(peer)] == [b"data"]
        async with yamp.serve(ANY) as server, yamp.connect(server.address) as peer:
            events = _first(peer)
            await until(lambda: any(one.is_open for one in server.peers))
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            server.broadcast("news", 1)
            assert (await waiting).body == 1
        async with event_mesh.node("udp://127.0.0.1:0") as panel, event_mesh.node("udp://127.0.0.1:0", peers=[panel.address]) as sensor:
            waiting = asyncio.ensure_future(anext(_first(panel)))
            await asyncio.sleep(0)
            await sensor.publish("plant.temperature", 5)
            assert (await waiting).content == [5]
        async with wolpertinger.serve(ANY) as server, wolpertinger.connect(server.address) as peer:
            waiting = asyncio.ensure_future(anext(_first(peer)))
            await asyncio.sleep(0)
            await until(lambda: server.peers)
            next(iter(server.peers)).send_error("Weather", 100)
            assert (await waiting).name == "error"

    run(main)


async def _first(peer):
    async for message in peer:
        yield message
        return


def test_both_sides_take_a_request_handler():
    async def main():
        upper = lambda _, request: request.body.upper()  # noqa: E731
        async with emp.serve(ANY, on_request=upper) as server, emp.connect(server.address, on_request=upper) as peer:
            assert await peer.request(b"there", timeout=5) == b"THERE"
            assert await next(iter(server.peers)).request(b"back", timeout=5) == b"BACK"

    run(main)


def test_without_reconnect_the_end_of_the_connection_ends_the_link():
    async def main():
        async def keep(link):
            await link.over()

        async with (
            relink.serve(ANY, {DEMO: keep}, options=make_options(close_timeout=0.1)) as listener,
            Proxy(listener.address) as proxy,
            relink.connect(proxy.address, DEMO, options=make_options()) as link,
        ):
            receipt = await link.channel(b"chan").post(b"never consumed")
            proxy.cut_after = 0
            with pytest.raises((DeliveryFailed, SessionClosed)):
                await link.channel(b"chan").send(b"lost", timeout=10)
            assert await receipt is relink.Outcome.UNKNOWN
            assert link.is_over
            assert proxy.connections == 1

    run(main)


def test_the_public_modules_are_the_live_packages():
    assert [getattr(wirelake, name) for name in ("emp", "event_mesh", "relink", "yamp", "wolpertinger")] == PROTOCOLS

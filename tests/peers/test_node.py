"""Live nodes on loopback: they find each other, publish and hear, relay, and keep their bounds."""

from __future__ import annotations

import asyncio
from importlib import import_module

import pytest
from tests.peers.nodes import make_options, names, proven
from tests.peers.world import log_of, run, until
from tests.protocols.event_mesh.mesh import credentials
from tests.transports.certificates import Authority
from tests.transports.test_udp import GROUP4, HOSTS, loopback

from wirelake.errors import LocalProtocolError, SessionClosed, UsageError
from wirelake.peers.event_mesh import Options, node
from wirelake.protocols.event_mesh import Fault, RelayRule, Sealer, State
from wirelake.protocols.event_mesh.packet.builder import build
from wirelake.protocols.event_mesh.packet.values import integer, text
from wirelake.transports import udp
from wirelake.transports.memory import MemoryNetwork
from wirelake.transports.quic import Quic

# Talking.


@pytest.mark.parametrize("host", HOSTS)
def test_two_nodes_find_each_other_and_talk_both_ways(host):
    address = f"udp://[{host}]:0" if ":" in host else f"udp://{host}:0"

    async def main():
        async with proven("a", "b", address=address) as one, proven("b", "a", address=address, peers=[one.address]) as two:
            here, there = one.subscribe("plant.*"), two.subscribe(">")
            await until(lambda: one.peers and two.peers)
            assert [peer.state for peer in (*one.peers, *two.peers)] == [State.GREETED] * 2
            message_id = await two.publish("plant.boiler", 81.5, "hot", 7, b"\0", {"deep": 1})
            event = await anext(here)
            assert (event.name, event.message.message_id) == ("plant.boiler", message_id)
            assert event.content == ["hot", 7, 81.5, b"\0", '{"deep":1}']
            assert event.identity.node_id == two.node_id
            await one.publish("answer")
            assert await names(there, 1) == ["answer"]
            assert one.metrics.session.rejected == {}

    run(main)


@pytest.mark.slow
@pytest.mark.parametrize("factory", [None, "uvloop"], ids=["asyncio", "uvloop"])
def test_a_thousand_events_arrive_in_order_on_either_loop(factory):
    loop = import_module("uvloop").new_event_loop if factory else None

    async def main():
        async with proven("a", "b") as one, proven("b", "a", peers=[one.address]) as two:
            heard = one.subscribe("n")
            for number in range(1000):
                await two.publish("n", number)
            assert [(await anext(heard)).content for _ in range(1000)] == [[number] for number in range(1000)]
            counted = one.metrics
            assert (counted.lost, counted.inbox_full, counted.session.delivered) == (0, 0, 1000)

    run(main, loop_factory=loop)


def test_nodes_inside_quic(tmp_path):
    authority = Authority(tmp_path)
    cert = authority.sign("127.0.0.1")
    quic = Quic(cert.cert, cert.key, ca_file=authority.files.cert)

    async def main():
        address = "quic://127.0.0.1:0"
        async with (
            proven("a", "b", address=address, quic=quic) as one,
            proven("b", "a", address=address, quic=quic, peers=[one.address]) as two,
        ):
            here, there = one.subscribe(">"), two.subscribe(">")
            await two.publish("to.one", 1)
            assert (await anext(here)).content == [1]
            await one.publish("to.two", 2)
            assert (await anext(there)).content == [2]
            assert one.address.startswith("quic://")

    run(main)


def test_nodes_in_memory():
    async def main():
        net = MemoryNetwork()
        async with (
            node(endpoint=net.endpoint("a"), credentials=credentials("a"), options=make_options("b")) as one,
            node(endpoint=net.endpoint("b"), credentials=credentials("b"), options=make_options("a"), peers=["memory://a:1"]) as two,
        ):
            heard = one.subscribe(">")
            await two.publish("x")
            assert await names(heard, 1) == ["x"]
        assert net.endpoints == {}

    run(main)


def test_a_group_reaches_everybody_who_listens_to_it():
    group, how = f"udp://{GROUP4}:15045", udp.Multicast(interface=loopback())

    async def main():
        async with (
            proven("a", "b", "c", groups=[group], multicast=how) as one,
            proven("b", "a", "c", groups=[group], multicast=how) as two,
            proven("c", "a", "b", groups=[group], multicast=how) as three,
        ):
            heard = [two.subscribe("x"), three.subscribe("x")]
            await one.publish("x", "to all")
            for each in heard:
                assert (await anext(each)).content == ["to all"]
            await until(lambda: len(one.peers) == 2)
            await until(lambda: one.metrics.session.own)  # what comes back to its sender is known and passed over
            assert one.metrics.session.rejected == {}

    run(main)


def test_an_event_can_go_to_some_and_be_sealed_and_compressed():
    key = bytes(range(32))

    async def main():
        keyed = Options(opening_keys={credentials("a").node_id: key})
        async with proven("b", "a", base=keyed) as two, proven("c", "a") as three, proven("a", peers=[two.address]) as one:
            heard, other = two.subscribe(">"), three.subscribe(">")
            await one.publish("secret", "x", sealer=Sealer(key), compressed=True, urgent=True)
            event = await anext(heard)
            assert (event.name, event.content, event.urgent) == ("secret", ["x"], True)
            await one.publish("aside", to=[three.address])
            assert await names(other, 1) == ["aside"]
            assert len(heard) == 0

    run(main)


def test_messages_of_other_types_go_to_who_handles_them():
    got = []

    async def main():
        options = Options(handled_types=frozenset({0x80}))
        async with proven("a", "b", base=options, on_other=lambda _, event: got.append(event)) as one:
            raw = await udp.listen("127.0.0.1", 0)
            made = int(one.options.clock())
            for kind in (0x80, 0x81):
                raw.send(build(kind, [text("x")], credentials("b"), message_id=kind, timestamp=made), one._endpoint.local)
            await until(lambda: one.metrics.session.accepted == 2)
            await raw.close()
            assert [event.message.event_type for event in got] == [0x80]
            assert one.metrics.session.ignored == 1

    run(main)


# Subscribers.


def test_a_handler_gets_one_event_after_the_other_and_may_fail():
    got, running = [], 0

    async def slow(_node, event):
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        if event.content == [3]:
            raise ValueError("no threes")
        got.append(event.content[0])

    async def main():
        async with proven("a", "b") as one, proven("b", "a", peers=[one.address]) as two:
            one.subscribe("n", slow)
            one.subscribe("n", lambda _, event: got.append(-event.content[0]))
            with log_of("wirelake.event_mesh") as lines:
                for number in range(1, 6):
                    await two.publish("n", number)
                await until(lambda: len(got) == 9)
            assert sorted(got) == [-5, -4, -3, -2, -1, 1, 2, 4, 5]
            assert one.metrics.callbacks_failed == 1
            assert any("failed" in line for line in lines)

    run(main)


def test_a_slow_subscriber_loses_and_counts_and_holds_up_nobody():
    async def main():
        async with proven("a", "b", max_inbox=10) as one, proven("b", "a", peers=[one.address]) as two:
            slow, urgent = one.subscribe("n"), one.subscribe("u")
            for number in range(100):
                await two.publish("n", number)
            await two.publish("u")
            assert await names(urgent, 1) == ["u"]
            assert (len(slow), slow.lost, one.metrics.inbox_full) == (10, 90, 90)
            assert [(await anext(slow)).content for _ in range(10)] == [[number] for number in range(10)]
            await two.publish("n", 100)
            assert (await anext(slow)).content == [100]

    run(main)


def test_urgent_events_are_read_first():
    async def main():
        async with proven("a", "b") as one, proven("b", "a", peers=[one.address]) as two:
            heard = one.subscribe(">")
            for name, urgent in (("calm", False), ("fire", True), ("calm", False)):
                await two.publish(name, urgent=urgent)
            await until(lambda: len(heard) == 3)
            assert await names(heard, 3) == ["fire", "calm", "calm"]

    run(main)


def test_a_subscription_ends_with_itself_and_with_its_node():
    async def main():
        async with proven("a", "b") as one, proven("b", "a", peers=[one.address]) as two:
            async with one.subscribe("x") as first:
                await two.publish("x")
                await until(lambda: len(first))
            assert [event.name async for event in first] == ["x"]
            await two.publish("x")
            await until(lambda: one.metrics.unheard == 1)
            second = one.subscribe("y")
            waiting = asyncio.ensure_future(anext(second, "the end"))
            await asyncio.sleep(0)
        assert await waiting == "the end"
        with pytest.raises(SessionClosed):
            one.subscribe("x")
        with pytest.raises(SessionClosed):
            await one.publish("x")
        assert one.metrics.session.delivered == 2
        with pytest.raises(UsageError):
            async with proven("c") as three:
                three.subscribe("a*")

    run(main)


# Bounds and back-pressure.


class Stuck:
    """An endpoint that takes nothing until it is told."""

    def __init__(self, inner):
        self.inner, self.taking, self.moved = inner, False, asyncio.Event()

    def send(self, data, to):
        return self.inner.send(data, to) if self.taking else False

    async def ready(self):
        await self.moved.wait()

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_who_publishes_waits_for_room_and_urgent_events_go_first():
    async def main():
        net = MemoryNetwork()
        stuck = Stuck(net.endpoint("b"))
        options = Options(max_queued=40, max_urgent=5, hello_interval=None)
        sender = node(endpoint=stuck, credentials=credentials("b"), options=make_options(base=options), peers=["memory://a:1"])
        async with node(endpoint=net.endpoint("a"), credentials=credentials("a"), options=make_options("b")) as one, sender as two:
            heard = one.subscribe(">")

            async def publish():
                for number in range(200):
                    await two.publish("n", number)

            async with asyncio.TaskGroup() as group:
                task = group.create_task(publish())
                await until(lambda: two._session.capacity(False) == 0)
                await asyncio.sleep(0.02)
                assert not task.done()
                await two.publish("fire", urgent=True)
                stuck.taking = True
                stuck.moved.set()
                got = [await anext(heard) for _ in range(201)]
            order = [event.name for event in got]
            assert [event.content[0] for event in got if event.name == "n"] == list(range(200))
            assert order.index("fire") <= 17  # what the transport had been offered already goes before
            assert two.metrics.session.queue_full == 0

    run(main)


def test_more_destinations_than_may_ever_wait_is_said():
    async def main():
        places = [f"udp://127.0.0.1:{port}" for port in range(20_000, 20_010)]
        async with proven("a", base=Options(max_queued=5, hello_interval=None)) as one:
            with pytest.raises(LocalProtocolError) as caught:
                await one.publish("x", to=places)
            assert caught.value.fault is Fault.QUEUE_FULL

    run(main)


@pytest.mark.parametrize("value", [True, None, 1 << 40, [1], 1e300, {"a": object()}])
def test_what_no_field_holds_is_refused(value):
    async def main():
        async with proven("a") as one:
            with pytest.raises(LocalProtocolError):
                await one.publish("x", value)
            await one.publish("x", integer(1))

    run(main)


# Relaying.


def test_three_nodes_in_a_ring_pass_on_and_come_to_rest():
    async def main():
        relay = Options(relay=(RelayRule(),))
        async with (
            proven("a", "b", "c", base=relay) as one,
            proven("b", "a", "c", base=relay, peers=[one.address]) as two,
            proven("c", "a", "b", base=relay, peers=[one.address, two.address]) as three,
        ):
            await until(lambda: all(len(each.peers) == 2 for each in (one, two, three)))
            heard = two.subscribe("x"), three.subscribe("x")
            for number in range(50):
                await one.publish("x", number)
            for each in heard:
                assert [(await anext(each)).content[0] for _ in range(50)] == list(range(50))
            await until(lambda: two.metrics.session.received >= 101)
            before = [each.metrics.session.sent for each in (one, two, three)]
            await asyncio.sleep(0.1)
            assert [each.metrics.session.sent for each in (one, two, three)] == before
            assert set(two.metrics.session.reasons()) <= {"replay"}

    run(main)


def test_a_line_of_nodes_carries_events_and_greetings_to_its_end():
    rule = RelayRule(types=frozenset({1, 2, 3}))

    async def main():
        async with (
            proven("b", "a", "c", base=Options(relay=(rule,), hello_interval=0.05)) as middle,
            proven("a", "b", "c", peers=[middle.address]) as one,
            proven("c", "a", "b", peers=[middle.address]) as two,
        ):
            await until(lambda: len(middle.peers) == 2)
            heard = two.subscribe("far")
            await one.publish("far", 1)
            event = await anext(heard)
            assert event.identity.node_id == one.node_id
            assert event.source == ("127.0.0.1", middle.target.port)

    run(main)


# Peers.


def test_silence_and_return_are_told():
    told = []

    async def main():
        quick = Options(heartbeat_interval=0.05, hello_interval=0.2, missed_heartbeats=2)
        async with proven("a", "b", base=quick, on_peer=lambda _, change: told.append(change)) as one:
            async with proven("b", "a", base=quick, peers=[one.address]) as two:
                await until(lambda: one.peers)
                where = two.address
            await until(lambda: one.peers[0].state is State.SILENT)
            async with proven("b", "a", base=quick, peers=[one.address], address=where):
                await until(lambda: one.peers[0].state is State.GREETED)
        assert [change.peer.state.name for change in told[:3]] == ["GREETED", "SILENT", "GREETED"]

    run(main)


def test_a_callback_that_fails_stops_nothing():
    def fail(_node, _event):
        raise RuntimeError("not today")

    async def main():
        async with proven("a", "b", on_peer=fail, on_drop=fail) as one, proven("b", "a", peers=[one.address]) as two:
            heard = one.subscribe("x")
            with log_of("wirelake.event_mesh"):
                two._endpoint.send(b"garbage", one._endpoint.local)
                await two.publish("x")
                assert await names(heard, 1) == ["x"]
                await until(lambda: one.metrics.callbacks_failed == 2)

    run(main)

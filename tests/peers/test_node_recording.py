"""What a node records is what it sent and received, one record for each datagram, one conversation for each remote address."""

from __future__ import annotations

from collections import Counter

from tests.capture.build import read_checked
from tests.peers.nodes import ANY, proven
from tests.peers.test_node_hostile import say
from tests.peers.world import run, until
from tests.protocols.event_mesh.mesh import credentials

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.event_mesh import Options, node
from wirelake.protocols.event_mesh import decode
from wirelake.protocols.event_mesh.messages import Event, Hello
from wirelake.transports import udp


def read(path):
    """By flow: who spoke to whom, each datagram with its direction, and what happened."""
    found: dict = {}
    for block in read_checked(path):
        for start, stop, flow, to_server, _missing in block.segments.tolist():
            found.setdefault(block.flows[flow], ([], []))[0].append((bool(to_server), bytes(block.data[start:stop])))
        for event in block.events:
            found.setdefault(block.flows[event.flow], ([], []))[1].append((event.what, event.detail))
    return found


def test_each_datagram_is_a_record_and_each_remote_a_conversation(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main():
        with Recorder(path) as recorder:
            async with (
                proven("a", "b", "c", recorder=recorder) as one,
                proven("b", "a", peers=[one.address]) as two,
                proven("c", "a", peers=[one.address]) as three,
            ):
                await until(lambda: len(one.peers) == 2)
                heard = two.subscribe("x")
                for number in range(30):
                    await one.publish("x", number)
                for _ in range(30):
                    await anext(heard)
                await three.publish("y")
                await until(lambda: one.metrics.session.delivered == 1)
                return one.target.port, two.target.port, three.target.port

    mine, second, third = run(main)
    flows = read(path)
    assert {flow.protocol for flow in flows} == {"event_mesh"}
    assert {(flow.transport, flow.known_by, flow.observer_kind) for flow in flows} == {("udp", "tag", "server")}
    assert {flow.server.port for flow in flows} == {mine}
    by_port = {flow.client.port: said for flow, said in flows.items()}
    assert set(by_port) == {second, third}
    for port in (second, third):
        said, happened = by_port[port]
        sent = [decode(data) for to_server, data in said if not to_server]
        assert [one.fields[1].value for one in sent if isinstance(one, Event)] == [number.to_bytes(4) for number in range(30)]
        assert happened[0] == ("opened", "")
        assert happened[-1] == ("closed", "closed")
    received = [decode(data) for to_server, data in by_port[third][0] if to_server]
    assert Counter(map(type, received))[Event] == 1
    assert Counter(map(type, received))[Hello] >= 1


def test_what_is_rejected_is_recorded_as_it_came(tmp_path):
    path, garbage = tmp_path / "talk.pcapng", [b"x", b"\xff" * 600, bytes(60_000), b"\1" * 17]

    async def main():
        raw = await udp.listen("127.0.0.1", 0)
        with Recorder(path) as recorder:
            async with node(ANY, options=Options(recorder=recorder)) as one:
                await say(raw, one, garbage)
        await raw.close()
        return raw.local[1]

    port = run(main)
    ((flow, (said, _)),) = read(path).items()
    assert said == [(True, data) for data in garbage]
    assert flow.client.port == port


def test_conversations_are_bounded_and_go_on_under_another_id(tmp_path):
    path = tmp_path / "talk.pcapng"

    async def main():
        raws = [await udp.listen("127.0.0.1", 0) for _ in range(3)]
        with Recorder(path) as recorder:
            async with node(ANY, options=Options(recorder=recorder, max_recorded=2)) as one:
                for raw in (*raws, raws[0]):
                    await say(raw, one, [b"x"])
                assert len(one._recording._open) == 2
        for raw in raws:
            await raw.close()

    run(main)
    flows = read(path)
    assert len(flows) == 4
    assert sorted(happened[-1][1] for _, happened in flows.values()) == [
        "closed",
        "closed",
        "made room for another",
        "made room for another",
    ]


def test_a_group_is_a_conversation_of_its_own(tmp_path):
    from tests.transports.test_udp import GROUP4, loopback

    path, group = tmp_path / "talk.pcapng", f"udp://{GROUP4}:15046"
    how = udp.Multicast(interface=loopback())

    async def main():
        with Recorder(path) as recorder:
            async with proven("a", groups=[group], multicast=how, recorder=recorder) as one:
                await one.publish("x")
                await until(lambda: one.metrics.session.own == 2)

    run(main)
    flows = read(path)
    assert {flow.client.address for flow in flows} == {GROUP4, "127.0.0.1"}
    assert credentials("a").node_id in b"".join(data for said, _ in flows.values() for _, data in said)

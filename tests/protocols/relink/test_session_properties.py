"""Any input: a session does not raise, keeps its invariants, and reads the same wherever the stream was cut."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import examples
from tests.protocols.relink import invariants
from tests.protocols.relink.pair import EPOCH, C, L

from wirelake.protocols import kernel
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import Ended, MessageReceived, Opened
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.wire import encode

LITTLE = Options(
    max_multicast=5,
    max_parts=4,
    max_part_size=64,
    max_message_size=100,
    ping_interval=None,
    window=4,
    max_unconsumed=6,
    max_channels=2,
    max_result_runs=2,
    ack_every=2,
    ack_delay=0.0,
)
ids = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3).map(tuple)
numbers = st.one_of(st.none(), st.integers(0, 6), st.sampled_from([0xFFFFFFFF, 0xFFFFFFFE, 0x7FFFFFFF, 0x80000000]))
packets = st.one_of(
    st.sampled_from([m.Nop(), m.Ping(), m.Pong(), m.Resume(), m.Shutdown()]),
    *(st.builds(kind, ids, numbers) for kind in (m.Commit, m.Rollback, m.Received, m.Consumed, m.Committed, m.Uncommitted)),
    *(st.builds(kind, ids) for kind in (m.Close, m.Closed)),
    st.builds(m.Message, ids, st.lists(st.binary(max_size=8), max_size=3).map(tuple)),
)


def facing(speaker, *, transactional: bool, resumed: bool) -> Session:
    """A session of ours with an open connection, some messages out, and the peer's part to be said."""
    endpoint = Endpoint("demo", 1, 1, transactional, transactional)
    request = m.Request("demo", 1, 1, endpoint.flags)
    if speaker is C:
        link = LinkCore(C, endpoint, LITTLE)
        if resumed:
            link.epoch, link.id = EPOCH, 7
        session = Session(C, LITTLE, link=link)
        message = [m.Version(), m.Reply(EPOCH, 7)]
    else:
        registry = Registry([endpoint], EPOCH, lambda: 7, LITTLE)
        if resumed:
            link, _ = registry.admit(request)
            request = m.Request("demo", 1, 1, endpoint.flags, EPOCH, 7)
        session = Session(L, LITTLE, registry=registry)
        message = [m.Version(), request]
    session.start(0.0)
    if resumed:
        for channel in (b"a", b"b"):
            link.send(channel, (b"x",))
        link.outbox.channels[b"a"].sent = 0
        link.outbox.channels[b"a"].take_received(0)
        link.close(b"b")
    for one in message:
        session.receive(encode(one), 0.0)
    assert session.ended is None
    return session


def react(session: Session, draw: random.Random) -> list[object]:
    """What an application does with what it is told, by chance."""
    events = session.events()
    link = session.link
    for event in events:
        if isinstance(event, MessageReceived) and draw.random() < 0.6:
            link.settle(event, 0.0, success=draw.random() < 0.5)
    if session.ended is None and draw.random() < 0.5 and link.outbox.free_window(b"a") > 0 and not link.outbox.is_shutting:
        outgoing = link.outbox.channels.get(b"a")
        if outgoing is None or not outgoing.closing:
            link.send(b"a", (b"y",))
            if draw.random() < 0.3:
                link.close(b"a")
    session.output()
    session.tick(0.0)
    return events


@pytest.mark.slow
@pytest.mark.parametrize("speaker", [C, L])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
@given(message=st.lists(packets, max_size=25), seed=st.integers(0, 99))
@examples(150)
def test_any_packets_in_any_order(speaker, transactional, resumed, message, seed):
    session, draw = facing(speaker, transactional=transactional, resumed=resumed), random.Random(seed)
    link = session.link
    for one in message:
        session.receive(encode(one), 0.0)
        react(session, draw)
        invariants.check(link)
        if session.ended is not None:
            break
    session.receive_eof(1.0)
    react(session, draw)
    invariants.check(link)
    assert session.ended is not None


@given(data=st.binary(max_size=300), stage=st.integers(0, 2))
@examples(300)
def test_any_bytes_at_any_stage(data, stage):
    for speaker in (C, L):
        session = facing(speaker, transactional=True, resumed=False)
        if stage < 2:
            endpoint = session.link.endpoint
            session = (
                Session(C, LITTLE, link=LinkCore(C, endpoint, LITTLE))
                if speaker is C
                else Session(L, LITTLE, registry=Registry([endpoint], EPOCH, lambda: 7, LITTLE))
            )
            session.start(0.0)
            if stage == 1:
                session.receive(encode(m.Version()), 0.0)
        session.receive(data, 0.0)
        session.events()
        session.output()


@given(
    parts=st.lists(st.lists(st.binary(max_size=40), max_size=4), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    fast=st.booleans(),
)
@examples(80)
def test_the_same_events_wherever_the_stream_is_cut(parts, cuts, fast):
    stream = encode(m.Version()) + encode(m.Request("demo", 1, 0))
    stream += b"".join(encode(m.Message((b"a",), tuple(one))) for one in parts) + encode(m.Close((b"a",)))
    parsed = []
    switch = kernel._use_compiled
    kernel._use_compiled = fast
    try:
        for sizes in ([len(stream)], cuts):
            session = Session(L, Options(), registry=Registry([Endpoint("demo", 1, 0)], EPOCH, lambda: 7))
            session.start(0.0)
            at, turn, events = 0, 0, []
            while at < len(stream):
                session.receive(stream[at : at + sizes[turn % len(sizes)]], 0.0)
                at += sizes[turn % len(sizes)]
                turn += 1
                events += session.events()
            parsed.append(events)
    finally:
        kernel._use_compiled = switch
    assert parsed[0] == parsed[1]
    assert isinstance(parsed[0][0], Opened)
    assert not any(isinstance(one, Ended) for one in parsed[0])

"""The handshake of both roles with all its variants: versions, endpoints, old and new links, what is refused and how."""

from __future__ import annotations

import pytest
from tests.protocols.relink.pair import EPOCH, QUIET, C, L, Pair

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import Ended, Ending, LinkLost, LinkShutdown, Opened
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import HandshakeFlag, Message, Ping, Reply, Request, Version
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import State
from wirelake.protocols.relink.wire import encode

DEMO = Endpoint("demo", 1, 1)
REQUIRING = Options(ping_interval=None, require_old_link=True)


def listener(options: Options = QUIET, *endpoints: Endpoint) -> Session:
    return Session(L, options, registry=Registry(endpoints or [DEMO], EPOCH, lambda: 7, options))


def connector(options: Options = QUIET, epoch: int = 0, link_id: int = 0) -> Session:
    link = LinkCore(C, DEMO, options)
    link.epoch, link.id = epoch, link_id
    session = Session(C, options, link=link)
    session.start(0.0)
    return session


def fault(session: Session) -> Fault | None:
    assert session.ended is not None
    assert session.ended.here
    return session.ended.fault


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_a_listener_answers_version_0_to_any(version):
    """RELINK-5."""
    session = listener()
    session.start(0.0)
    assert session.output() == b""
    session.receive(encode(Version(version)), 0.0)
    assert session.output() == encode(Version(0))
    assert session.state is State.GREETED


@pytest.mark.parametrize("version", [1, 255])
def test_a_connector_closes_on_any_other_version(version):
    """RELINK-5: higher than what it sent, or not supported."""
    session = connector()
    assert session.output() == encode(Version(0))
    session.receive(encode(Version(version)), 0.0)
    assert fault(session) is Fault.VERSION_UNSUPPORTED
    assert session.output() == b""


def test_half_duplex_byte_by_byte():
    """RELINK-4: 8 bytes, 8 bytes, the request, 16 bytes; nothing is said before its turn, however the bytes come."""
    one, other = connector(), listener()
    other.start(0.0)
    sizes = []
    for _ in range(3):
        for speaking, hearing in ((one, other), (other, one)):
            data = speaking.output()
            sizes.append(len(data))
            for at in range(len(data)):
                assert hearing.output() == b""
                hearing.receive(data[at : at + 1], 0.0)
    assert sizes == [8, 8, 24, 16, 0, 0]
    assert one.state is other.state is State.OPEN


def test_early_arrival_is_just_bytes_in_a_buffer():
    """RELINK-4: a connector that does not wait, not even with its first message."""
    session = listener()
    session.start(0.0)
    session.receive(encode(Version()) + encode(Request("demo", 1, 1)) + encode(Message((b"a",), (b"early",))), 0.0)
    assert session.output() == encode(Version()) + encode(Reply(EPOCH, 7))
    assert [type(one).__name__ for one in session.events()] == ["Opened", "MessageReceived"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request("other", 1, 1), Fault.ENDPOINT_UNKNOWN),
        (Request("", 1, 1), Fault.ENDPOINT_UNKNOWN),
        (Request("Demo", 1, 1), Fault.ENDPOINT_UNKNOWN),
        (Request("demo", 2, 1), Fault.SETTINGS_DIFFER),
        (Request("demo", 1, 2), Fault.SETTINGS_DIFFER),
        (Request("demo", 1, 1, 1), Fault.SETTINGS_DIFFER),
        (Request("demo", 1, 1, 2), Fault.SETTINGS_DIFFER),
        (Request("demo", 1, 1, 0, 0, 5), Fault.LINK_WITHOUT_EPOCH),
        (Request("demo", 1, 1, 0, 5, 1 << 63), Fault.LINK_ID_RANGE),
    ],
)
def test_requests_that_are_closed_without_a_reply(request_, expected):
    """RELINK-3, RELINK-8, RELINK-9, RELINK-31: names compare as bytes, settings exactly."""
    session = listener()
    session.start(0.0)
    session.receive(encode(Version()), 0.0)
    session.output()
    session.receive(encode(request_), 0.0)
    assert session.output() == b""
    assert fault(session) is expected


@pytest.mark.parametrize("name", ["", "ö", "n" * 255])
def test_endpoint_names_at_the_edge(name):
    """RELINK-31: empty, more bytes than characters, 255 bytes."""
    pair = Pair(Endpoint(name, 0, 255))
    pair.link(L).send(b"i" * 255, (b"x",))
    pair.run()
    assert pair.delivered(C) == [b"x"]


REQUIRE = HandshakeFlag.REQUIRE_OLD_LINK


@pytest.mark.parametrize(
    ("epoch", "link_id", "flags", "reply", "goes_on"),
    [
        (EPOCH, 7, 0, (EPOCH, 7), True),
        (EPOCH, 7, REQUIRE, (EPOCH, 7), True),
        (EPOCH, 6, 0, (EPOCH, 8), True),
        (EPOCH + 1, 7, 0, (EPOCH, 8), True),
        (EPOCH, 6, REQUIRE, (EPOCH, 0), False),
        (EPOCH + 1, 7, REQUIRE, (EPOCH, 0), False),
        (0, 0, 0, (EPOCH, 8), True),
        (0, 0, REQUIRE, (EPOCH, 0), False),
        (EPOCH, 0, 0, (EPOCH, 8), True),
    ],
)
def test_what_a_listener_makes_of_old_links(epoch, link_id, flags, reply, goes_on):
    """RELINK-9, RELINK-10: the table, row by row; the reply is always with the listener's own epoch."""
    pair = Pair()
    pair.lose()
    session = Session(L, QUIET, registry=pair.registry)
    session.start(0.0)
    session.receive(encode(Version()), 0.0)
    session.output()
    session.receive(encode(Request("demo", 1, 1, flags, epoch, link_id)), 0.0)
    assert session.output()[:16] == encode(Reply(*reply))
    assert (session.ended is None) == goes_on
    if not goes_on:
        assert session.ended.fault is None
        assert len(pair.registry.links) == 1


@pytest.mark.parametrize(
    ("options", "old", "reply", "expected"),
    [
        (QUIET, (0, 0), (EPOCH, 0), Fault.LINK_REFUSED),
        (QUIET, (EPOCH, 5), (EPOCH, 0), Fault.LINK_REFUSED),
        (REQUIRING, (EPOCH, 5), (EPOCH, 6), Fault.LINK_REPLACED),
        (REQUIRING, (EPOCH, 5), (EPOCH + 1, 5), Fault.LINK_REPLACED),
        (QUIET, (0, 0), (0, 5), Fault.EPOCH_ZERO),
        (QUIET, (0, 0), (EPOCH, 1 << 63), Fault.LINK_ID_RANGE),
    ],
)
def test_replies_a_connector_does_not_accept(options, old, reply, expected):
    """RELINK-8, RELINK-9, RELINK-10: a protocol error; the old link is kept for the next attempt."""
    session = connector(options, *old)
    session.receive(encode(Version()), 0.0)
    session.receive(encode(Reply(*reply)), 0.0)
    assert fault(session) is expected
    assert (session.link.epoch, session.link.id) == old
    assert not [one for one in session.events() if isinstance(one, LinkLost)]


def test_a_connector_without_a_link_does_not_require_one():
    """RELINK-10: the flag is cleared while there is no link."""
    session = connector(REQUIRING)
    session.output()
    session.receive(encode(Version()), 0.0)
    assert session.output() == encode(Request("demo", 1, 1))
    session.receive(encode(Reply(EPOCH, 5)), 0.0)
    assert session.events()[0] == Opened(EPOCH, 5, False)


def test_a_required_link_that_is_gone():
    """RELINK-10: link lost, and the connector stops."""
    session = connector(REQUIRING, EPOCH, 5)
    session.link.send(b"a", (b"x",))
    session.receive(encode(Version()), 0.0)
    assert session.output()[8:] == encode(Request("demo", 1, 1, REQUIRE, EPOCH, 5))
    session.receive(encode(Reply(EPOCH + 9, 0)), 0.0)
    lost, ended = session.events()
    assert (type(lost), lost.fault, lost.replaced, len(lost.unresolved)) == (LinkLost, Fault.LINK_LOST, False, 1)
    assert (type(ended), ended.here, ended.fault) == (Ended, False, None)
    assert session.link.is_over


def test_a_forgotten_link_after_shutdown_is_a_clean_end():
    """RELINK-23: the other side had heard our shutdown and forgot; we had nothing outstanding."""
    pair = Pair()
    pair.connector.shutdown()
    pair.out(C)
    pair.restart()
    pair.connect(run=True)
    assert pair.said(C)[1].flags == REQUIRE
    assert pair.of(C, LinkLost) == []
    assert len(pair.of(C, LinkShutdown)) == 1
    assert pair.connector.is_over


@pytest.mark.parametrize("side", ["connector", "listener"])
def test_the_handshake_takes_ten_seconds_at_most(side):
    """RELINK-4."""
    session = connector() if side == "connector" else listener()
    if side == "listener":
        session.start(0.0)
    session.tick(9.9)
    assert session.ended is None
    session.tick(10.0)
    assert fault(session) is Fault.HANDSHAKE_TIMEOUT
    assert session.deadline is None


def test_a_handshake_part_before_its_turn_is_refused():
    """RELINK-4: a listener's reply is 16 bytes after its version; a second reply is a packet, or nothing."""
    session = connector()
    session.receive(encode(Version()) + encode(Reply(EPOCH, 5)) + encode(Ping()), 0.0)
    assert session.ended is None
    assert session.output().endswith(bytes.fromhex("4000000000000000"))


def test_a_session_needs_what_it_is_for():
    for speaker, given in ((C, {}), (L, {}), (C, {"registry": Registry([DEMO], 1, lambda: 1)}), (L, {"link": LinkCore(C, DEMO)})):
        with pytest.raises(LocalProtocolError) as wrong:
            Session(speaker, **given)
        assert wrong.value.fault is Fault.NOT_OPEN
    for epoch in (0, 1 << 64, -1):
        with pytest.raises(LocalProtocolError) as wrong:
            Registry([DEMO], epoch, lambda: 1)
        assert wrong.value.fault is Fault.EPOCH_ZERO


def test_link_ids_are_drawn_until_one_is_free_and_legal():
    """RELINK-8: 1 to 2^63-1, and never one that is in use."""
    drawn = iter([0, 1 << 63, 9, 9, 9, 10])
    registry = Registry([DEMO], EPOCH, lambda: next(drawn), QUIET)
    ids = [registry.admit(Request("demo", 1, 1))[0].id for _ in range(2)]
    assert ids == [9, 10]


def test_end_of_stream_inside_and_between_packets():
    """RELINK-14: a partial packet is discarded; the link stays."""
    for rest, expected in ((b"", Fault.CLOSED_WITHOUT_PARTING), (b"\x11", Fault.CLOSED_INSIDE_MESSAGE)):
        pair = Pair()
        pair.give(L, rest)
        pair.ends[L].receive_eof(1.0)
        ended = pair.ends[L].ended
        assert (ended.how, ended.here, ended.fault) == (Ending.CLOSED, False, expected)
        assert not pair.registry.links[7].is_over

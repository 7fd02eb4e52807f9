"""Sessions that take the messages of a compiled scan in bulk hear what others hear, and compiling in a thread changes nothing else."""

from __future__ import annotations

import pytest
from tests.protocols.emp import speech
from tests.protocols.relink import speech as relink_speech

from wirelake.protocols import kernel
from wirelake.protocols.buffer import BULK
from wirelake.protocols.emp import session as emp
from wirelake.protocols.emp.events import DataReceived
from wirelake.protocols.emp.options import Options as EmpOptions
from wirelake.protocols.relink import Endpoint, Options, Registry, Session, Speaker
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.events import Ended, MessageReceived
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.outgoing_channel import JOINED, OutgoingChannel
from wirelake.protocols.relink.wire import encode

MANY = 3 * BULK
ONE_BY_ONE = "one by one"
"""Neither a compiled scan nor a run: every message is scanned and taken by itself."""


@pytest.fixture(params=["plain", "compiled", "compiled while in use"])
def way(request, monkeypatch):
    monkeypatch.setattr(kernel, "_use_compiled", request.param == "compiled")
    return request.param


def emp_events(said, way):
    session = emp.Session(emp.Speaker.SERVER, EmpOptions(ping_interval=None))
    session.start(0.0)
    session.receive(speech.hello(), 0.0)
    if way == "compiled while in use":
        session.compile()
    if way == ONE_BY_ONE:
        session._buffer.take_run = session._buffer.bulk = None
    session.receive(said, 0.0)
    return session.events()[1:]


ODD = {
    "nothing": b"",
    "a request": speech.request(1, b"?"),
    "unused bits": speech.envelope(speech.DATA, b"!", unused=b"\0\1\0"),
    "a ping": speech.ping,
    "a bye": speech.envelope(speech.BYE),
    "a broken one": speech.envelope(6),
}


@pytest.mark.parametrize("odd", ODD)
def test_emp_data_in_bulk(odd, way, monkeypatch):
    data = [speech.data(b"%d" % number) for number in range(MANY)]
    said = b"".join([*data[: BULK + 3], ODD[odd], *data[BULK + 3 :]])
    found = emp_events(said, way)
    monkeypatch.setattr(kernel, "_use_compiled", False)
    monkeypatch.setattr(kernel, "ready", {})
    assert found == emp_events(said, ONE_BY_ONE)
    assert found[0] == DataReceived(b"0")
    assert odd != "nothing" or len(found) == MANY


def link(way, **options):
    chosen = Options(ping_interval=None, **options)
    session = Session(Speaker.LISTENER, chosen, registry=Registry([Endpoint("bench", 4, 4)], 1, lambda: 1, chosen))
    session.start(0.0)
    session.receive(encode(m.Version()) + encode(m.Request("bench", 4, 4)), 0.0)
    if way == "compiled while in use":
        session.compile()
    if way == ONE_BY_ONE:
        session._buffer.take_run = session._buffer.bulk = None
    session.events()
    return session


def relink_events(said, way, **options):
    session = link(way, **options)
    session.receive(said, 0.0)
    return session.events()


BETWEEN = {
    "nothing": b"",
    "another channel": relink_speech.message((b"other"[:4],), (b"!",)),
    "two parts": relink_speech.message((b"chan",), (b"a", b"b")),
    "a multicast": relink_speech.message((b"chan", b"more"), (b"!",), multicast=True),
    "padding": relink_speech.message((b"chan",), (b"!",), fill=1),
    "a ping": relink_speech.GENERAL["ping"],
    "a close": encode(m.Close((b"chan",))),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_relink_messages_in_bulk(between, way, monkeypatch):
    packets = [relink_speech.message((b"chan",), (b"%d" % number,)) for number in range(MANY)]
    said = b"".join([*packets[: BULK + 3], BETWEEN[between], *packets[BULK + 3 :]])
    found = relink_events(said, way)
    monkeypatch.setattr(kernel, "_use_compiled", False)
    monkeypatch.setattr(kernel, "ready", {})
    assert found == relink_events(said, ONE_BY_ONE)
    first = next(event for event in found if isinstance(event, MessageReceived))
    assert (first.channel, first.sequence, first.parts) == (b"chan", 0, (b"0",))
    assert between != "nothing" or [event.sequence for event in found] == list(range(MANY))


def test_too_many_unconsumed_messages_end_a_connection_at_the_same_message(way):
    """RELINK-24: the limit holds inside a run, too."""
    said = b"".join(relink_speech.message((b"chan",), (b"x",)) for _ in range(MANY))
    found = relink_events(said, way, max_unconsumed=BULK + 5)
    assert sum(isinstance(event, MessageReceived) for event in found) == BULK + 5
    assert next(event for event in found if isinstance(event, Ended)).fault is Fault.UNCONSUMED_OVER_LIMIT


def test_a_run_is_consumed_like_its_messages_one_by_one():
    said = b"".join(relink_speech.message((b"chan",), (b"x",)) for _ in range(MANY))
    outputs = []
    for consume in ("one by one", "as a run", "in two runs"):
        session = link("plain", ack_delay=3600.0)
        session.receive(said, 0.0)
        messages, inbox = session.events(), session.link.inbox
        if consume == "one by one":
            for message in messages:
                inbox.consume(message)
        else:
            middle = MANY if consume == "as a run" else 7
            inbox.consume_run(messages[:middle])
            assert inbox.unconsumed == MANY - middle
            if middle < MANY:
                inbox.consume_run(messages[middle:])
        assert inbox.unconsumed == 0
        outputs.append(session.output())
    assert len(set(outputs)) == 1
    assert outputs[0]


def test_a_run_after_a_gap_waits_for_it():
    session = link("plain", ack_delay=3600.0)
    session.receive(b"".join(relink_speech.message((b"chan",), (b"x",)) for _ in range(4)), 0.0)
    first, *others = session.events()
    session.link.inbox.consume_run(others)
    assert session.link.inbox.unconsumed == 4
    session.link.inbox.consume(first)
    assert session.link.inbox.unconsumed == 0


def test_compiling_is_for_all_buffers_of_a_protocol_and_for_no_other(monkeypatch):
    monkeypatch.setattr(kernel, "_use_compiled", False)
    session = link("plain")
    session.compile()
    session.compile()
    assert len(kernel.ready) == 1
    assert session._buffer._scan in kernel.ready


def test_only_bytes_that_the_scanner_walks_ask_for_compiling():
    plain, request = speech.envelope(speech.DATA, b"x" * 100), speech.request(1, b"?")
    session = emp.Session(emp.Speaker.SERVER, EmpOptions(ping_interval=None))
    session.start(0.0)
    session.receive(speech.hello(), 0.0)
    session.receive(plain * MANY, 0.0)
    assert session.walked == 0
    session.receive(plain * MANY + request, 0.0)
    assert session.walked == len(request)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 128, 70_000])
@pytest.mark.parametrize("count", [1, 3, 700])
def test_relink_packets_of_one_size_are_joined_to_the_same_bytes(size, count):
    bodies = [bytes((number % 256,)) * size for number in range(count if size < 70_000 else 3)]
    one_by_one = OutgoingChannel(b"chan")
    expected = [one_by_one.packet((body,)) for body in bodies]
    channel = OutgoingChannel(b"chan")
    assert channel.packets(bodies, {size}) == expected, "the head of this size is not known yet"
    joined = channel.packets(bodies, {size})
    assert b"".join(joined) == b"".join(expected)
    assert all(len(piece) <= max(JOINED, len(expected[0])) for piece in joined)
    mixed = [*bodies, b"another size"]
    assert b"".join(channel.packets(mixed, set(map(len, mixed)))) == b"".join([*expected, one_by_one.packet((b"another size",))])

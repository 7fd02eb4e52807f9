"""Bytes to messages and back, streams through their handshake, and table rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.relink import speech

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.kernel import FAULT, LENGTH, PARTS
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.columns import SCHEMA, columns, readable
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.handshake import HandshakeReader, sniff
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, Limits, Stage, scan
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import buffer, decode, encode, message

ids = st.lists(st.binary(min_size=2, max_size=2), min_size=1, max_size=4).map(tuple)
sequences = st.one_of(st.none(), st.integers(0, m.LAST_SEQUENCE))
multicast = st.booleans()
packets = st.one_of(
    st.sampled_from([m.Nop(), m.Ping(), m.Pong(), m.Resume(), m.Shutdown()]),
    *(st.builds(kind, ids, sequences, multicast) for kind in (m.Commit, m.Rollback, m.Received, m.Consumed, m.Committed, m.Uncommitted)),
    *(st.builds(kind, ids, multicast) for kind in (m.Close, m.Closed)),
    st.builds(m.Message, ids, st.lists(st.binary(max_size=20), max_size=5).map(tuple), multicast, st.booleans(), st.booleans()),
)
handshakes = st.one_of(
    st.builds(m.Version, st.integers(0, 255)),
    st.builds(
        m.Request,
        st.text(max_size=60),
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 7),
        st.integers(1, (1 << 64) - 1),
        st.integers(0, m.LAST_LINK_ID),
    ),
    st.builds(m.Reply, st.integers(1, (1 << 64) - 1), st.integers(0, m.LAST_LINK_ID)),
)
STAGES = {m.Version: Stage.VERSION, m.Request: Stage.REQUEST, m.Reply: Stage.REPLY}


def stage_of(sent) -> Stage:
    return STAGES.get(type(sent), Stage.PACKETS)


def forced(sent):
    """As it is on the wire: many ids are multicast, whatever was asked for."""
    if getattr(sent, "ids", None) is not None and len(sent.ids) != 1:
        return type(sent)(**{**{name: getattr(sent, name) for name in sent.__struct_fields__}, "multicast": True})
    return sent


@given(st.one_of(packets, handshakes))
def test_encode_and_decode_are_each_others_inverse(sent):
    data = encode(sent)
    assert len(data) % 8 == 0
    assert decode(data, stage=stage_of(sent), sender_id_size=2, receiver_id_size=2) == forced(sent)


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (m.Version(256), Fault.FIELD_OUT_OF_RANGE),
        (m.Request("n" * 256), Fault.FIELD_OUT_OF_RANGE),
        (m.Request("n", 256), Fault.FIELD_OUT_OF_RANGE),
        (m.Request("n", 0, 0, 0, 1 << 64), Fault.FIELD_OUT_OF_RANGE),
        (m.Reply(-1, 0), Fault.FIELD_OUT_OF_RANGE),
        (m.Commit((b"a",), 1 << 32), Fault.FIELD_OUT_OF_RANGE),
        (m.Commit((b"a", b"bb")), Fault.ID_SIZE_WRONG),
        (m.Message((b"a" * 256,)), Fault.ID_SIZE_WRONG),
    ],
)
def test_values_that_their_field_cannot_hold(sent, fault):
    with pytest.raises(LocalProtocolError) as wrong:
        encode(sent)
    assert wrong.value.fault is fault


@pytest.mark.parametrize(
    ("data", "fault", "offset"),
    [
        (b"", Fault.MESSAGE_CUT, 0),
        (b"\x20" + bytes(6), Fault.MESSAGE_CUT, 7),
        (bytes(16), Fault.MESSAGE_CUT, 8),
        (b"\xa0" + bytes(7), Fault.GENERAL_TYPE_UNKNOWN, 0),
    ],
)
def test_what_is_not_one_packet(data, fault, offset):
    with pytest.raises(DecodeError) as wrong:
        decode(data)
    assert (wrong.value.fault, wrong.value.offset) == (fault, offset)


# A connection read from outside, as the lake reads it.


def test_a_prologue_follows_both_directions():
    """RELINK-7: the listener's packets cannot be read before the connector's request was; then each direction has its own sizes."""
    prologue = HandshakeReader()
    sent = {
        Speaker.CONNECTOR: [m.Version(), m.Request("demo", 3, 1), m.Message((b"abc",), (b"x",)), m.Consumed((b"z",), 4)],
        Speaker.LISTENER: [m.Version(), m.Reply(5, 6), m.Consumed((b"abc",), 4), m.Message((b"z",), (b"y",))],
    }
    assert prologue.id_sizes is None
    heard: dict[Speaker, list[m.AnyMessage]] = {speaker: [] for speaker in Speaker}
    for speaker, count in ((Speaker.LISTENER, 2), (Speaker.CONNECTOR, 4), (Speaker.LISTENER, 4)):
        for one in sent[speaker][len(heard[speaker]) : count]:
            data, row, parts = encode(one), [0] * ROW_COLUMNS, [0] * (1024 * PART_COLUMNS)
            limits = prologue.limits(speaker)
            assert limits is not None
            scan(data, 0, len(data), row, parts, limits)
            assert row[FAULT] == 0
            heard[speaker].append(one)
            is_handshake = isinstance(one, m.Version | m.Request | m.Reply)
            assert prologue.follow(speaker, data, row) == is_handshake
        if speaker is Speaker.LISTENER and count == 2:
            assert prologue.limits(Speaker.LISTENER) is None
    assert prologue.id_sizes == (3, 1)
    assert prologue.link == (5, 6)
    assert HandshakeReader(id_sizes=(1, 2), stage=Stage.PACKETS).limits(Speaker.LISTENER)[-2:] == (2, 1)


@pytest.mark.parametrize("cut", [1, 8, 23, 32, 300, 10_000])
@pytest.mark.parametrize("name", ["", "demo", "n" * 255])
def test_runs_are_cut_where_another_way_of_reading_begins(name, cut):
    """RELINK-7: as the lake walks runs: whatever runs a connection comes in, every byte is in one piece, and every packet is read right."""
    forth = [m.Version(), m.Request(name, 3, 1), m.Message((b"abc",), (b"x",)), m.Consumed((b"z",), 4)]
    back = [m.Version(), m.Reply(5, 6), m.Consumed((b"abc",), 4), m.Message((b"z",), (b"y",))]
    prologue = HandshakeReader()
    for speaker, sent in ((Speaker.CONNECTOR, forth), (Speaker.LISTENER, back)):
        stream = b"".join(map(encode, sent))
        found, left, at = [], b"", 0
        while at < len(stream):
            run = np.frombuffer(left + stream[at : at + cut], np.uint8)
            at += cut
            place = 0
            for limits, begin, stop in prologue.pieces(speaker, run, 0, len(run)):
                assert begin == place
                start, place = begin, stop
                row, parts = [0] * ROW_COLUMNS, [0] * (1024 * PART_COLUMNS)
                data = run.tobytes()
                while scan(data, start, stop, row, parts, limits)[0]:
                    found.append(message(data, row, parts))
                    start += row[LENGTH]
                left = data[start:stop]
            assert place == len(run)
        assert left == b""
        assert found == sent
    listener = HandshakeReader()
    pieces = list(listener.pieces(Speaker.LISTENER, stream, 0, len(stream)))
    assert [limits is None for limits, _, _ in pieces] == [False, False, True]
    assert pieces[-1][1:] == (24, len(stream))


def read(data: bytes, cut: int, **limits) -> list[m.AnyMessage]:
    one = buffer(Limits(**limits))
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    sent = [message(whole, row, parts) for piece in pieces for whole, rows, parts in one.feed(piece) for row in rows]
    assert one.rest == b""
    return sent


@pytest.mark.parametrize("cut", [1, 7, 8, 24, 1000])
def test_bytes_of_one_direction_are_read_through_the_handshake(cut):
    """RELINK-7: the connector's says both sizes; the listener's needs them said; without a handshake both do."""
    forth = [m.Version(), m.Request("demo", 3, 1), m.Message((b"abc",), (b"x",)), m.Consumed((b"z",), 4)]
    back = [m.Version(), m.Reply(5, 6), m.Consumed((b"abc",), 4), m.Message((b"z",), (b"y",))]
    sizes = {"connector_id_size": 3, "listener_id_size": 1}
    assert read(b"".join(map(encode, forth)), cut) == forth
    assert read(b"".join(map(encode, back)), cut, speaks="listener", **sizes) == back
    assert read(b"".join(map(encode, back[2:])), cut, speaks="listener", handshake=False, **sizes) == back[2:]
    with pytest.raises(LocalProtocolError) as unknown:
        read(b"".join(map(encode, back)), cut, speaks="listener")
    assert unknown.value.fault is Fault.ID_SIZES_UNKNOWN
    with pytest.raises(LocalProtocolError):
        read(b"", cut, handshake=False)


def test_what_is_written_repeats_the_only_channel_as_often_as_a_reader_takes():
    """RELINK-24."""
    encode(m.Close((b"",) * 16))
    encode(m.Close((b"1",) * 17))
    with pytest.raises(LocalProtocolError) as wrong:
        encode(m.Close((b"",) * 17))
    assert wrong.value.fault is Fault.MULTICAST_OVER_LIMIT


def test_limits_hold_for_what_is_written():
    """RELINK-24."""
    little = Limits(max_multicast=2, max_parts=2, max_part_size=3, max_message_size=4)
    for sent, fault in (
        (m.Close((b"",) * 3), Fault.MULTICAST_OVER_LIMIT),
        (m.Message((b"",), (b"",) * 3), Fault.PARTS_OVER_LIMIT),
        (m.Message((b"",), (b"1234",)), Fault.PART_OVER_LIMIT),
        (m.Message((b"",), (b"123", b"12")), Fault.MESSAGE_OVER_LIMIT),
    ):
        encode(sent)
        with pytest.raises(LocalProtocolError) as wrong:
            encode(sent, little)
        assert wrong.value.fault is fault


EPOCH = 1_700_000_000_000_000
"""Microseconds: November 2023."""


def test_streams_that_are_certainly_relink():
    version = bytes(8)
    assert sniff(version + speech.request())
    assert sniff(version + speech.request(b"demo", (4, 0), 7, 5, 6) + b"more")
    assert sniff(version + speech.request(b"", epoch=EPOCH, link=7))
    assert sniff(version + speech.request(b"") + speech.message(parts=(b"hello",)))
    assert sniff(version + speech.reply(EPOCH, 7))
    for other in (
        version + speech.request(b""),
        version + speech.request(b"") + speech.GENERAL["ping"],
        version + speech.request(b"") + speech.message(),
        version + speech.request(b"", epoch=5, link=7),
        version + speech.request(b"") + (1).to_bytes(8, "little"),
        version + speech.request(b"") + speech.message(parts=(b"hello",))[:-1],
        version + speech.reply(EPOCH, 7)[:-1],
        version + speech.reply(EPOCH, 0),
        version + speech.reply(EPOCH, 1 << 63),
        version + speech.reply(5, 7),
        b"",
        version,
        version * 4,
        version + speech.request()[:-1],
        b"\x01" + bytes(7) + speech.request(),
        version + speech.request(b"\xff\xfe"),
        version + speech.request(b"de\nmo"),
        version + speech.request(flags=8),
        version + speech.request(b"demo5", fill=1),
        version + speech.request(link=1),
        version + speech.request(epoch=1, link=1 << 63),
        b"\x00\x00\x00\x0c\x00\x00\x00\x00\x01\x00\x00\x00",
    ):
        assert not sniff(other), other


def table(sent: list[tuple[Stage, bytes]], sizes: tuple[int, int]):
    """Rows, parts and data of a mixed block."""
    data = b"".join(one for _, one in sent)
    rows, parts, at = [], [], 0
    for stage, one in sent:
        row, found = np.zeros(ROW_COLUMNS, np.int64), np.zeros(1100 * PART_COLUMNS, np.int64)
        scan(data, at, at + len(one), row, found, DEFAULT_LIMITS.for_scan(stage, *sizes))
        rows.append(row)
        parts.append(found[: row[PARTS] * PART_COLUMNS].reshape(-1, PART_COLUMNS))
        at += len(one)
    return np.frombuffer(data, np.uint8), np.array(rows), np.concatenate(parts)


def test_a_block_as_columns():
    """Every field of the specification by its name, and the vocabulary all protocols share."""
    packet = Stage.PACKETS
    sent = [
        (Stage.VERSION, encode(m.Version(3))),
        (Stage.REQUEST, encode(m.Request("ö", 2, 7, 5, 1 << 63, 9))),
        (Stage.REPLY, encode(m.Reply(77, m.LAST_LINK_ID))),
        (packet, encode(m.Ping())),
        (packet, encode(m.Message((b"ab",), (b'{"a":', b"1}")))),
        (packet, encode(m.Message((b"ab", b"cd", b"ab"), ()))),
        (packet, encode(m.Consumed((b"ab",), 0xFFFFFFFF))),
        (packet, encode(m.Uncommitted((b"ab",)))),
        (packet, encode(m.Rollback((b"ab", b"cd"), 4))),
        (packet, encode(m.Close((b"ab",)))),
        (packet, encode(m.Shutdown())),
        (packet, encode(m.Message((b"ab",), (b"x" * 70000, b""), long=True))),
        (Stage.REQUEST, speech.request(b"\xff")),
        (Stage.REPLY, speech.reply(0, 0)),
    ]
    data, rows, parts = table(sent, (2, 2))
    assert readable(rows).all()
    made = columns(data, rows, parts, DEFAULT_LIMITS)
    assert list(made.own) == SCHEMA.names
    own = {name: column.to_pylist() for name, column in made.own.items()}
    shared = {name: column.to_pylist() for name, column in made.shared.items()}
    assert [len(column) for column in (*own.values(), *shared.values())] == [len(sent)] * (len(own) + len(shared))
    assert own["type_name"] == [
        *("version", "request", "reply", "ping", "message", "message", "consumed", "uncommitted", "rollback", "close", "shutdown"),
        *("message", "request", "reply"),
    ]
    assert shared["name"] == own["type_name"]
    assert (
        shared["kind"]
        == [*["handshake"] * 3, "keepalive", "event", "event", "ack", "ack", "control", "control", "close", "event"] + ["handshake"] * 2
    )
    assert own["version"][:2] == [3, None]
    assert [own[name][1] for name in ("endpoint", "connector_id_size", "listener_id_size")] == ["ö", 2, 7]
    flags = ("connector_transactions", "listener_transactions", "require_old_link")
    assert [own[name][1] for name in flags] == [True, False, True]
    assert [(own["epoch"][index], own["link_id"][index]) for index in (1, 2, 3)] == [
        (1 << 63, 9),
        (77, m.LAST_LINK_ID),
        (None, None),
    ]
    assert own["payload"][3:6] == [None, [b'{"a":', b"1}"], []]
    assert own["channel_ids"][4:7] == [[b"ab"], [b"ab", b"cd", b"ab"], [b"ab"]]
    assert own["channel_id_count"][3:6] == [None, 1, 3]
    assert own["multicast"][3:6] == [None, False, True]
    assert own["sequence"][5:9] == [None, 0xFFFFFFFF, None, 4]
    assert own["format"][4:10] == [4, 4, 3, 1, 2, 0]
    assert own["type"][:11] == [None, None, None, 1, None, None, 1, 3, 1, 2, 4]
    assert (own["long"][11], own["large"][11], own["message_length"][11]) == (True, True, 2)
    assert own["oddities"][11] == 2
    assert own["fault"][-2:] == ["ENDPOINT_NOT_UTF8", "EPOCH_ZERO"]
    assert shared["status"][-3:] == ["ok", "faulty", "faulty"]
    assert shared["status"][7] == "error"
    assert shared["subject"][3:7] == [None, "6162", None, "6162"]
    assert shared["correlation_id"][6:9] == ["6162/4294967295", None, None]
    assert (shared["body"][4], shared["body"][5], shared["body"][3]) == (b'{"a":1}', b"", None)
    assert shared["body_json"][4:6] == ['{"a":1}', None]
    assert columns(data, rows, parts, DEFAULT_LIMITS, json_bodies=False).shared["body_json"].null_count == len(sent)


def test_a_block_without_messages():
    data, rows, parts = table([(Stage.PACKETS, encode(m.Ping()))], (0, 0))
    made = columns(data, rows, parts, DEFAULT_LIMITS)
    assert made.own["payload"].to_pylist() == [None]
    assert made.shared["body"].to_pylist() == [None]


def test_what_cannot_be_read_is_no_message():
    data, rows, _ = table([(Stage.PACKETS, b"\xa0" + bytes(7)), (Stage.PACKETS, bytes(8))], (0, 0))
    assert readable(rows).tolist() == [False, True]
    assert len(data) == 16

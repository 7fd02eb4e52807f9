"""Messages as table rows: every field by its name, bodies in the serializer that was agreed on."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each, examples
from tests.protocols.yamp import speech
from tests.protocols.yamp.scanning import walked
from tests.protocols.yamp.speech import OTHER, SPOKEN, UID
from tests.protocols.yamp.test_wire import MEANT

from wirelake.protocols.kernel import FAULT, KIND
from wirelake.protocols.yamp.columns import SCHEMA, columns, negotiated, readable
from wirelake.protocols.yamp.limits import DEFAULT_LIMITS
from wirelake.protocols.yamp.messages import Cancel, Close, CloseRedirect, Event, Handshake, Ping, Pong, Request, Response, name_of
from wirelake.protocols.yamp.scanner import ROW_COLUMNS
from wirelake.protocols.yamp.serializers.formats import installed
from wirelake.protocols.yamp.serializers.registry import STANDARD, Json
from wirelake.protocols.yamp.wire import encode


def made(runs, known=None, **how):
    """The columns of runs of bytes, as who walks them makes them."""
    data, places, at = b"".join(runs), [], 0
    for run in runs:
        places.append((at, at + len(run)))
        at += len(run)
    walk = walked(data, places, rows=256)
    array = np.frombuffer(data, np.uint8)
    rows, run_of = np.array(walk.rows, np.int64).reshape(-1, ROW_COLUMNS), np.array(walk.run_of, np.int64)
    body_serializers = negotiated(array, rows, run_of, {} if known is None else known)
    good = readable(rows)
    return columns(
        array, rows[good], np.zeros((0, 1), np.int64), DEFAULT_LIMITS, body_serializers=body_serializers.where(good), **how
    ), rows


def own(runs, **how):
    found, _ = made(runs, **how)
    return pa.table(found.own).to_pylist()


def shared(runs, **how):
    found, _ = made(runs, **how)
    return pa.table(found.shared).to_pylist()


@each("name", SPOKEN)
def test_every_field_is_a_column_by_its_name(name):
    (row,) = own([SPOKEN[name]])
    said = MEANT[name]
    assert (row["size"], row["type_name"], row["fault"]) == (len(SPOKEN[name]), name_of(type(said)), None)
    assert row["type"] == SPOKEN[name][0]
    fields = {field: getattr(said, field) for field in said.__struct_fields__}
    assert {field: row[field] for field in fields} == fields
    derived = {"size", "type", "type_name", "response_type_name", "body_serializer", "fault", "oddities"}
    assert {field for field, value in row.items() if value is not None} - derived == set(fields)
    if isinstance(said, Response):
        assert row["response_type_name"] == ["done", "error", "progress", "cancelled"][said.response_type]


def test_the_schema_is_what_comes_out():
    found, _ = made(list(SPOKEN.values()))
    assert list(found.own) == SCHEMA.names
    for name in SCHEMA.names:
        assert found.own[name].cast(SCHEMA.field(name).type).type == SCHEMA.field(name).type
    assert all(field.metadata[b"comment"] for field in SCHEMA)
    assert list(found.shared) == ["kind", "name", "subject", "correlation_id", "status", "fault", "body", "body_json", "verified"]


def test_the_vocabulary_all_protocols_share():
    said = {
        "handshake": ("handshake", None, None, "ok", None),
        "ping": ("keepalive", None, None, "ok", None),
        "pong": ("keepalive", None, None, "ok", None),
        "close": ("close", None, None, "ok", None),
        "redirect": ("close", None, None, "ok", None),
        "event": ("event", "foo", None, "ok", b"1"),
        "request": ("request", "sum", UID.hex(), "ok", b"[1,2]"),
        "cancel": ("cancel", "sum", OTHER.hex(), "ok", None),
        "done": ("response", "sum", OTHER.hex(), "ok", b"3"),
        "error": ("response", "sum", OTHER.hex(), "error", b'"bad"'),
        "progress": ("progress", "sum", OTHER.hex(), "ok", b"1"),
        "cancelled": ("response", "sum", OTHER.hex(), "ok", b""),
    }
    rows = shared([SPOKEN[name] for name in said])
    found = [tuple(row[name] for name in ("kind", "subject", "correlation_id", "status", "body")) for row in rows]
    assert found == list(said.values())


def test_what_must_not_be_said_is_a_row_with_its_fault():
    (row,) = own([speech.response(kind=4)])
    assert (row["response_type"], row["response_type_name"], row["fault"]) == (4, None, "RESPONSE_TYPE_UNKNOWN")
    assert shared([speech.response(kind=4)])[0]["status"] == "faulty"


def test_what_cannot_be_read_is_no_row():
    found, rows = made([speech.event(b"\xff") + speech.ping() + b"\x09"])
    assert [bool(fault) for fault in rows[:, FAULT]] == [True, False, True]
    assert len(found.own["size"]) == 1
    assert readable(rows).tolist() == [False, True, False]


def test_oddities():
    rows = own([speech.request(progressive=7) + speech.event(b"") + speech.handshake(1, b"") + speech.close(b"a\xff")])
    assert [row["oddities"] for row in rows] == [1, 2, 8, 4]
    assert rows[0]["progressive"] is True
    assert rows[3]["reason"] == "a\ufffd"


def test_no_rows_at_all():
    found, _ = made([b""])
    assert all(len(column) == 0 for column in (*found.own.values(), *found.shared.values()))


# Bodies.

VALUE = {"a": [1, None, "é"]}
BODIES = {name: serializer.serialize(VALUE if name != "xml" else {"a": "é"}) for name, serializer in installed().items()}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_json_whatever_it_was_on_the_wire(name):
    said = encode(Handshake(1, name)) + encode(Event(UID, "u", BODIES[name]))
    row = shared([said])[1]
    assert msgspec.json.decode(row["body_json"]) == (VALUE if name != "xml" else {"a": "é"})
    assert row["body"] == BODIES[name]
    assert own([said])[1]["body_serializer"] == name


def test_each_direction_of_each_connection_says_itself_what_it_speaks():
    """Runs are walked one after the other: the handshake of one says nothing of another."""
    packed = STANDARD["msgpack"].serialize(VALUE)
    runs = [
        encode(Handshake(1, "msgpack")) + speech.event(body=packed),
        speech.event(body=packed),
        encode(Handshake(1, "json")) + speech.event(body=b"5") + speech.response(body=b"{"),
        speech.event(body=b'{"a":1}') + speech.event(body=b"5"),
    ]
    found = [(row["name"], row["body_json"]) for row in shared(runs)]
    assert found == [
        ("system.handshake", None),
        ("event", '{"a":[1,null,"é"]}'),
        ("event", '{"a":[1,null,"é"]}'),
        ("system.handshake", None),
        ("event", "5"),
        ("response", None),
        ("event", '{"a":1}'),
        ("event", None),
    ]
    assert [row["body_serializer"] for row in own(runs)] == [None, "msgpack", None, None, "json", "json", None, None]


def test_what_was_agreed_on_is_known_when_the_next_piece_comes():
    known: dict[int, str] = {}
    packed = speech.event(body=STANDARD["msgpack"].serialize(VALUE))
    assert [row["body_json"] for row in shared([encode(Handshake(1, "json")), encode(Handshake(1, "msgpack"))], known=known)] == [None] * 2
    assert known == {0: "json", 1: "msgpack"}
    assert [row["body_json"] for row in shared([packed, packed], known=known)] == [None, '{"a":[1,null,"é"]}'], "one is refused"


def test_an_empty_serializer_is_the_server_s_default_and_taken_for_what_bodies_look_like():
    bodies = [b"[1]", b"\x91\x01", b"[1", b"\x91\x01\x01", b"\x01", b"1", b"\xdc\x00\x01\x05"]
    said = speech.handshake(1, b"") + b"".join(speech.event(body=body) for body in bodies)
    assert [row["body_json"] for row in shared([said])] == [None, "[1]", "[1]", None, None, None, None, "[5]"]
    assert [row["oddities"] for row in own([said])] == [8] + [0] * 7


def test_a_body_that_the_serializer_refuses_is_odd():
    said = encode(Handshake()) + speech.event(body=b"{") + speech.event(body=b"{}") + speech.event(body=b"") + speech.cancel(kill=2)
    assert [row["oddities"] for row in own([said])] == [0, 16, 0, 0, 1]
    assert [row["oddities"] for row in own([said], json_bodies=False)] == [0, 0, 0, 0, 1]
    assert [row["oddities"] for row in own([encode(Handshake(1, "unheard")) + speech.event(body=b"{")])] == [0, 0]


def test_an_unknown_serializer_and_one_of_the_application():
    class Upper:
        def serialize(self, body):
            return body.upper().encode()

        def parse(self, data):
            return data.decode().lower()

    said = encode(Handshake(1, "upper")) + speech.event(body=b"[HELLO]")
    assert shared([said])[1]["body_json"] is None
    assert shared([said], serializers=STANDARD.adding("upper", Upper()))[1]["body_json"] == '"[hello]"'


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff", b"{}x", b""])
def test_a_body_that_is_not_what_was_agreed_on_is_left_as_it_is(body):
    for name in installed():
        row = shared([encode(Handshake(1, name)) + encode(Event(UID, "u", body))])[1]
        assert (row["body"], row["body_json"]) == (body, None) or name == "msgpack"


def test_bodies_are_not_looked_at_unless_wanted():
    assert shared([encode(Handshake()) + speech.event(body=b"[1]")], json_bodies=False)[1]["body_json"] is None


def test_values_that_json_has_no_word_for():
    body = STANDARD["msgpack"].serialize({"b": b"\x00\xff", "f": float("inf")})
    row = shared([encode(Handshake(1, "msgpack")) + speech.event(body=body)])[1]
    assert msgspec.json.decode(row["body_json"]) == {"b": "AP8=", "f": None}
    import datetime

    from bson import ObjectId

    body = installed()["bson"].serialize({"id": ObjectId("0" * 24), "t": datetime.datetime(2020, 1, 1)})
    row = shared([encode(Handshake(1, "bson")) + speech.event(body=body)])[1]
    assert msgspec.json.decode(row["body_json"]) == {"id": "0" * 24, "t": "2020-01-01T00:00:00"}


@examples(100)
@given(st.lists(speech.messages, max_size=8))
def test_rows_are_the_messages(messages):
    rows = own([b"".join(map(encode, messages))])
    assert len(rows) == len(messages)
    for row, said in zip(rows, messages, strict=True):
        for field in said.__struct_fields__:
            assert row[field] == getattr(said, field)


def test_handshakes_that_are_wrong_name_nothing():
    found, rows = made([speech.handshake(1, b"\xff") + speech.event(body=b"5")])
    assert rows[:, KIND].tolist() == [0, 5]
    assert found.shared["body_json"].to_pylist() == [None]
    assert isinstance(installed()["json"], Json)
    assert {Cancel, Close, CloseRedirect, Ping, Pong, Request} <= {type(one) for one in MEANT.values()}


def test_speakers_take_turns():
    """Records of several connections lie among each other: each keeps its own serializer, from its own handshake on."""
    said = [
        *((0, Handshake(1, "json")), (1, Handshake(1, "msgpack")), (2, None), (0, None), (1, None), (0, Handshake(1, "cbor"))),
        *((1, None), (0, None), (2, Handshake(1, "json")), (3, None), (2, None)),
    ]
    data = b"".join(encode(one or Event(UID, "u", b"1")) for _, one in said)
    walk = walked(data, [(0, len(data))])
    known = {3: "bson"}
    found = negotiated(np.frombuffer(data, np.uint8), np.array(walk.rows), np.array([who for who, _ in said]), known)
    names = [found.names[code] if code >= 0 else None for code in found.codes]
    assert names == ["json", "msgpack", None, "json", "msgpack", "json", "msgpack", "json", "json", "bson", "json"]
    assert known == {0: "json", 1: "msgpack", 2: "json", 3: "bson"}


@pytest.mark.parametrize("cut", range(5))
def test_yamp_11_a_second_handshake_changes_no_serializer(cut):
    """The live session ignores it, too. Wherever the connection is cut, in this piece or in the next."""
    said = [Event(UID, "u", b"7"), Handshake(1, "msgpack"), Event(UID, "u", b"\x05"), Handshake(1, "json"), Event(UID, "u", b"\x06")]
    known: dict[int, str] = {}
    texts = []
    for piece in (said[:cut], said[cut:]):
        found, _ = made([b"".join(map(encode, piece))], known=known)
        texts += found.shared["body_json"].to_pylist()
    assert [text for text in texts if text is not None] == ["5", "6"]
    assert set(known.values()) == {"msgpack"}

"""Texts as table rows: every column against the message of the wire, and the columns all protocols share."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, text_of

from wirelake.protocols.kernel import FAULT
from wirelake.protocols.wolpertinger.columns import SCHEMA, columns, readable
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer1.lines import Lines
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int64
from wirelake.protocols.wolpertinger.passive import Passive
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS

SHARED = ("kind", "name", "subject", "correlation_id", "status", "fault", "body", "body_json", "verified")


def table(*texts: bytes, **given) -> list[dict]:
    """Rows of the texts that can be read, own and shared columns together; the shared ones in upper case."""
    stream = Lines(DEFAULT_LIMITS)
    ((data, rows, _),) = stream.feed(b"".join(text + b"\n" for text in texts))
    numbers = np.array(rows, np.int64)
    kept = numbers[readable(numbers)]
    assert [row[FAULT] in UNREADABLE for row in rows] == (~readable(numbers)).tolist()
    made = columns(np.frombuffer(data, np.uint8), kept, np.zeros(0, np.int64), DEFAULT_LIMITS, **given)
    assert list(made.own) == SCHEMA.names
    assert tuple(made.shared) == SHARED
    for name, column in made.own.items():
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        assert plain.cast(SCHEMA.field(name).type).type == SCHEMA.field(name).type
    whole = {**made.own, **{name.upper(): column for name, column in made.shared.items()}}
    lists = {name: column.to_pylist() for name, column in whole.items()}
    return [{name: values[row] for name, values in lists.items()} for row in range(len(kept))]


def document(message, number: int = 1, keys=None) -> bytes:
    return text_of(documents.encode(message), number, keys)


def test_a_call_in_clear_has_every_field():
    message = Call("Core", "testMethod1", CALL_ID, ("text", True, Int64(2**40), 1.5, DateTime(0)))
    (row,) = table(document(message, 7))
    assert (row["type"], row["text_id"], row["root"], row["component"], row["method"], row["call_id"]) == (
        *("message", 7, "RemoteMethodCall", "Core", "testMethod1", CALL_ID),
    )
    assert row["parameters"] == [
        {"type": "string", "value": '"text"'},
        {"type": "boolean", "value": "true"},
        {"type": "int64", "value": "1099511627776"},
        {"type": "double", "value": "1.5"},
        {"type": "dateTime", "value": '"0001-01-01T00:00:00Z"'},
    ]
    assert (row["KIND"], row["NAME"], row["SUBJECT"], row["CORRELATION_ID"], row["STATUS"]) == (
        *("request", "RemoteMethodCall", "Core.testMethod1", CALL_ID, "ok"),
    )
    assert row["BODY"] == documents.encode(message)
    assert msgspec.json.decode(row["BODY_JSON"])["parameters"][2] == {"type": "int64", "value": 2**40}
    assert row["size"] == len(document(message, 7)) + 1


@pytest.mark.parametrize(
    ("message", "kind", "name", "status"),
    [
        (Call("core", "Heartbeat", CALL_ID), "keepalive", "RemoteMethodCall", "ok"),
        (Call("Core", "SendResetNotice", CALL_ID), "control", "SendResetNotice", "ok"),
        (Call("Authentication", "KeyExchange", CALL_ID, ("a", "b")), "request", "KeyExchange", "ok"),
        (Response("Authentication", CALL_ID, "RUNLNUI="), "response", "KeyExchange.Response", "ok"),
        (Response("Core", CALL_ID, None), "response", "RemoteMethodResponse", "ok"),
        (Error("Core", 303, CALL_ID), "response", "RemoteError", "error"),
        (Error("Core", 100), "error", "RemoteError", "error"),
        (Error("Authentication", 202), "error", "RemoteError.202", "error"),
    ],
)
def test_what_a_message_is_to_all_protocols(message, kind, name, status):
    (row,) = table(document(message))
    assert (row["KIND"], row["NAME"], row["STATUS"]) == (kind, name, status)
    assert row["CORRELATION_ID"] == message.call_id
    assert row["SUBJECT"] == (f"{message.component}.{message.method}" if isinstance(message, Call) else None)


def test_errors_and_values_have_their_columns():
    error, value = table(document(Error("Core", 303, CALL_ID)), document(Response("Core", CALL_ID, False)))
    assert (error["error_code"], error["error_name"], error["parameters"]) == (303, "MethodNotFoundError", None)
    assert value["value"] == {"type": "boolean", "value": "false"}


def test_results_fragments_and_encrypted_messages():
    rows = table(
        b"result:0;message_id:4294967295;",
        b"RESULT:77;message_id:1;x",
        b"fragment_index:1;fragment_count:2;message_id:9;bG8=",
        document(Call("Core", "Heartbeat", CALL_ID), 3, KEYS),
        b"message_id:8;secure:aes;AAAA",
        b"message_id:8;encryption:des;AAAA",
    )
    assert [(row["KIND"], row["NAME"], row["STATUS"]) for row in rows] == [
        ("ack", "result", "ok"),
        ("ack", "result", "error"),
        ("event", "fragment", "ok"),
        *[("event", "encrypted", "ok")] * 3,
    ]
    assert [(row["result_code"], row["result_name"]) for row in rows[:2]] == [(0, "success"), (77, None)]
    assert rows[1]["oddities"] == 1 | 8 | 16
    assert (rows[2]["fragment_index"], rows[2]["fragment_count"], rows[2]["payload"]) == (1, 2, b"bG8=")
    assert [row["encryption"] for row in rows[2:]] == [None, "aes", "aes", "unknown"]
    assert [row["BODY"] for row in rows] == [None] * 6


@pytest.mark.parametrize("pair", ["encryption:AES", "Encryption:Aes", "secure:AES"])
def test_wolp_5_an_encryption_in_capitals_is_the_same_to_the_lake(pair):
    row, other = table(b"message_id:1;" + pair.encode() + b";AAAA", b"message_id:1;encryption:AESX;AAAA")
    assert (row["encryption"], other["encryption"]) == ("aes", "unknown")


@pytest.mark.parametrize("spelling", ["INF", "Infinity", "+Infinity", "inf"])
def test_wolp_18_every_spelling_of_infinity_is_one_value_to_the_lake(spelling):
    sent = documents.encode(Call("Core", "m", CALL_ID, (math.inf, -math.inf, math.nan)))
    spelled = sent.replace(b"INF", spelling.lstrip("+").encode()).replace(b">I", b">+I" if spelling[0] == "+" else b">I")
    (row,) = table(text_of(spelled))
    assert [one["value"] for one in row["parameters"]] == ['"INF"', '"-INF"', '"NaN"']


def test_a_fragment_that_is_all_of_its_message_is_read():
    (row,) = table(b"fragment_index:0;fragment_count:1;" + document(Call("Core", "Heartbeat", CALL_ID)))
    assert (row["type"], row["KIND"], row["method"]) == ("fragment", "keepalive", "Heartbeat")


def test_what_the_lake_opened_itself_is_read():
    message = Call("Sample", "Secret", CALL_ID)
    piece, sealed, notice = table(
        b"fragment_index:1;fragment_count:2;message_id:9;bG8=",
        document(message, 3, KEYS),
        document(Call("Core", "SendResetNotice", CALL_ID), 3, KEYS),
        passive_results={
            0: Passive(documents.encode(message)),
            1: Passive(documents.encode(message)),
            2: Passive(documents.encode(Call("Core", "SendResetNotice", CALL_ID))),
        },
    )
    assert (piece["KIND"], piece["NAME"], piece["SUBJECT"]) == ("request", "RemoteMethodCall", "Sample.Secret")
    assert (sealed["KIND"], sealed["NAME"], sealed["SUBJECT"], sealed["root"]) == (
        "request",
        "encrypted",
        "Sample.Secret",
        "RemoteMethodCall",
    )
    assert (notice["KIND"], notice["NAME"]) == ("control", "SendResetNotice")


def test_what_is_wrong_is_named():
    rows = table(
        b"message_id:1;!",
        b"message_id:1;aGkh=",
        b"message_id:1;gzip:5;aGk=",
        text_of(b"<RemoteMethodCall"),
        text_of(b""),
        b"foo:bar;",
        b"message_id:1;a Gk=",
    )
    faults = [Fault.BASE64_INVALID, Fault.BASE64_INVALID, Fault.GZIP_INVALID, Fault.XML_INVALID, Fault.XML_INVALID, Fault.XML_INVALID]
    assert [row["fault"] for row in rows] == [fault.name for fault in faults]
    assert {row["STATUS"] for row in rows} == {"faulty"}
    assert rows[-1]["oddities"] == 4
    assert rows[3]["BODY"] == b"<RemoteMethodCall"


def test_json_bodies_are_not_built_unless_asked_for():
    (row,) = table(document(Call("Core", "Heartbeat", CALL_ID)), json_bodies=False)
    assert row["BODY_JSON"] is None
    assert row["method"] == "Heartbeat"


def test_nothing_is_an_empty_table():
    made = columns(np.zeros(0, np.uint8), np.zeros((0, 16), np.int64), np.zeros(0, np.int64), DEFAULT_LIMITS)
    assert {len(column) for column in {**made.own, **made.shared}.values()} == {0}

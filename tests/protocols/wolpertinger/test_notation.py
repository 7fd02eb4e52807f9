"""Texts as objects for people, and back."""

from __future__ import annotations

import math
from uuid import UUID

import pytest
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, text_of

from wirelake.errors import UsageError
from wirelake.protocols.wolpertinger.layer1.lines import measure
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, type_of
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int32, MountInfo, UInt64
from wirelake.protocols.wolpertinger.notation import describe, described_value, parse
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS
from wirelake.protocols.wolpertinger.wire import decode, encode

VALUES = ("é", True, Int32(-1), UInt64(2**64 - 1), 0.1, math.inf, DateTime(5), UUID(CALL_ID), ("a", (1,)))


def described(text: bytes) -> dict:
    return describe(text, measure(text, 0, len(text), DEFAULT_LIMITS), [], DEFAULT_LIMITS, 100)


@pytest.mark.parametrize(
    "text",
    [
        b"result:3;message_id:9;",
        b"fragment_index:1;fragment_count:2;message_id:9;bG8=",
        b"fragment_index:1;fragment_count:2;message_id:9;gzip:7;encryption:aes;bG8=",
        text_of(b"hello", 3, KEYS),
        text_of(b"\x00\xff", 0),
        text_of(b"x" * 100, 4, compress=True),
        b"fragment_index:0;fragment_count:1;message_id:9;bG8=",
        *(
            text_of(documents.encode(said))
            for said in (
                Call("Core", "m", CALL_ID, VALUES),
                Response("Core", CALL_ID, "x"),
                Response("Core", CALL_ID, None),
                Error("Core", 303, CALL_ID),
                Error("", 100),
            )
        ),
    ],
)
def test_an_object_says_all_of_a_text(text):
    given = described(text)
    assert (given["offset"], given["length"]) == (100, len(text))
    assert encode(parse(given)) == text
    if given.get("document", {}).get("root"):
        del given["payload"]
        assert encode(parse(given)) == text


def test_a_document_is_shown_with_its_types():
    given = described(text_of(documents.encode(Call("Core", "m", CALL_ID, (Int32(3), "x")))))
    assert given["document"] == {
        "root": "RemoteMethodCall",
        "component": "Core",
        "method": "m",
        "call_id": CALL_ID,
        "parameters": [{"type": "int32", "value": 3}, {"type": "string", "value": "x"}],
    }
    assert described(text_of(b"nonsense"))["document"]["rejected"] == "XML_INVALID"


def test_every_value_has_the_type_it_would_be_sent_as():
    for value in (*VALUES, Error("C", 100), MountInfo("/a", "b")):
        assert described_value(value)["type"] == type_of(value)


def test_complex_values_are_objects():
    assert described_value(MountInfo("/a", "C:\\a")) == {"type": "mountInfo", "value": {"mount_point": "/a", "local_path": "C:\\a"}}
    assert described_value(Error("C", 100))["value"]["code"] == 100


def test_what_cannot_be_read_says_why_and_where():
    assert described(b"message_id:1;foo:bar;x") == {
        "offset": 113,
        "fault": "KEY_UNKNOWN",
        "clause": "WOLP-2",
        "text": "unknown key",
        "message_offset": 100,
        "message_length": 22,
    }
    assert described(b"message_id:1;!")["breach"] == "BASE64_INVALID"
    assert described(b"result:99;message_id:1;")["name"] is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, "type"),
        ({"type": "howdy"}, "type"),
        ({"fault": "KEY_UNKNOWN"}, "fault"),
        ({"type": "result", "message_id": 1}, "code"),
        ({"type": "result", "code": 0, "message_id": -1}, "message_id"),
        ({"type": "message", "message_id": True}, "message_id"),
        ({"type": "message", "message_id": 1, "payload": "xy"}, "payload"),
        ({"type": "message", "message_id": 1, "base64": 7}, "base64"),
        ({"type": "message", "message_id": 1, "encryption": "des"}, "encryption"),
        ({"type": "message", "message_id": 1, "encryption": "aes", "payload": ""}, "base64"),
        ({"type": "message", "message_id": 1, "document": {"root": "x"}}, "root"),
        ({"type": "message", "message_id": 1, "document": {"root": "RemoteError", "component": "C", "code": 1}}, "document"),
        ({"type": "message", "message_id": 1, "document": {"root": "RemoteMethodResponse", "component": "C", "call_id": "x"}}, "call_id"),
        (
            {
                "type": "message",
                "message_id": 1,
                "document": {
                    "root": "RemoteMethodResponse",
                    "component": "C",
                    "call_id": CALL_ID,
                    "value": {"type": "int32", "value": "x"},
                },
            },
            "int32",
        ),
    ],
)
def test_an_object_that_is_no_text_is_told_which_field(given, names):
    with pytest.raises(UsageError, match=names):
        parse(given)


def test_what_is_left_out_is_empty():
    assert decode(encode(parse({"type": "message", "message_id": 1}))).payload == b""

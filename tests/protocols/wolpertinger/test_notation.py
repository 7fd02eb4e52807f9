"""Texts and documents as plain objects (JSON), and back: `parse` undoes `describe`."""

from __future__ import annotations

import binascii
import gzip
import json
import math
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.wolpertinger.pair import CALL_ID, KEYS, text_of
from tests.protocols.wolpertinger.test_documents import EVERY_COMPLEX, MESSAGE
from tests.protocols.wolpertinger.xml_documents import LOWER, VECTORS

from wirelake.errors import DecodeError, LocalProtocolError, UsageError
from wirelake.protocols.wolpertinger.layer1.lines import measure
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, type_of
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.layer2.notation import describe_document, describe_value, parse_document, parse_value
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int32, Int64, MountInfo, UInt64
from wirelake.protocols.wolpertinger.messages import HIGHEST_ID, Encryption, Envelope, Result
from wirelake.protocols.wolpertinger.notation import Describer, describe, parse
from wirelake.protocols.wolpertinger.scanner import DEFAULT_LIMITS, HUGE
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import buffer, decode, encode, encode_line, sealed

VALUES = ("é", True, Int32(-1), UInt64(2**64 - 1), 0.1, math.inf, DateTime(5), UUID(CALL_ID), ("a", (1,)))


OWN_VECTORS = json.loads((Path(__file__).parents[2] / "conformance" / "own" / "wolpertinger.json").read_text())


def as_json(described: dict) -> dict:
    """An object as another program gets it."""
    return msgspec.json.decode(msgspec.json.encode(described))


def described(text: bytes, describer: Describer | None = None) -> dict:
    """What `wirelake decode` shows of a text."""
    show = describe if describer is None else describer.describe
    return as_json(show(text, measure(text, 0, len(text), DEFAULT_LIMITS), [], DEFAULT_LIMITS, 100))


def is_canonical(document: bytes) -> bool:
    """Whether a document is a message we may send, spelled as we write it."""
    message = documents.decode(document)
    if isinstance(message, Rejected):
        return False
    try:
        return documents.encode(message) == document
    except LocalProtocolError:  # WOLP-15
        return False


def check_inverse(text: bytes, describer: Describer | None = None) -> dict:
    """`parse` gives the message of a text; also without `payload`, as far as the document says all."""
    message, shown = decode(text), described(text, describer)
    assert parse(shown) == message
    if "payload" in shown and "base64" not in shown and is_canonical(bytes.fromhex(shown["payload"])):
        without = {name: value for name, value in shown.items() if name != "payload"}
        assert parse(without) == message
    return shown


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
            text_of(documents.encode(packet))
            for packet in (
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


@each("vector", [vector for vector in VECTORS + OWN_VECTORS if vector["layer"] == 1], ids=lambda vector: vector["name"])
def test_parse_undoes_describe_for_every_text_of_the_vectors(vector):
    keyring = Keyring([KEYS])
    for describer in (None, Describer(), Describer(keyring)):
        for line in vector["wire"]:
            text = line.encode()
            shown = described(text)
            if "fault" in shown:
                with pytest.raises(DecodeError) as refused:
                    decode(text)
                assert refused.value.fault.name == shown["fault"]
            elif shown.get("encryption") == "unknown":  # WOLP-5: its name is lost
                assert decode(text).encryption is Encryption.UNKNOWN
            else:
                check_inverse(text, describer)


@each("vector", [vector for vector in VECTORS + OWN_VECTORS if vector["layer"] == 2], ids=lambda vector: vector["name"])
def test_parse_undoes_describe_for_every_document_of_the_vectors(vector):
    document = vector["xml"].encode()
    shown = check_inverse(text_of(document))
    assert shown["payload"] == document.hex()
    message = documents.decode(document)
    if isinstance(message, Rejected):
        assert shown["document"]["rejected"] == message.fault.name
    else:
        assert repr(parse_document(shown["document"])) == repr(message)  # NaN is not equal to NaN


@given(MESSAGE, st.integers(0, HIGHEST_ID), st.booleans())
def test_parse_undoes_describe_for_every_document(message, message_id, compress):
    text = text_of(documents.encode(message), message_id, compress=compress)
    shown = check_inverse(text)
    assert parse_document(shown["document"]) == message
    del shown["payload"]
    assert encode(parse(shown)) == text


BASE64 = st.binary(max_size=40).map(lambda payload: binascii.b2a_base64(payload, newline=False))
PAYLOAD = (
    BASE64 | st.text("abc=+/ \t\r!é", max_size=12).map(str.encode) | st.binary(max_size=12).map(lambda raw: raw.translate(None, b";\n"))
)


@given(
    st.builds(Result, st.integers(0, HUGE), st.integers(0, HIGHEST_ID))
    | st.builds(
        Envelope,
        st.integers(0, HIGHEST_ID),
        PAYLOAD,
        st.none() | st.integers(0, HUGE),
        st.sampled_from([Encryption.NONE, Encryption.AES, Encryption.SECURE_AES]),
    )
    | st.builds(
        lambda index, more, *fields: Envelope(*fields, index, index + 1 + more),  # type: ignore[call-arg]  # Hypothesis draws as many
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, HIGHEST_ID),
        PAYLOAD,
        st.none() | st.integers(0, HUGE),
        st.sampled_from([Encryption.NONE, Encryption.AES, Encryption.SECURE_AES]),
    )
)
def test_parse_undoes_describe_for_every_text(message):
    text = encode(message)
    assert decode(text) == message
    check_inverse(text)
    assert encode(parse(described(text))) == text


def test_a_payload_spelled_in_another_way_is_kept_as_it_stands_on_the_wire():
    packed = gzip.compress(b"hello", mtime=1)
    blanks = check_inverse(b"message_id:1;aGVs bG8=")
    assert (blanks["base64"], blanks["payload"]) == ("aGVs bG8=", b"hello".hex())
    other_gzip = check_inverse(b"message_id:1;gzip:%d;%b" % (len(packed), binascii.b2a_base64(packed, newline=False)))
    assert other_gzip["payload"] == b"hello".hex()
    assert check_inverse(b"message_id:1;\xff")["base64_hex"] == "ff"
    assert "base64" not in check_inverse(text_of(b"hello", compress=True))


def test_wolp_5_the_alias_of_encryption_is_kept():
    text = text_of(b"hello", keys=KEYS).replace(b"encryption:", b"secure:")
    shown = check_inverse(text)
    assert (shown["encryption"], shown["alias"]) == ("aes", "secure")
    assert encode(parse(shown)) == text
    del shown["alias"]
    assert b"encryption:aes;" in encode(parse(shown))


def test_a_describer_with_keys_shows_the_document_and_keeps_the_text():
    document = documents.encode(Call("Core", "m", CALL_ID, EVERY_COMPLEX))
    whole = sealed(document, KEYS)
    half = len(whole.text) // 2
    texts = [
        encode(Envelope(1, part, None, whole.encryption, index, 2)) for index, part in enumerate((whole.text[:half], whole.text[half:]))
    ]
    describer = Describer(Keyring([KEYS]))
    first, last = (check_inverse(text, describer) for text in texts)
    assert "document" not in first
    assert parse_document(last["document"]) == documents.decode(document)
    assert [encode(parse(shown)) for shown in (first, last)] == texts


def test_a_stream_of_texts_survives():
    stream = b"".join(text + b"\n" for text in (text_of(b"one", 1), b"result:0;message_id:1;", text_of(b"two", 2, compress=True)))
    shown = [describe(lines, row, []) for lines, rows, _ in buffer().feed(stream) for row in rows]
    assert b"".join(encode_line(parse(as_json(described))) for described in shown) == stream


def test_a_document_whose_code_the_schema_has_not_needs_its_payload():
    text = text_of(documents.encode(Error("C", 303)).replace(b"303", b"999"))  # WOLP-15
    shown = check_inverse(text)
    assert shown["document"]["code"] == 999
    assert encode(parse(shown)) == text
    del shown["payload"]
    with pytest.raises(UsageError, match="999"):
        parse(shown)


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
        assert describe_value(value)["type"] == type_of(value)


@pytest.mark.parametrize("value", EVERY_COMPLEX, ids=lambda value: type(value).__name__)
def test_every_complex_value_survives_as_json(value):
    assert parse_value(as_json(describe_value(value))) == value
    text = text_of(documents.encode(Call("C", "m", LOWER, (value, (value,)))))
    shown = described(text)
    del shown["payload"]
    assert encode(parse(shown)) == text


def test_values_say_their_types():
    values = [Int64(1), UInt64(2**64 - 1), 1.5, -math.inf, DateTime(0), DateTime(5), (True,), MountInfo("a", "b"), Error("C", 100)]
    assert [describe_value(value) for value in values] == [
        {"type": "int64", "value": 1},
        {"type": "uint64", "value": 2**64 - 1},
        {"type": "double", "value": 1.5},
        {"type": "double", "value": "-INF"},
        {"type": "dateTime", "value": "0001-01-01T00:00:00Z"},
        {"type": "dateTime", "value": "0001-01-01T00:00:00.0000005Z"},
        {"type": "list", "value": [{"type": "boolean", "value": True}]},
        {"type": "mountInfo", "value": {"mount_point": "a", "local_path": "b"}},
        {
            "type": "remoteError",
            "value": {"root": "RemoteError", "component": "C", "code": 100, "name": "UnspecifiedError", "call_id": None},
        },
    ]
    assert math.isnan(parse_value(describe_value(math.nan)))


def test_a_bare_value_gets_the_type_a_call_would_send_it_as():
    document = {"root": "RemoteMethodCall", "component": "C", "method": "m", "call_id": LOWER, "parameters": ["x", 1, 1.5, True]}
    assert parse_document(document) == Call("C", "m", LOWER, ("x", 1, 1.5, True))
    assert parse_document({"root": "RemoteMethodResponse", "component": "C", "call_id": LOWER}) == Response("C", LOWER)
    text = text_of(documents.encode(Call("C", "m", LOWER, ("x", Int32(1), 1.5, True))))
    assert encode(parse({"type": "message", "message_id": 1, "document": document})) == text


@each(
    ("value", "where"),
    [
        (None, "value: "),
        ([], "value: "),
        ({"type": "int32"}, "value: "),
        ({"type": "int32", "value": 2**31}, "value: '2147483648' is no int32"),
        ({"type": "int32", "value": None}, "value: None is no int32"),
        ({"type": "string", "value": 1}, "value: 1 is no string"),
        ({"type": "boolean", "value": "maybe"}, "value: 'maybe' is no boolean"),
        ({"type": "foo", "value": 1}, "value: 1 is no foo"),
        ({"type": ["foo"], "value": 1}, "value: "),
        ({"type": "list", "value": 1}, "value: 1 is no list"),
        ({"type": "list", "value": [1, None]}, "value[1]: "),
        ({"type": "mountInfo", "value": {"mount_point": 1, "local_path": ""}}, "value.mount_point: 1 is no str"),
        ({"type": "mountInfo", "value": {"mount_point": ""}}, "value: Missing required argument 'local_path'"),
        ({"type": "mountInfo", "value": {"mount_point": "", "local_path": "", "x": 1}}, "value: "),
        ({"type": "snapshotInfo", "value": {"id": "x", "time": ""}}, "value.id: 'x' is no UUID"),
        ({"type": "snapshotInfo", "value": {"id": LOWER, "time": "x"}}, "value.time: 'x' is no DateTime"),
        ({"type": "fileObject", "value": {"hash": "0"}}, "value.hash: '0' is no bytes"),
        ({"type": "permission", "value": {"path": "", "permitted_clients": [1]}}, "value.permitted_clients[0]: 1 is no str"),
        ({"type": "clientInfo", "value": {"jid": "", "trust_level": True}}, "value.trust_level: True is no int"),
        ({"type": "remoteError", "value": 1}, "value: 1 is no remoteError"),
        ({"type": "remoteError", "value": describe_document(Response("C", LOWER))}, "value: {'root': 'RemoteMethodResponse'"),
    ],
)
def test_an_object_that_is_no_value_is_refused_with_its_place(value, where):
    with pytest.raises(UsageError) as refused:
        parse_value(value)
    assert str(refused.value).startswith(where)


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({}, "document.root: None is not one of"),
        (1, "document.root: None is not one of"),
        ({"root": "RemoteMethodCall"}, "document.component: "),
        ({"root": "RemoteMethodCall", "component": "C", "call_id": LOWER, "parameters": 1}, "document.parameters: "),
        ({"root": "RemoteMethodCall", "component": "C", "call_id": LOWER, "parameters": [None]}, "document.parameters[0]: "),
        ({"root": "RemoteMethodCall", "component": "C", "call_id": LOWER}, "document.method: "),
        ({"root": "RemoteError", "component": "C", "code": "x"}, "document.code: "),
        ({"root": "RemoteError", "component": "C", "code": 2**31}, "document.code: "),
        ({"root": "RemoteError", "component": "C", "code": 1, "call_id": 1}, "document.call_id: "),
        ({"root": "RemoteMethodResponse", "component": "C", "call_id": None}, "document.call_id: "),
        ({"root": "RemoteMethodResponse", "component": "C", "call_id": LOWER, "value": []}, "document.value: "),
    ],
)
def test_an_object_that_is_no_document_is_refused_with_its_place(document, where):
    with pytest.raises(UsageError) as refused:
        parse_document(document)
    assert str(refused.value).startswith(where)


def test_values_nested_without_end_are_refused():
    value = "x"
    for _ in range(100_000):
        value = {"type": "list", "value": [value]}
    document = {"root": "RemoteMethodResponse", "component": "C", "call_id": LOWER, "value": value}
    with pytest.raises(UsageError, match="document: "):
        parse({"type": "message", "message_id": 1, "document": document})


def test_an_unreadable_text_says_why_and_where():
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


@each(
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
        ({"type": "message", "message_id": 1, "base64_hex": "x"}, "base64_hex"),
        ({"type": "message", "message_id": 1, "encryption": "des"}, "encryption"),
        ({"type": "message", "message_id": 1, "encryption": "aes", "alias": "sure", "base64": ""}, "alias"),
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
def test_an_object_that_is_no_text_is_refused_with_its_field(given, names):
    with pytest.raises(UsageError, match=names):
        parse(given)


def test_a_message_without_payload_is_empty():
    assert decode(encode(parse({"type": "message", "message_id": 1}))).payload == b""

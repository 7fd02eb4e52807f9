"""Messages and values as plain objects, both ways."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from tests.protocols.wolpertinger.papers import LOWER, VECTORS
from tests.protocols.wolpertinger.test_documents import EVERY_COMPLEX, MESSAGE

from wirelake.errors import UsageError
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.documents import decode
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int64, MountInfo, UInt64
from wirelake.protocols.wolpertinger.objects import describe, describe_value, parse_message, parse_value


@given(MESSAGE)
def test_every_message_survives_as_json(told):
    assert parse_message(msgspec.json.decode(msgspec.json.encode(describe(told)))) == told


@pytest.mark.parametrize("value", EVERY_COMPLEX, ids=lambda value: type(value).__name__)
def test_every_complex_value_survives_as_json(value):
    assert parse_value(msgspec.json.decode(msgspec.json.encode(describe_value(value)))) == value


def test_a_vector_is_described_in_its_own_words():
    vector = next(vector for vector in VECTORS if vector["layer"] == 2 and "method" in vector["fields"] and vector["fields"].get("type"))
    assert describe(decode(vector["xml"].encode())) == vector["fields"]


def test_values_say_their_types():
    values = [Int64(1), UInt64(2**64 - 1), 1.5, -math.inf, DateTime(0), (True,), MountInfo("a", "b"), Error("C", 100)]
    assert [describe_value(value) for value in values] == [
        {"type": "int64", "value": 1},
        {"type": "uint64", "value": 2**64 - 1},
        {"type": "double", "value": 1.5},
        {"type": "double", "value": "-INF"},
        {"type": "dateTime", "value": "0001-01-01T00:00:00.0000000Z"},
        {"type": "list", "value": [{"type": "boolean", "value": True}]},
        {"type": "mountInfo", "value": {"mount_point": "a", "local_path": "b"}},
        {"type": "remoteError", "value": {"type": "RemoteError", "component": "C", "code": 100, "call_id": None}},
    ]
    assert math.isnan(parse_value(describe_value(math.nan)))


def test_bare_values_are_taken_for_what_they_would_be():
    told = parse_message({"type": "RemoteMethodCall", "component": "C", "method": "m", "call_id": LOWER, "parameters": ["x", 1, 1.5, True]})
    assert told == Call("C", "m", LOWER, ("x", 1, 1.5, True))
    assert parse_message({"type": "RemoteMethodResponse", "component": "C", "call_id": LOWER}) == Response("C", LOWER)


@pytest.mark.parametrize(
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
        ({"type": "list", "value": 1}, "value: 1 is no list"),
        ({"type": "list", "value": [1, None]}, "value[1]: "),
        ({"type": "mountInfo", "value": {"mount_point": 1, "local_path": ""}}, "value.mount_point: 1 is no str"),
        ({"type": "mountInfo", "value": {"mount_point": ""}}, "value: Missing required argument 'local_path'"),
        ({"type": "mountInfo", "value": {"mount_point": "", "local_path": "", "x": 1}}, "value: "),
        ({"type": "snapshotInfo", "value": {"id": "x", "time": ""}}, "value.id: 'x' is no UUID"),
        ({"type": "snapshotInfo", "value": {"id": LOWER, "time": "x"}}, "value.time: 'x' is no DateTime"),
        ({"type": "permission", "value": {"path": "", "permitted_clients": [1]}}, "value.permitted_clients[0]: 1 is no str"),
        ({"type": "clientInfo", "value": {"jid": "", "trust_level": True}}, "value.trust_level: True is no int"),
        ({"type": "remoteError", "value": 1}, "value: 1 is no remoteError"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(value, where):
    with pytest.raises(UsageError) as refused:
        parse_value(value)
    assert str(refused.value).startswith(where)


@pytest.mark.parametrize(
    ("told", "where"),
    [
        ({}, "type: None is not one of"),
        ({"type": "RemoteMethodCall"}, "component: "),
        ({"type": "RemoteMethodCall", "parameters": 1}, "parameters: "),
        ({"type": "RemoteMethodCall", "parameters": [None]}, "parameters[0]: "),
        ({"type": "RemoteError", "component": "C", "code": "x"}, "code: "),
        ({"type": "RemoteError", "component": "C", "code": 1, "call_id": 1}, "call_id: "),
        ({"type": "RemoteMethodResponse", "component": "C", "call_id": None}, "call_id: "),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(told, where):
    with pytest.raises(UsageError) as refused:
        parse_message(told)
    assert str(refused.value).startswith(where)

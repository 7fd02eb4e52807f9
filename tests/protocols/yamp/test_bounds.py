"""Bodies that are bombs: every serializer refuses them before they cost much, and reads what is at its bounds."""

from __future__ import annotations

import tracemalloc

import bson
import cbor2
import msgspec
import numpy as np
import pytest
from tests.cases import each
from tests.protocols.yamp import speech

from wirelake.protocols.kernel import compiled
from wirelake.protocols.yamp import columns
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.scanner import ODD_BODY, ROW_COLUMNS, scan
from wirelake.protocols.yamp.serializers.bodies import BodyRejected, unpack
from wirelake.protocols.yamp.serializers.bounds import Bounds, count_bson, count_cbor, count_msgpack
from wirelake.protocols.yamp.serializers.formats import Bson, Cbor, Xml, installed
from wirelake.protocols.yamp.serializers.registry import Json, Msgpack

LITTLE = Bounds(max_items=10, max_elements=10, max_depth=5, max_digits=20)
MANY = Bounds(max_items=50_000)
"""If a body with more items were parsed, it would take 3 MB: counting a million, the default, takes seconds here."""


def laughs(depth: int, width: int) -> bytes:
    """Arrays of references to the array before: `width ** depth` items in a few bytes (CBOR tags 28 and 29)."""
    inside = b"".join(b"\xd8\x1c" + bytes((0x80 | width,)) + (b"\xd8\x1d" + cbor2.dumps(number)) * width for number in range(depth))
    return bytes((0x98, depth + 1)) + b"\xd8\x1c" + bytes((0x80 | width,)) + b"\x61a" * width + inside


def bignum(size: int) -> bytes:
    return b"\xc2\x5a" + size.to_bytes(4) + b"\xff" * size


BOMBS = {
    "cbor: shared references": (Cbor(), laughs(20, 7)),
    "cbor: a value that holds itself": (Cbor(), b"\xd8\x1c\x81\xd8\x1d\x00"),
    "cbor: references to strings": (Cbor(), b"\xd9\x01\x00\x82\x44aaaa\xd8\x19\x00"),
    "cbor: a decimal with a long mantissa": (Cbor(), b"\xc4\x82\x01" + bignum(1 << 20)),
    "cbor: a bigfloat with a long mantissa": (Cbor(), b"\xc5\x82\x01" + bignum(1 << 20)),
    "cbor: a bigfloat with a long exponent": (Cbor(), b"\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01"),
    "cbor: a rational of long numbers": (Cbor(), b"\xd8\x1e\x82" + bignum(1 << 16) + bignum(1 << 16)),
    "cbor: a long negative number": (Cbor(), b"\xc3" + bignum(1 << 16)[1:]),
    "cbor: a regular expression": (Cbor(), b"\xd8\x23\x6a((a+)+)+$b"),
    "cbor: a MIME message": (Cbor(), b"\xd8\x24\x64a: b"),
    "cbor: too deep": (Cbor(), b"\x81" * 257 + b"\xf6"),
    "cbor: too many items": (Cbor(bounds=MANY), b"\x9a" + (50_000).to_bytes(4) + b"\x80" * 50_000),
    "msgpack: too many items": (Msgpack(bounds=MANY), b"\xdd" + (50_000).to_bytes(4) + b"\x80" * 50_000),
    "msgpack: too deep": (Msgpack(), b"\x91" * 100_000 + b"\xc0"),
    "json: too many items": (Json(bounds=MANY), b"[" + b"[]," * 30_000 + b"0]"),
    "json: too deep": (Json(), b"[" * 257 + b"]" * 257),
    "json: a long number": (Json(), b"9" * 1_000_000),
    "xml: too many elements": (Xml(), b"<a>" + b"<b/>" * 100_000 + b"</a>"),
    "xml: too deep": (Xml(), b"<a>" * 257 + b"</a>" * 257),
    "xml: entities": (Xml(), b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><a>&z;</a>'),
    "bson: too many items": (Bson(bounds=LITTLE), bson.encode({"a": [None] * 10})),
}


@each("name", BOMBS)
def test_a_bomb_is_refused_and_takes_little_memory(name):
    serializer, body = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(BodyRejected):
            unpack(serializer, body)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "fits", "over"),
    [
        (Json, b"[" + b"1," * 8 + b'"a,[{,,,,,,,,"]', b"[" + b"1," * 10 + b"1]"),
        (Json, b"[[[[[]]]]]", b"[[[[[[]]]]]]"),
        (Json, b'["[[[[[[\\"[[[["]', b'{"a":' * 6 + b"1" + b"}" * 6),
        (Msgpack, b"\x99" + b"\x01" * 9, b"\x9a" + b"\x01" * 10),
        (Msgpack, b"\xc4\x14" + b"\x90" * 20, b"\x9b" + b"\x90" * 11),
        (Cbor, b"\x89" + b"\x01" * 9, b"\x8a" + b"\x01" * 10),
        (Cbor, b"\x54" + b"\x80" * 20, b"\x9f" + b"\x01" * 9 + b"\xff"),
        (Cbor, b"\x81" * 5 + b"\x01", b"\x81" * 6 + b"\x01"),
        (Cbor, b"\xc2\x48" + b"\xff" * 8, b"\xc2\x49" + b"\xff" * 9),
        (Cbor, b"\xc4\x82\x01\x02", b"\xc4\x82\x01\xc2\x49" + b"\xff" * 9),
        (Bson, bson.encode({"a": [None] * 9}), bson.encode({"a": {str(n): n for n in range(10)}})),
        (Bson, bson.encode({"a": b"\n\0" * 40}), bson.encode({str(n): b"x" for n in range(11)})),
        (Xml, b"<a>" + b"<b/>" * 9 + b"</a>", b"<a>" + b"<b/>" * 10 + b"</a>"),
        (Xml, b"<a>" * 5 + b"</a>" * 5, b"<a>" * 6 + b"</a>" * 6),
    ],
)
def test_at_the_bounds_a_body_is_read_and_beyond_them_it_is_not(make, fits, over):
    serializer = make(bounds=LITTLE)
    serializer.parse(fits)
    make().parse(over)
    with pytest.raises(BodyRejected):
        unpack(serializer, over)


VALUES = [0, -1, 2**40, 1.5, "é" * 300, "x" * 40, b"b" * 70_000, [1, [2, {}]], {"a": {"b": None}}, True, {"n": list(range(300))}]


def items(value) -> int:
    inside = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else ()
    return 1 + sum(map(items, inside))


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_items_are_counted_as_the_formats_have_them(value):
    assert count_msgpack(msgspec.msgpack.encode(value), 10_000) == items(value)
    assert count_cbor(cbor2.dumps(value), 10_000) == items(value)


def test_elements_of_bson_are_counted_whatever_their_type():
    document = {
        "double": 1.5,
        "text": "é",
        "document": {"a": {}},
        "array": [1, "x"],
        "bytes": b"b" * 300,
        "id": bson.ObjectId(),
        "yes": True,
        "none": None,
        "regex": bson.Regex("a+", "i"),
        "code": bson.Code("x"),
        "scoped": bson.Code("x", {"a": 1}),
        "int": 1,
        "long": 2**40,
        "stamp": bson.Timestamp(1, 2),
        "decimal": bson.Decimal128("1.5"),
        "least": bson.MinKey(),
        "most": bson.MaxKey(),
    }
    assert count_bson(bson.encode(document), 1000) == len(document) + 3


def test_a_bomb_in_the_lake_is_kept_as_bytes_without_json():
    """YAMP-44: the message stays a row, and says that its body was refused."""
    bombs = [laughs(20, 7), b"\xc4\x82\x01" + bignum(1 << 20), b"\x81\x01"]
    data = speech.handshake(1, b"cbor") + b"".join(speech.event(b"e", body) for body in bombs)
    array = np.frombuffer(data, np.uint8)
    rows = np.zeros(8 * ROW_COLUMNS, np.int64)
    count = compiled(scan)(array, 0, len(data), rows, np.zeros(1, np.int64), Limits().for_scan())[0]
    rows = rows[: count * ROW_COLUMNS].reshape(count, -1)
    body_serializers = columns.negotiated(array, rows, np.zeros(count, np.int64), {})
    made = columns.columns(array, rows, np.zeros((0, 0), np.int64), Limits(), body_serializers=body_serializers)
    assert made.shared["body_json"].to_pylist() == [None, None, None, "[1]"]
    assert [bool(odd & ODD_BODY) for odd in made.own["oddities"].to_pylist()] == [False, True, True, False]
    assert made.shared["body"].to_pylist()[1:] == bombs


def test_what_an_installed_format_may_cost_is_an_option():
    assert installed(LITTLE)["cbor"].parse(b"\x81\x01") == [1]
    with pytest.raises(BodyRejected, match="max_items"):
        unpack(installed(LITTLE)["msgpack"], b"\x9b" + b"\x90" * 11)
    assert Limits(max_items=10, max_depth=5).bounds == Bounds(max_items=10, max_elements=10, max_depth=5)

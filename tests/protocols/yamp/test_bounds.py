"""Bodies that are bombs: every serializer refuses them before they cost much, and reads what is at its bounds."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import bson
import cbor2
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.yamp import speech

from wirelake.protocols.kernel import _over_views, compiled
from wirelake.protocols.yamp import columns
from wirelake.protocols.yamp.limits import Limits
from wirelake.protocols.yamp.scanner import ODD_BODY, ROW_COLUMNS, scan
from wirelake.protocols.yamp.serializers import bounds
from wirelake.protocols.yamp.serializers.bodies import BodyRejected, unpack
from wirelake.protocols.yamp.serializers.bounds import Bounds, TooMuch, check_json
from wirelake.protocols.yamp.serializers.formats import Bson, Cbor, Xml, installed
from wirelake.protocols.yamp.serializers.registry import Json, Msgpack
from wirelake.protocols.yamp.serializers.structure import LEVEL, walk_bson, walk_cbor, walk_msgpack

LITTLE = Bounds(max_items=10, max_elements=10, max_depth=5, max_digits=20)
MANY = Bounds(max_items=50_000)
"""If a body with more items were parsed, it would take 3 MB: counting a million, the default, takes seconds here."""


def laughs(depth: int, width: int) -> bytes:
    """Arrays of references to the array before: `width ** depth` items in a few bytes (CBOR tags 28 and 29)."""
    inside = b"".join(b"\xd8\x1c" + bytes((0x80 | width,)) + (b"\xd8\x1d" + cbor2.dumps(number)) * width for number in range(depth))
    return bytes((0x98, depth + 1)) + b"\xd8\x1c" + bytes((0x80 | width,)) + b"\x61a" * width + inside


def bignum(size: int) -> bytes:
    return b"\xc2\x5a" + size.to_bytes(4) + b"\xff" * size


def nested_bson(depth: int) -> bytes:
    document = b"\5\0\0\0\0"
    for _ in range(depth - 1):
        document = (len(document) + 8).to_bytes(4, "little") + b"\3a\0" + document + b"\0"
    return document


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
    "json: a string without an end, full of quotes": (Json(), b"[" * 300 + b'"\\' * 700_000),
    "xml: too many elements": (Xml(), b"<a>" + b"<b/>" * 100_000 + b"</a>"),
    "xml: too many attributes": (Xml(bounds=Bounds(max_elements=999)), b"<a " + b" ".join(b'b%d="1"' % n for n in range(999)) + b"/>"),
    "xml: too many attributes of one element": (
        Xml(),
        b"<a>" + b"<b>'\"</b>" * 300 + b"<c " + b" ".join(b"c%d='>'" % n for n in range(1001)) + b"/></a>",
    ),
    "xml: too deep": (Xml(), b"<a>" * 257 + b"</a>" * 257),
    "xml: entities": (Xml(), b'<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]><a>&z;</a>'),
    "bson: too many items": (Bson(bounds=LITTLE), bson.encode({"a": [None] * 10})),
    "bson: too deep": (Bson(), nested_bson(257)),
    "bson: too many items in the scope of a code": (Bson(bounds=LITTLE), bson.encode({"a": bson.Code("x", dict.fromkeys("abcdefghij"))})),
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


def test_quotes_outside_of_tags_are_no_attributes():
    many = '"x" ' * 2000
    body = f"<?p {many}?><!--{many}--><a>{many}<b>{many}</b><![CDATA[{many}]]>{'<c/>' * 300}</a>"
    assert Xml().parse(body.encode())["a"]["b"] == many.strip()
    attributes = " ".join(f"c{number}='1'" for number in range(1000))
    assert len(Xml().parse(f"<a {attributes}/>".encode())["a"]) == 1000


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


FORMATS = {"msgpack": (Msgpack, msgspec.msgpack.encode, walk_msgpack), "cbor": (Cbor, cbor2.dumps, walk_cbor)}


def walked(walk, data: bytes, limits: tuple[int, int, int] = (1_000_000, 256, 512)) -> tuple[int, int, int]:
    """The outcome of a walk, which is the same in every form of the kernel."""
    outcome = walk(data, len(data), [0] * (256 * LEVEL), limits)
    for form in (compiled(walk), _over_views(walk)):
        assert form(np.frombuffer(data, np.uint8), len(data), np.zeros(256 * LEVEL, np.int64), limits) == outcome
    return outcome


@each("name", FORMATS)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_items_are_counted_as_the_formats_have_them(value, name):
    data = FORMATS[name][1](value)
    assert walked(FORMATS[name][2], data) == (items(value), 0, len(data))


keys = st.one_of(st.text(max_size=40), st.binary(max_size=40), st.booleans(), st.integers(-(2**63), 2**64 - 1))
values = st.recursive(
    st.one_of(st.none(), st.floats(allow_nan=False), keys),
    lambda inside: st.one_of(st.lists(inside, max_size=20), st.dictionaries(keys, inside, max_size=20)),
)


@each("name", FORMATS)
@given(value=values, rest=st.binary(max_size=3))
def test_every_value_with_keys_that_are_allowed_is_walked_to_its_end(name, value, rest):
    data = FORMATS[name][1](value)
    assert walked(FORMATS[name][2], data + rest) == (items(value), 0, len(data))


@given(data=st.binary(max_size=60))
def test_every_form_of_a_walk_reads_any_bytes_alike(data):
    for walk in (walk_msgpack, walk_cbor, walk_bson):
        count, _, _ = walked(walk, data, (20, 3, 1))
        assert count <= 21


def parsed(parse, data: bytes) -> bool:
    try:
        parse(data)
    except Exception:
        return False
    return True


PARSERS = {"msgpack": (walk_msgpack, msgspec.msgpack.decode), "cbor": (walk_cbor, cbor2.loads)}
HEADS = st.sampled_from([bytes((head,)) for head in bytes.fromhex("81 82 92 a1 a2 bf 9f ff 5f 7f 61 c2 d8 f6 dc c4")])


@each("name", PARSERS)
@given(data=st.lists(HEADS | st.binary(max_size=3), max_size=12).map(b"".join))
def test_a_walk_ends_where_the_parser_does(name, data):
    """Else a key behind the end of the walk would not be looked at."""
    walk, parse = PARSERS[name]
    end = next((size for size in range(len(data) + 1) if parsed(parse, data[:size])), None)
    if end is not None:
        _, fault, at = walked(walk, data)
        assert fault or at == end


def test_bytes_after_an_item_are_refused():
    for make, body in ((Cbor, b"\x01\x02"), (Msgpack, b"\x01\x02"), (Json, b"1 2")):
        with pytest.raises(BodyRejected):
            unpack(make(), body)


# Maps with one key, None for each value.
KEYS = {
    "msgpack: an array": (Msgpack, b"\x81\x92\x01\x02\xc0"),
    "msgpack: an empty array": (Msgpack, b"\x81\x90\xc0"),
    "msgpack: a map": (Msgpack, b"\x81\x80\xc0"),
    "msgpack: nil": (Msgpack, b"\x81\xc0\xc0"),
    "msgpack: a double": (Msgpack, b"\x81\xcb" + bytes(8) + b"\xc0"),
    "msgpack: a float": (Msgpack, b"\x81\xca" + bytes(4) + b"\xc0"),
    "msgpack: a time": (Msgpack, b"\x81\xd6\xff" + bytes(4) + b"\xc0"),
    "msgpack: another extension": (Msgpack, b"\x81\xc7\x01\x05a\xc0"),
    "msgpack: the second key": (Msgpack, b"\x82\x01\x92\x01\x02\x90\xc0"),
    "msgpack: inside": (Msgpack, b"\x91\x81\xa1a\xde\x00\x01\x90\xc0"),
    "msgpack: in a large map": (Msgpack, b"\xdf\x00\x00\x00\x01\x90\xc0"),
    "cbor: an array": (Cbor, cbor2.dumps({(1, 2): None})),
    "cbor: an array without a size": (Cbor, b"\xa1\x9f\xff\xf6"),
    "cbor: a map": (Cbor, b"\xa1\xa0\xf6"),
    "cbor: null": (Cbor, cbor2.dumps({None: None})),
    "cbor: undefined": (Cbor, b"\xa1\xf7\xf6"),
    "cbor: a simple value": (Cbor, b"\xa1\xf8\x20\xf6"),
    "cbor: a float": (Cbor, cbor2.dumps({1.5: None})),
    "cbor: a large number": (Cbor, cbor2.dumps({2**64: None})),
    "cbor: a time": (Cbor, b"\xa1\xc1\x00\xf6"),
    "cbor: a uuid": (Cbor, cbor2.dumps({UUID(int=1): None})),
    "cbor: the second key": (Cbor, b"\xa2\x01\x82\x01\x02\x80\xf6"),
    "cbor: in a map without a size": (Cbor, b"\xbf\x01\x01\x80\xf6\xff"),
    "cbor: after a text in pieces": (Cbor, b"\xa2\x7f\x61a\x61b\xff\x01\x80\x01"),
    "cbor: an array in a set": (Cbor, cbor2.dumps({(1, 2)})),
    "cbor: an array in a set without a size": (Cbor, b"\xd9\x01\x02\x9f\x80\xff"),
    "cbor: a float in a set of a tag": (Cbor, b"\xd9\x01\x02\xc6\x81\xf9\x3c\x00"),
}


@each("name", KEYS)
def test_a_key_whose_hash_has_no_secret_is_refused(name):
    """YAMP-44: a sender could choose many of these that collide."""
    make, body = KEYS[name]
    with pytest.raises(BodyRejected, match=r"at byte \d+ is no text, bytes, boolean or integer of 64 bits"):
        unpack(make(), body)


@each("name", FORMATS)
@each("key", {"text": "a", "bytes": b"a", "true": True, "false": False, "low": -(2**63), "high": 2**64 - 1})
def test_other_keys_are_read(name, key):
    make, write, _ = FORMATS[name]
    value = {{"text": "a", "bytes": b"a", "true": True, "false": False, "low": -(2**63), "high": 2**64 - 1}[key]: None}
    assert unpack(make(), write(value)) == value
    assert unpack(Cbor(), cbor2.dumps({"a", b"a", 2, True})) == {"a", b"a", 2, True}
    assert unpack(Cbor(), b"\xbf\x7f\x61a\x61b\xff\x01\xff") == {"ab": 1}


@each("name", FORMATS)
def test_integer_keys_are_bounded_for_each_map(name):
    """Integers can be chosen to collide, too: with 87,380 of them one message of 464 KB takes 4.5 s."""
    make, write, _ = FORMATS[name]
    most = Bounds().max_integer_keys
    fits = {"a": dict.fromkeys(range(most)), "b": {**dict.fromkeys(range(most)), **dict.fromkeys(map(str, range(most)))}}
    assert unpack(make(), write(fits)) == fits
    with pytest.raises(BodyRejected, match="max_integer_keys"):
        unpack(make(), write([dict.fromkeys(range(most + 1))]))
    with pytest.raises(BodyRejected, match="max_integer_keys"):
        unpack(Cbor(), cbor2.dumps(set(range(most + 1))))
    with pytest.raises(BodyRejected, match="max_integer_keys"):
        unpack(Cbor(), b"\xbf" + b"".join(cbor2.dumps(number) + b"\xf6" for number in range(most + 1)) + b"\xff")


json_values = st.recursive(
    st.one_of(st.none(), st.integers(-9, 9), st.text('[]{},"\\ab:', max_size=12)),
    lambda inside: st.one_of(st.lists(inside, max_size=6), st.dictionaries(st.text('[{,"\\', max_size=4), inside, max_size=6)),
)


def json_cost(value) -> tuple[int, int]:
    """Commas and opening brackets of a value, and how deep it is: as slow and plain as can be."""
    if not isinstance(value, list | dict):
        return 0, 0
    inside = [json_cost(one) for one in (value.values() if isinstance(value, dict) else value)]
    return 1 + max(len(value) - 1, 0) + sum(count for count, _ in inside), 1 + max((depth for _, depth in inside), default=0)


@given(value=json_values, piece=st.integers(1, 9))
def test_json_is_counted_without_its_strings_wherever_it_is_cut(value, piece):
    data = msgspec.json.encode(value)
    items, depth = json_cost(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_PIECE", piece)
        tight = Bounds(max_items=max(items, 1), max_depth=max(depth, 1))
        assert check_json(data, tight) <= max(items, len(data))
        for less in (Bounds(max_items=items - 1), Bounds(max_depth=depth - 1)):
            if items > 1 and len(data) > less.max_depth >= 0:
                with pytest.raises(TooMuch):
                    check_json(data, less)


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
    assert walked(walk_bson, bson.encode(document))[:2] == (len(document) + 4, 0)


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

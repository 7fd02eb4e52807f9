"""WOLP-18, WOLP-19: every data type as text and back, and the texts that are none."""

from __future__ import annotations

import math
import struct
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from wirelake.errors import LocalProtocolError, RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, type_of
from wirelake.protocols.wolpertinger.layer2.values import (
    LONGEST_TOKEN,
    PRIMITIVES,
    DataType,
    DateTime,
    Int32,
    Int64,
    MountInfo,
    UInt64,
    from_datetime,
    moment_text,
    parse,
    to_datetime,
    written,
)

LAST = 3_155_378_975_999_999_999
"""Ticks of 9999-12-31T23:59:59.9999999Z, as .NET has them."""
SOME_ID = UUID("f5afec97-5839-4666-b8d3-8c108b241720")

GOOD = [
    *[("boolean", text, True) for text in ("true", "True", "TRUE", "tRuE", "1", " true\n")],
    *[("boolean", text, False) for text in ("false", "False", "FALSE", "0", "\t0 ")],
    *[("int32", text, value) for text, value in [("0", 0), ("-0", 0), ("+7", 7), ("007", 7), (" 7\r\n", 7), ("0" * 2000 + "1", 1)]],
    *[("int32", str(value), value) for value in (-(2**31), 2**31 - 1)],
    *[("int64", str(value), value) for value in (-(2**63), 2**63 - 1, 2**53 + 1)],
    *[("uint64", str(value), value) for value in (0, 2**64 - 1, 2**53 + 1)],
    *[("double", text, value) for text, value in [("13.37", 13.37), ("1e300", 1e300), (".5", 0.5), ("5.", 5.0), ("-1E-5", -1e-5)]],
    *[
        ("double", text, math.inf)
        for text in ("INF", "Infinity", "+INF", "infinity", "+Infinity", "INFINITY", "inf", " Infinity\n", "1e999")
    ],
    *[("double", text, -math.inf) for text in ("-INF", "-Infinity", "-inf", "-INFINITY")],
    *[("string", text, text) for text in ("", " verbatim ", "ünï\u0000", "\n")],
    *[("guid", text, SOME_ID) for text in (str(SOME_ID), str(SOME_ID).upper())],
    *[
        ("dateTime", text, DateTime(ticks))
        for text, ticks in [
            ("0001-01-01T00:00:00", 0),
            ("0001-01-01T00:00:00.0000001Z", 1),
            ("9999-12-31T23:59:59.9999999Z", LAST),
            ("9999-12-31T23:59:59.99999999999999Z", LAST),
            ("1970-01-01T00:00:00+00:00", 621_355_968_000_000_000),
            ("1970-01-01T02:00:00.5+02:00", 621_355_968_005_000_000),
            ("1969-12-31T10:00:00-14:00", 621_355_968_000_000_000),
            ("1969-12-31T24:00:00.000Z", 621_355_968_000_000_000),
            (" 1970-01-01T00:00:00Z\n", 621_355_968_000_000_000),
            ("2000-02-29T00:00:00Z", 630_873_792_000_000_000),
        ]
    ],
]

BAD = [
    *[("boolean", text) for text in ("", "maybe", "2", "01", "yes", "t rue", "trueſ", "\u00a0true", "true" + " " * LONGEST_TOKEN)],
    *[
        ("int32", text)
        for text in ("", "-", "2147483648", "-2147483649", "0x10", "1.0", "1e3", "1_000", "1,000", "١", "--1", "1 2", "\u00a01")
    ],
    *[("int64", text) for text in ("9223372036854775808", "-9223372036854775809", "9" * 5000, "0" * 5000)],
    *[("uint64", text) for text in ("-1", "18446744073709551616", "9" * 21)],
    *[
        ("double", text)
        for text in ("", "13,37", "1_0", "0x1p3", "e5", ".", "1e", "--1", "∞", "nan(1)", "-NaN", "infinit", "1" * (LONGEST_TOKEN + 1))
    ],
    *[
        ("guid", text)
        for text in ("", f"{{{SOME_ID}}}", SOME_ID.hex, f" {SOME_ID}", f"{SOME_ID}\n", str(SOME_ID)[:-1] + "g", f"urn:uuid:{SOME_ID}")
    ],
    *[
        ("dateTime", text)
        for text in (
            *("", "25/12/2011 19:57:23", "2002-10-10", "19:00:00", "2002-10-10 19:00:00Z", "2002-10-10T19:00Z", "2002-10-10t19:00:00z"),
            *("2001-02-29T00:00:00Z", "2002-13-01T00:00:00Z", "2002-00-01T00:00:00Z", "2002-01-32T00:00:00Z", "0000-01-01T00:00:00Z"),
            *("2002-10-10T24:00:01Z", "2002-10-10T24:00:00.1Z", "2002-10-10T25:00:00Z", "2002-10-10T19:60:00Z", "2002-10-10T19:00:60Z"),
            *("2002-10-10T19:00:00.Z", "2002-10-10T19:00:00+14:01", "2002-10-10T19:00:00+15:00", "2002-10-10T19:00:00+02:60"),
            *("2002-10-10T19:00:00+0200", "-0001-01-01T00:00:00Z", "12002-10-10T19:00:00Z", "0001-01-01T00:00:00+00:01"),
            *(
                "9999-12-31T24:00:00Z",
                "9999-12-31T23:59:59-00:01",
                "2002-10-10T19:00:00." + "0" * LONGEST_TOKEN + "Z",
                "٢002-10-10T19:00:00Z",
            ),
        )
    ],
]


@each(("data_type", "text", "value"), GOOD)
def test_a_text_is_a_value(data_type, text, value):
    parsed = parse(data_type, text)
    assert parsed == value
    assert type_of(parsed) == data_type


@each(("data_type", "text"), BAD)
def test_wolp_18_a_text_that_is_no_value_is_305(data_type, text):
    with pytest.raises(RemoteProtocolError) as refused:
        parse(data_type, text)
    assert refused.value.fault is Fault.VALUE_INVALID
    assert refused.value.fault.rule.error_code == 305
    assert len(refused.value.detail) < 200


def test_not_a_number_is_one():
    for text in ("NaN", "nan", " NAN "):
        assert math.isnan(parse("double", text))
    assert written(math.nan) == ("double", "NaN")


@each(
    ("value", "data_type", "text"),
    [
        (True, "boolean", "true"),
        (False, "boolean", "false"),
        (2**31 - 1, "int32", "2147483647"),
        (2**31, "int64", "2147483648"),
        (-(2**31) - 1, "int64", "-2147483649"),
        (2**63, "uint64", "9223372036854775808"),
        (Int64(1), "int64", "1"),
        (UInt64(1), "uint64", "1"),
        (0.1, "double", "0.1"),
        (-0.0, "double", "-0.0"),
        (math.inf, "double", "INF"),
        (-math.inf, "double", "-INF"),
        ("x", "string", "x"),
        (SOME_ID, "guid", "f5afec97-5839-4666-b8d3-8c108b241720"),
        (DateTime(0), "dateTime", "0001-01-01T00:00:00.0000000Z"),
        (DateTime(LAST), "dateTime", "9999-12-31T23:59:59.9999999Z"),
        (datetime(2002, 10, 10, 19, tzinfo=timezone(timedelta(hours=2))), "dateTime", "2002-10-10T17:00:00.0000000Z"),
    ],
)
def test_a_value_is_a_text(value, data_type, text):
    assert written(value) == (data_type, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, "NaN"), (1e300, "1e+300"), (True, "true"), (7, "7"), ("INF", "INF")],
)
def test_wolp_18_only_infinities_are_spelled_otherwise_for_dotnet(value, text):
    data_type, parsed = written(value, dotnet=True)
    assert parsed == text
    assert repr(parse(data_type, parsed)).endswith(repr(value)) or parse(data_type, parsed) == value


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, Int32(2**31), Int64(2**63), UInt64(-1), DateTime(-1), DateTime(LAST + 1), datetime(2002, 10, 10)]
)
def test_wolp_19_a_value_that_its_type_does_not_hold_is_not_sent(value):
    with pytest.raises(LocalProtocolError) as refused:
        written(value)
    assert refused.value.fault is Fault.VALUE_UNSENDABLE


def test_a_value_knows_its_type():
    assert [type_of(value) for value in ((), [1], MountInfo("a", "b"))] == ["list", "list", "mountInfo"]
    assert [type_of(value) for value in (Call("C", "m", ""), Response("C", ""), Error("C", 100))] == [
        "remoteMethodCall",
        "remoteMethodResponse",
        "remoteError",
    ]
    assert [type_of(value) for value in (None, b"", object(), 1j, {})] == [None] * 5


def test_the_numbers_say_what_they_are():
    assert repr((Int32(1), Int64(-2), UInt64(3))) == "(Int32(1), Int64(-2), UInt64(3))"


@given(st.integers(0, LAST))
def test_every_tick_survives(ticks):
    assert parse("dateTime", moment_text(DateTime(ticks))) == DateTime(ticks)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_datetime_is_the_same_moment(value):
    exact = from_datetime(value)
    assert to_datetime(exact) == value
    assert moment_text(exact) == value.strftime("%Y").zfill(4) + value.strftime("-%m-%dT%H:%M:%S.%f") + "0Z"


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)), st.integers(-839, 839))
def test_a_zone_moves_a_text_and_not_the_moment(value, east):
    local = value.astimezone(timezone(timedelta(minutes=east)))
    assert parse("dateTime", local.isoformat()) == from_datetime(value)


@given(st.floats(allow_nan=False))
def test_every_double_survives_bit_by_bit(value):
    data_type, text = written(value)
    assert struct.pack(">d", parse(data_type, text)) == struct.pack(">d", value)
    assert "," not in text


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_integer_survives(value):
    data_type, text = written(value)
    assert parse(data_type, text) == value
    assert type_of(parse(data_type, text)) == data_type


@given(st.sampled_from(sorted(PRIMITIVES)), st.text() | st.from_regex(r"[-+0-9.eEINFaT:Z ]{0,30}", fullmatch=True))
def test_a_text_is_a_value_that_is_written_as_such_or_refused(data_type, text):
    try:
        value = parse(data_type, text)
    except RemoteProtocolError:
        return
    again = written(value)
    assert again is not None
    assert again[0] == data_type
    assert parse(*again) == value or math.isnan(value)


def test_only_primitives_are_texts():
    assert set(PRIMITIVES) == {*map(str, list(DataType)[:8])}

"""Handshake parts and packets as plain objects (JSON), and back: `parse` undoes `describe`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.relink import speech
from tests.protocols.relink.test_wire import forced, handshakes, packets, stage_of

from wirelake.errors import UsageError
from wirelake.protocols.relink import messages as m
from wirelake.protocols.relink.notation import describe, parse
from wirelake.protocols.relink.scanner import DEFAULT_LIMITS, PART_COLUMNS, ROW_COLUMNS, Stage, scan
from wirelake.protocols.relink.wire import decode, encode

TESTS = Path(__file__).parents[2]
VECTORS = [vector for folder in ("vectors", "conformance/own") for vector in json.loads((TESTS / folder / "relink.json").read_text())]
STAGES = {"version": Stage.VERSION, "open": Stage.REQUEST, "request": Stage.REQUEST, "reply": Stage.REPLY}


def described(data: bytes, stage: Stage, id_size: int) -> dict:
    """What `wirelake decode` shows of a packet, as another program gets it."""
    row, parts = [0] * ROW_COLUMNS, [0] * (DEFAULT_LIMITS.max_parts * PART_COLUMNS)
    assert scan(data, 0, len(data), row, parts, DEFAULT_LIMITS.for_scan(stage, id_size, id_size))[0] == 1
    return msgspec.json.decode(msgspec.json.encode(describe(data, row, parts, base=100)))


def check_inverse(data: bytes, stage: Stage, id_size: int) -> dict:
    """`parse` gives the message, and its bytes unless bits are set that nobody may use (RELINK-12)."""
    shown = described(data, stage, id_size)
    message = parse(shown)
    if "breach" not in shown:
        assert message == decode(data, stage=stage, sender_id_size=id_size, receiver_id_size=id_size)
    if "UNUSED_BITS_SET" in shown.get("tolerated", ()):
        assert encode(message) != data
    else:
        assert encode(message) == data
    return shown


@given(st.one_of(packets, handshakes))
def test_parse_undoes_describe_for_every_message(message):
    data = encode(message)
    shown = check_inverse(data, stage_of(message), 2)
    assert (shown["offset"], shown["length"], shown["type"]) == (100, len(data), m.name_of(type(message)))
    assert parse(shown) == forced(message)


@each("vector", [vector for vector in VECTORS if "hex" in vector], ids=lambda vector: vector["name"])
def test_parse_undoes_describe_for_every_packet_of_the_vectors(vector):
    stage = STAGES.get(vector["fields"].get("kind"), Stage.PACKETS)
    data, id_size = bytes.fromhex(vector["hex"]), vector.get("ctx", {}).get("id_size", 0)
    row, parts = [0] * ROW_COLUMNS, [0] * (DEFAULT_LIMITS.max_parts * PART_COLUMNS)
    if scan(data, 0, len(data), row, parts, DEFAULT_LIMITS.for_scan(stage, id_size, id_size))[0] == 0:
        assert vector["expect"] != "ok"
    elif "fault" in (shown := described(data, stage, id_size)):
        assert vector["expect"] != "ok"
        with pytest.raises(UsageError, match=shown["fault"]):
            parse(shown)
    else:
        check_inverse(data[: shown["length"]], stage, id_size)


@pytest.mark.parametrize("fill", [0, 1])
@pytest.mark.parametrize("multicast", [False, True])
def test_every_form_is_kept(multicast, fill):
    for long in (False, True):
        for large in (False, True):
            data = speech.message((b"ab",), (b"x", b"", b"yz"), multicast=multicast, long=long, large=large, fill=fill)
            shown = check_inverse(data, Stage.PACKETS, 2)
            assert (shown["multicast"], shown["long"], shown["large"]) == (multicast, long, large)


@pytest.mark.parametrize(
    "given_",
    [
        {"type": "nothing"},
        {"type": ["ping"]},
        {"type": "version", "version": 256},
        {"type": "version", "version": True},
        {"type": "reply"},
        {"type": "request", "endpoint": 5},
        {"type": "request", "endpoint": "n" * 256},
        {"type": "request", "require_old_link": 1},
        {"type": "message", "ids": "00"},
        {"type": "message", "ids": ["zz"]},
        {"type": "consumed", "ids": [""], "sequence": 1 << 32},
        {"type": "ping", "fault": "MESSAGE_CUT"},
    ],
)
def test_an_object_that_is_no_message_is_refused(given_):
    with pytest.raises(UsageError):
        parse(given_)


def test_a_fault_is_described_with_its_place():
    data = encode(m.Ping()) + b"\x1d" + bytes(7)
    rows, parts = [0] * (ROW_COLUMNS * 4), [0] * (PART_COLUMNS * 1024)
    scan(data, 0, len(data), rows, parts, DEFAULT_LIMITS.for_scan())
    described = describe(data, rows[ROW_COLUMNS : 2 * ROW_COLUMNS], parts, base=16)
    assert (described["fault"], described["clause"], described["offset"]) == ("FORMAT_UNKNOWN", "RELINK-12", 24)
    data = speech.request(b"\xc3\x28")
    scan(data, 0, len(data), rows, parts, DEFAULT_LIMITS.for_scan(Stage.REQUEST))
    assert describe(data, rows[:ROW_COLUMNS], parts)["fault"] == "ENDPOINT_NOT_UTF8"
    data = speech.request(b"demo", link=9)
    scan(data, 0, len(data), rows, parts, DEFAULT_LIMITS.for_scan(Stage.REQUEST))
    assert describe(data, rows[:ROW_COLUMNS], parts)["breach"] == "LINK_WITHOUT_EPOCH"
    data = speech.message(parts=(b"x",), long=True, fill=1)
    scan(data, 0, len(data), rows, parts, DEFAULT_LIMITS.for_scan())
    assert describe(data, rows[:ROW_COLUMNS], parts)["tolerated"] == ["UNUSED_BITS_SET", "NOT_MINIMAL"]

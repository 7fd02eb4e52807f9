"""YAMP inside captured WebSockets is found and decoded, wherever segments are cut, and with bytes missing."""

from __future__ import annotations

import random

import pytest
from tests.capture import build
from tests.capture.build import pcap
from tests.lake.test_gaps import decoded
from tests.protocols.test_websocket import REQUEST, RESPONSE, frame
from tests.protocols.yamp import speech
from tests.protocols.yamp.speech import UID
from websockets.frames import Opcode

from wirelake.protocols.yamp.serializers import STANDARD

PACKED = STANDARD["msgpack"].serialize({"a": 1})


def by_field(said: bytes, sizes) -> bytes:
    """A message as the Node peer sends it: one WebSocket message for each field."""
    out, at = b"", 0
    for size in (*sizes, len(said)):
        out += frame(said[at : at + size], mask=True)
        at += size
    return out


CLIENT = (
    REQUEST
    + by_field(speech.handshake(1, b"msgpack"), (1, 2, 1))
    + frame(b"alive", Opcode.PING, mask=True)
    + frame(speech.request(b"work", PACKED), mask=True)
    + frame(speech.event(b"large", STANDARD["msgpack"].serialize("x" * 3000))[:2000], fin=False, mask=True)
    + frame(speech.event(b"large", STANDARD["msgpack"].serialize("x" * 3000))[2000:], Opcode.CONT, mask=True)
    + frame(speech.close(b"enough"), mask=True)
    + frame(b"\x03\xe8", Opcode.CLOSE, mask=True)
)
SERVER = (
    RESPONSE
    + frame(speech.handshake(1, b"msgpack"))
    + frame(b"alive", Opcode.PONG)
    + frame(speech.response(UID, 0, PACKED, uri=b"work"))
    + frame(b"\x03\xe8", Opcode.CLOSE)
)
SAID = [
    ("to_server", "system.handshake", None),
    ("to_server", "request", '{"a":1}'),
    ("to_server", "event", '"' + "x" * 3000 + '"'),
    ("to_server", "system.close", None),
    ("to_client", "system.handshake", None),
    ("to_client", "response", '{"a":1}'),
]


def conversation() -> build.Talk:
    """A connection to a port that says nothing about its protocol."""
    return build.Talk(server=(build.SERVER[0], 8888)).open()


def captured(path, client: bytes, server: bytes, cuts: int, seed: int = 4, lost=()):
    """A capture of a connection in so many segments each way, of which some of the client's are lost."""
    dice, talk = random.Random(seed), conversation()
    for side, said in ((0, client), (1, server)):
        places = sorted(dice.randrange(1, len(said)) for _ in range(cuts))
        for number, (start, stop) in enumerate(zip([0, *places], [*places, len(said)], strict=True)):
            if side == 0 and number in lost:
                talk.next[0] += stop - start
            elif stop > start:
                talk.say(side, said[start:stop])
    path.write_bytes(pcap(talk.frames()))
    return path


def said_in(rows):
    found = sorted(rows["messages"], key=lambda row: (row["direction"] == "to_client", row["offset"]))
    return [(row["direction"], row["name"], row["body_json"]) for row in found]


@pytest.mark.parametrize("cuts", [0, 1, 5, 40])
@pytest.mark.parametrize("window", [300, 8 << 20])
def test_yamp_inside_websockets_is_decoded_wherever_segments_are_cut(tmp_path, cuts, window):
    for seed in range(4):
        rows = decoded(captured(tmp_path / "a.pcap", CLIENT, SERVER, cuts, seed), window)
        assert said_in(rows) == SAID
        assert rows["quarantine"] == []
        wrapping = sum(row["bytes"] for row in rows["ledger"] if row["reason"] == "websocket")
        assert wrapping == len(CLIENT) + len(SERVER) - sum(row["size"] for row in rows["messages"])
        assert {row["protocol"] for row in rows["connections"]} == {"yamp"}


def test_every_message_leads_back_to_its_bytes(tmp_path):
    path = captured(tmp_path / "a.pcap", CLIENT, SERVER, 0)
    data = path.read_bytes()
    request = next(row for row in decoded(path)["messages"] if row["name"] == "request")
    assert request["length"] == request["size"]
    wire = data[request["offset"] : request["offset"] + request["length"]]
    mask = data[request["offset"] - 4 : request["offset"]]
    assert bytes(byte ^ mask[place % 4] for place, byte in enumerate(wire)) == speech.request(b"work", PACKED)


def test_a_gap_inside_a_payload_costs_that_message(tmp_path):
    events = [speech.event(b"e", b'"%04d"' % number + b" " * 500) for number in range(20)]
    stream = REQUEST + frame(speech.handshake(), mask=True) + b"".join(frame(event, mask=True) for event in events)
    head = len(stream) - sum(len(frame(event, mask=True)) for event in events)
    talk = conversation()
    size = len(frame(events[0], mask=True))
    first, second = head + 5 * size + 100, head + 5 * size + 200
    talk.say(0, stream[:first])
    talk.next[0] += second - first
    talk.say(0, stream[second:])
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    rows = decoded(tmp_path / "a.pcap")
    found = [row["body_json"].strip() for row in sorted(rows["messages"], key=lambda row: row["offset"]) if row["name"] == "event"]
    assert found == [f'"{number:04d}"' for number in range(20) if number != 5]
    assert {row["reason"] for row in rows["quarantine"]} == {"GAP"}


def test_a_gap_in_a_header_loses_the_direction_and_nothing_else(tmp_path):
    head = len(REQUEST) + len(by_field(speech.handshake(1, b"msgpack"), (1, 2, 1)))
    talk = conversation()
    talk.say(0, CLIENT[:head])
    talk.next[0] += 3
    talk.say(0, CLIENT[head + 3 :])
    talk.say(1, SERVER)
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    rows = decoded(tmp_path / "a.pcap")
    assert said_in(rows) == [SAID[0], *SAID[4:]]
    assert {row["reason"] for row in rows["quarantine"]} == {"GAP"}


@pytest.mark.parametrize(
    "alien",
    [frame(b"hello", Opcode.TEXT, mask=True), b"\xc2\x85maskhello", b"\x83\x80mask"],
    ids=["text", "reserved bits", "reserved opcode"],
)
def test_frames_that_cannot_be_read_are_kept_and_named(tmp_path, alien):
    client = REQUEST + frame(speech.handshake(), mask=True) + frame(speech.event(), mask=True) + alien + frame(speech.event(), mask=True)
    rows = decoded(captured(tmp_path / "a.pcap", client, SERVER, 3))
    assert [name for direction, name, _ in said_in(rows) if direction == "to_server"] == ["system.handshake", "event"]
    assert {row["reason"] for row in rows["quarantine"]} == {"WEBSOCKET_FRAME"}


def test_yamp_without_websockets_is_left_as_it_is(tmp_path):
    client = speech.handshake() + speech.event(b"e", b"[1]")
    rows = decoded(captured(tmp_path / "a.pcap", client, speech.handshake(), 3))
    assert [row[1:] for row in said_in(rows)] == [("system.handshake", None), ("event", "[1]"), ("system.handshake", None)]


def test_a_websocket_with_something_else_inside_is_other_traffic(tmp_path):
    rows = decoded(captured(tmp_path / "a.pcap", REQUEST + frame(b"chat" * 10, mask=True), RESPONSE + frame(b"chat" * 10), 2))
    assert rows["messages"] == []
    assert "yamp" not in {row["protocol"] for row in rows["connections"]}

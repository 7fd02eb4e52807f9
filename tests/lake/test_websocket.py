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

from wirelake.protocols.yamp.serializers.registry import STANDARD

PACKED = STANDARD["msgpack"].serialize({"a": 1})


@pytest.fixture(autouse=True)
def _masks(monkeypatch):
    """The same masks every time: what looks like a frame by chance must not depend on chance."""
    monkeypatch.setattr("secrets.token_bytes", random.Random(9).randbytes)


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


def test_a_gap_in_a_header_costs_what_it_touched(tmp_path):
    head = len(REQUEST) + len(by_field(speech.handshake(1, b"msgpack"), (1, 2, 1)))
    talk = conversation()
    talk.say(0, CLIENT[:head])
    talk.next[0] += 3
    talk.say(0, CLIENT[head + 3 :])
    talk.say(1, SERVER)
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    rows = decoded(tmp_path / "a.pcap")
    assert said_in(rows) == SAID
    ping = frame(b"alive", Opcode.PING, mask=True)
    assert [(row["reason"], row["length"]) for row in rows["quarantine"]] == [("GAP", len(ping) - 3)]


def events(count: int, size: int = 700) -> list[bytes]:
    return [speech.event(b"e", b'"%05d"' % number + b" " * (size - number % 7)) for number in range(count)]


def numbers(rows, direction: str) -> list[int]:
    found = sorted((row for row in rows["messages"] if row["direction"] == direction), key=lambda row: row["offset"])
    return [int(row["body_json"].strip('" ')) for row in found if row["name"] == "event"]


def lossy(path, stream: bytes, side: int, lost: tuple[int, int]):
    """A capture of a connection on which this part of one side's stream is missing."""
    start, stop = lost
    talk = conversation()
    talk.say(1 - side, (REQUEST if side else RESPONSE) + frame(speech.handshake(), mask=bool(side)))
    for first, last in ((0, start), (stop, len(stream))):
        for at in range(first, last, 1400):
            talk.say(side, stream[at : min(at + 1400, last)])
        talk.next[side] += stop - start if not first else 0
    path.write_bytes(pcap(talk.frames()))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("side", [0, 1], ids=["masked", "unmasked"])
@pytest.mark.parametrize("window", [3000, 8 << 20])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_lost_packet_costs_the_messages_it_touched_and_no_other(tmp_path, side, window, parts):
    """Wherever it lies: in payload, over a header, over several frames."""
    head = (RESPONSE if side else REQUEST) + frame(speech.handshake(), mask=not side)
    said, places = head, []
    for event in events(90):
        begin, third = len(said), len(event) // parts + 1
        for at in range(0, len(event), third):
            code = Opcode.CONT if at else Opcode.BINARY
            said += frame(event[at : at + third], code, fin=at + third >= len(event), mask=not side)
        places.append((begin, len(said)))
    dice = random.Random(side + parts)
    for _ in range(4):
        start = dice.randrange(places[5][0], places[80][0])
        lost = (start, start + dice.choice([1, 3, 1400, 5000]))
        rows = decoded(lossy(tmp_path / "a.pcap", said, side, lost), window)
        affected = {number for number, (begin, end) in enumerate(places) if begin < lost[1] and end > lost[0]}
        found = numbers(rows, "to_client" if side else "to_server")
        assert found == [number for number in range(90) if number not in affected]
        assert {row["reason"] for row in rows["quarantine"]} <= {"GAP"}


def test_several_gaps_and_one_at_the_end_cost_no_more_than_each_touched(tmp_path):
    said = [REQUEST + frame(speech.handshake(), mask=True), *(frame(event, mask=True) for event in events(40))]
    stream = b"".join(said)
    ends = [sum(map(len, said[: number + 1])) for number in range(len(said))]
    talk, at = conversation(), 0
    talk.say(1, RESPONSE + frame(speech.handshake()))
    for begin, end in [(ends[9] - 5, ends[9] + 5), (ends[12] + 100, ends[13] + 3), (ends[39] - 20, ends[39] + 1)]:
        talk.say(0, stream[at:begin])
        talk.next[0] += end - begin
        at = end
    talk.say(0, stream[at:])
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    rows = decoded(tmp_path / "a.pcap")
    assert numbers(rows, "to_server") == [number for number in range(40) if number not in (8, 9, 12, 13, 38, 39)]


def test_payload_that_looks_like_frames_is_left_again(tmp_path, monkeypatch):
    """Zeros under this mask are frames of two bytes each, to whoever begins to read in the middle of them."""
    monkeypatch.setattr("secrets.token_bytes", lambda _: b"\x82\x82\x11\x93")
    tricky = frame(speech.event(b"e", b'"00020"' + bytes(1500)), mask=True)
    monkeypatch.setattr("secrets.token_bytes", random.Random(2).randbytes)
    said = [frame(event, mask=True) for event in events(60)]
    said[20] = tricky
    head = REQUEST + frame(speech.handshake(), mask=True)
    start = len(head) + sum(map(len, said[:20]))
    for size in range(4):
        stream = head + b"".join(said)
        rows = decoded(lossy(tmp_path / "a.pcap", stream, 0, (start - 1, start + 300 + size)))
        found = numbers(rows, "to_server")
        assert found == sorted(found)
        assert set(found) >= {number for number in range(60) if number not in (19, 20, 21)}


def test_what_certainly_follows_no_gap_is_set_aside_whole(tmp_path):
    stream = REQUEST + frame(speech.handshake(), mask=True) + frame(speech.event(b"e", b'"00000"'), mask=True)
    noise = b"no frame is here, for as long as anybody looks. " * 60_000
    talk = conversation().say(1, RESPONSE + frame(speech.handshake()))
    talk.say(0, stream)
    talk.next[0] += 100
    for at in range(0, len(noise), 60_000):
        talk.say(0, noise[at : at + 60_000])
    (tmp_path / "a.pcap").write_bytes(pcap(talk.frames()))
    rows = decoded(tmp_path / "a.pcap", 200_000)
    assert numbers(rows, "to_server") == [0]
    assert sum(row["bytes"] for row in rows["ledger"] if row["category"] == "quarantine") == len(noise)


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

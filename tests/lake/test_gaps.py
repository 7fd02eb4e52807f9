"""Gaps: what a capture lost costs the messages it lost bytes of, and every other is read."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.capture.build import Talk, pcap
from tests.cases import seeds

from wirelake import protocols
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.packets import tcp_stream as stream_room
from wirelake.lake.decode import decoder as decode_decoder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.lake.tables.catalog import TABLES
from wirelake.protocols.emp.messages import Data, Hello, Ping
from wirelake.protocols.emp.wire import encode


def decoded(path, window: int = 8 << 20) -> dict[str, list[dict]]:
    """Rows by table, and the ledger held to the size of the file."""
    source = identify(path)
    decoder = Decoder(DecodeOptions())
    out: dict[str, list[dict]] = {name: [] for name in TABLES}
    fed = [decoder.feed(block) for block in read(source, ports={5040: "emp"}, sniff=protocols.sniff, window=window)]
    for batches in (*fed, decoder.finish()):
        for name, parts in batches.items():
            for part in parts:
                out[name] += pa.Table.from_batches([part]).cast(TABLES[name].schema).to_pylist()
    assert sum(row["bytes"] for row in out["ledger"]) == source.size
    return out


def body(number: int, size: int = 100) -> bytes:
    return b"%06d" % number + b"." * (size - 6)


def frames(count: int, size: int = 100) -> list[bytes]:
    return [encode(Hello()), *(encode(Data(body(number, size))) for number in range(count))]


def captured(path, stream: bytes, cuts: list[int], lost: set[int], *, midway: bool = False):
    """A capture of a stream in segments, of which some are lost."""
    talk = Talk()
    if midway:
        talk.next[0] += 1
    else:
        talk.open()
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(stream)], strict=True)):
        if number in lost:
            talk.next[0] += stop - start
        else:
            talk.say(0, stream[start:stop])
    path.write_bytes(pcap(talk.frames()))
    return path


def bodies(rows: dict[str, list[dict]]) -> list[int]:
    return [int(row["body"][:6]) for row in rows["messages"] if row["body"]]


@pytest.mark.parametrize("window", [1, 400, 8 << 20])
def test_a_gap_inside_a_message_costs_that_message_only(tmp_path, window):
    made = frames(6)
    stream = b"".join(made)
    third = sum(map(len, made[:3]))
    path = captured(tmp_path / "gap.pcap", stream, [third + 20, third + 50], {1})
    rows = decoded(path, window)
    assert bodies(rows) == [0, 1, 3, 4, 5]
    spoilt = [(row["reason"], row["raw"]) for row in rows["quarantine"]]
    assert spoilt == [("GAP", stream[third : third + 20]), ("GAP", stream[third + 50 : third + len(made[3])])] or spoilt == [
        ("GAP", stream[third : third + 20] + stream[third + 50 : third + len(made[3])])
    ]


@pytest.mark.parametrize("window", [1, 8 << 20])
@pytest.mark.parametrize("end", range(90, 111, 5))
def test_wherever_a_gap_ends_what_comes_after_is_read(tmp_path, window, end):
    made = frames(12)
    stream = b"".join(made)
    third = sum(map(len, made[:3]))
    path = captured(tmp_path / "gap.pcap", stream, [third + 20, third + end], {1})
    found = bodies(decoded(path, window))
    assert found[:2] == [0, 1]
    assert found[2:] in (list(range(3, 12)), list(range(4, 12)))
    assert (found[2] == 3) == (third + end <= sum(map(len, made[:4])))


def test_a_gap_that_takes_a_header_is_overcome_at_the_next_certain_message(tmp_path):
    made = frames(12)
    stream = b"".join(made)
    third = sum(map(len, made[:3]))
    for start, stop in ((-30, 30), (0, 30), (3, 30), (0, 4), (5, 108), (0, 108), (-150, 300)):
        path = captured(tmp_path / "gap.pcap", stream, [third + start, third + stop], {1})
        found = bodies(decoded(path))
        untouched = [n for n in range(12) if third + start >= _end(made, n) or third + stop <= _start(made, n)]
        assert found == untouched, (start, stop)


def _start(made: list[bytes], number: int) -> int:
    return sum(map(len, made[: number + 1]))


def _end(made: list[bytes], number: int) -> int:
    return sum(map(len, made[: number + 2]))


@pytest.mark.parametrize("patient", [True, False])
def test_a_message_that_many_gaps_hit_is_passed_over_to_its_end(tmp_path, monkeypatch, patient):
    if not patient:
        monkeypatch.setattr(stream_room, "MAX_AHEAD", 0)  # gaps are declared at once, and the message goes on in other blocks
    tempting = body(1, 600) + b"".join(encode(Data(body(9, 90))) for _ in range(45))  # it looks like messages inside
    made = [encode(Hello()), encode(Data(body(0))), encode(Data(tempting)), encode(Data(body(2))), encode(Data(body(3)))]
    stream = b"".join(made)
    first = sum(map(len, made[:2]))
    cuts = [first + 100, first + 500, first + 1000, first + 1500, first + 2000]
    for window in (1, 700, 8 << 20):
        rows = decoded(captured(tmp_path / "gap.pcap", stream, cuts, {1, 3}), window)
        assert bodies(rows) == [0, 2, 3]
        assert {row["reason"] for row in rows["quarantine"]} == {"GAP"}


def test_a_stream_seen_from_its_middle_is_read_from_the_first_certain_message(tmp_path):
    made = frames(6)
    stream = b"".join(made)
    for start in (0, 8, 30, 115, 130):
        for window in (1, 8 << 20):
            path = captured(tmp_path / "gap.pcap", stream[start:], [400], set(), midway=True)
            found = bodies(decoded(path, window))
            expected = [n for n in range(6) if _start(made, n) >= start]
            assert found == expected, (start, window)


def test_what_is_never_certain_is_kept_in_quarantine(tmp_path):
    made = frames(2)
    stream = b"".join(made) + encode(Data(body(2, 300)))[:200]
    path = captured(tmp_path / "gap.pcap", stream, [len(made[0]) + 3, len(made[0]) + 130], {1})
    rows = decoded(path)
    assert bodies(rows) == [] or bodies(rows) == [1]
    assert {row["reason"] for row in rows["quarantine"]} <= {"GAP", "MESSAGE_CUT"}


@pytest.mark.parametrize("seed", seeds(10, test=4))
def test_random_losses_cost_what_they_hit_and_little_more(tmp_path, seed):
    dice = random.Random(seed)
    made = [encode(Hello())]
    made += [encode(Data(body(n, dice.choice([20, 100, 700])))) if dice.random() < 0.8 else encode(Ping()) for n in range(200)]
    stream = b"".join(made)
    cuts = sorted(dice.sample(range(1, len(stream)), 150))
    lost = set(dice.sample(range(1, 151), 8))
    ends = [0, *cuts, len(stream)]
    holes = [(ends[n], ends[n + 1]) for n in lost]
    results = []
    for window in (600, 8 << 20):
        path = captured(tmp_path / "gap.pcap", stream, cuts, lost)
        results.append(bodies(decoded(path, window)))
    at, whole = 0, []
    for frame in made:
        if all(stop <= at or start >= at + len(frame) for start, stop in holes) and b"." in frame:
            whole.append(int(frame[8:14]))
        at += len(frame)
    assert set(results[1]) <= set(whole)
    assert len(results[1]) >= len(whole) - 2 * len(lost)
    assert len(results[0]) >= len(whole) - 3 * len(lost)
    assert results[1] == sorted(results[1])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 300])
def test_unfinished_messages_of_many_connections_are_let_go_when_too_many_wait(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(decode_decoder, "MAX_CARRIED", limit)
    message = encode(Data(body(1, 300) + encode(Data(body(9))) * 3))  # it looks like messages inside
    talks = []
    for port in range(1000, 1020):
        talk = Talk(("10.0.0.1", port)).open().say(0, encode(Hello()) + message[:250])
        talks.append((talk, talk.frames()[:]))
    rest = []
    for talk, before in talks:
        talk.say(0, message[250:]).say(0, encode(Data(body(2)))).say(0, encode(Data(body(3))))
        rest += talk.frames()[len(before) :]
    path = tmp_path / "many.pcap"
    path.write_bytes(pcap([frame for _, before in talks for frame in before] + rest))
    rows = decoded(path, window=1000)
    found = bodies(rows)
    assert found.count(2) == found.count(3) == 20  # what comes after a message that was let go is read
    assert found.count(1) <= (0 if limit == 0 else 2)
    assert 9 not in found
    assert {row["reason"] for row in rows["quarantine"]} == {"MESSAGE_CUT", "GAP"}

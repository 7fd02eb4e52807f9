"""Splits: a file divided at any offsets gives the records of one reader, even where payloads look like records."""

from __future__ import annotations

import gzip
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.capture.build import (
    Talk,
    block,
    check,
    ethernet,
    interface,
    old_packet_block,
    packet_block,
    pcap,
    said,
    section,
    simple_packet_block,
)

from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.read_file import read, walk_split
from wirelake.capture.containers import pcap as pcap_room
from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.containers.walk import Damaged, Walk
from wirelake.capture.files.identity import identify
from wirelake.capture.files.source_file import open_source
from wirelake.capture.files.split import ByteRange, Guess, Split, divide, guess, reconcile

TS = 1_700_000_000_000_000
CUTS = 1000


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


def noise(dice: random.Random, size: int) -> bytes:
    return dice.randbytes(size)


def frame(text: bytes, port: int = 1000) -> bytes:
    return ethernet(Talk(("10.0.0.1", port)).segment(0, 16, text))


def treacherous(kind: str, seed: int, order: str = "<") -> bytes:
    """A capture whose packets carry whole captures of the same kind, so that most places look like the beginning of a record."""
    dice = random.Random(seed)
    inner = []
    for n in range(6):
        small = [(TS + k, frame(noise(dice, dice.randint(1, 40)))) for k in range(dice.randint(1, 8))]
        if kind == "pcap":
            inner.append(pcap(small, order=order)[24 * (n % 2) :])
        else:
            inner.append(
                section(order) * (n % 2) + interface(1, order) * (n % 3 == 0) + b"".join(packet_block(ts, one, order) for ts, one in small)
            )
    packets = []
    for n in range(40):
        text = dice.choice([*inner, b"".join(dice.choices(inner, k=4)), noise(dice, dice.randint(1, 300))])
        packets.append((TS + n * dice.choice([1, 1000, 10**7]), frame(text, 1000 + n % 5)))
    if kind == "pcap":
        return pcap(packets, order=order, nanoseconds=bool(seed % 2))
    made = [section(order), interface(1, order, resolution=9), simple_packet_block(frame(b"no time"), order)]
    for n, (ts, one) in enumerate(packets):
        choice = dice.randrange(12)
        if choice == 0:
            made.append(simple_packet_block(one, order))
        elif choice == 1:
            made.append(block(5, bytes(20), order))
        elif choice == 2:
            made.append(interface(dice.choice([1, 101]), order, resolution=6))
        elif choice == 3 and n % 4 == 0:
            order = dice.choice("<>")
            made.append(section(order) + interface(1, order))
        elif choice == 4:
            made.append(old_packet_block(ts, one, order))
        else:
            made.append(packet_block(ts, one, order))
    return b"".join(made)


def spoil(raw: bytes, seed: int) -> bytes:
    """Damage in a few places."""
    dice = random.Random(seed)
    data = bytearray(raw)
    for _ in range(3):
        at = dice.randrange(100, len(data))
        data[at : at + 8] = dice.choice([b"\xff" * 8, bytes(8), noise(dice, 30), b""])
    return bytes(data)


FILES = {
    "pcap": treacherous("pcap", 1),
    "pcap, big-endian, microseconds": treacherous("pcap", 2, ">"),
    "pcapng": treacherous("pcapng", 3),
    "pcapng, big-endian": treacherous("pcapng", 4, ">"),
    "damaged pcap": spoil(treacherous("pcap", 5), 5),
    "damaged pcapng": spoil(treacherous("pcapng", 6), 6),
    "joined": treacherous("pcap", 7) + treacherous("pcap", 8, ">") + treacherous("pcapng", 9),
    "joined the other way": treacherous("pcapng", 10)[:-6] + treacherous("pcap", 11) + treacherous("pcapng", 12),
}


def found(source: Source, splits: list[Split] | None = None, window: int = 8 << 20) -> list[tuple[object, ...]]:
    """All records of a source, with places in the source, and what is no record."""
    rows: list[tuple[object, ...]] = []
    with open_source(source) as file:
        for split in [None] if splits is None else splits:
            for step in walk_split(source, file, split, window).steps():
                if isinstance(step, Damaged):
                    rows.append((step.base, step.raw, step.reason))
                    continue
                for row in step.rows.tolist():
                    rows.append((row[0] + step.base, row[1], row[2], row[3] + step.base, *row[4:]))
    return rows


def claims_of(source: Source, places: list[int]) -> list[Guess]:
    ends = [0, *sorted(places), source.size]
    return [guess(source, ByteRange(start, stop)) for start, stop in pairwise(ends) if start < stop]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_any_cuts_give_what_one_reader_finds(tmp_path, name):
    path = tmp_path / "file"
    path.write_bytes(FILES[name])
    source = identify(path)
    expected = found(source)
    assert sum(len(row[1]) if isinstance(row[1], bytes) else row[1] for row in expected) == source.size
    dice = random.Random(name)
    wrong, done = 0, 0
    while done < CUTS:
        places = [dice.randrange(1, source.size) for _ in range(dice.choice([1, 2, 10, 50]))]
        done += len(places)
        claims = claims_of(source, places)
        splits = reconcile(source, claims)
        taken = {(split.begin, split.end) for split in splits}
        wrong += sum((one.begin, one.end) not in taken for one in claims)
        assert found(source, splits) == expected
        assert [split.begin for split in splits] == [0, *(split.end for split in splits[:-1])]
        assert splits[-1].end == source.size
    assert wrong > CUTS // 50  # these files do deceive


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_single_cut_near_the_start_gives_what_one_reader_finds(tmp_path, name):
    path = tmp_path / "file"
    path.write_bytes(FILES[name])
    source = identify(path)
    expected = found(source)
    for place in range(1, 150):
        assert found(source, reconcile(source, claims_of(source, [place]))) == expected


def test_windows_do_not_change_what_is_found(tmp_path):
    for name, raw in FILES.items():
        path = tmp_path / "file"
        path.write_bytes(raw)
        source = identify(path)
        expected = found(source)
        for window in (1, 100, 5000):
            assert [row[:2] for row in found(source, window=window)] == [row[:2] for row in expected], name


@pytest.mark.slow
@pytest.mark.parametrize("between", [b"", section() + interface(1)])
def test_packets_without_a_time_have_none_wherever_reading_begins(tmp_path, between):
    timeless = b"".join(simple_packet_block(frame(b"%d" % n)) for n in range(5))
    raw = section() + interface(1) + packet_block(TS, frame(b"first")) + timeless + packet_block(TS + 99, frame(b"later"))
    raw += pcap([(TS + 5, frame(b"x"))])
    raw += between + (timeless if between else b"") + pcap([(TS + 6, frame(b"y"))])
    path = tmp_path / "file"
    path.write_bytes(raw)
    source = identify(path)
    expected = found(source)
    assert {row[6] for row in expected[3:8]} == {NO_TIME}
    for place in range(1, len(raw), 3):
        for other in (place + 1, len(raw) - 1):
            assert found(source, reconcile(source, claims_of(source, [place, other]))) == expected


def test_a_search_does_not_believe_in_neighbours_years_apart(tmp_path):
    state = np.zeros(pcap_room.STATE_SIZE, np.int64)
    near = pcap([(TS + n * 10**9, frame(b"x")) for n in range(5)])
    far = pcap([(TS + n * 10**13, frame(b"x")) for n in range(5)])
    pcap_room.scan(near, 0, len(near), len(near), state, np.zeros((9, 8), np.int64))
    assert pcap_room.find(near, 24, len(near), 0, state) == (24, 0)
    assert pcap_room.find(far, 24, len(far), 0, state)[0] == -1


def plain(count: int, kind: str) -> bytes:
    dice = random.Random(count)
    packets = [(TS + n, frame(noise(dice, dice.randint(20, 400)), 1000 + n)) for n in range(count)]
    if kind == "pcap":
        return pcap(packets)
    return section() + interface() + b"".join(packet_block(ts, one) for ts, one in packets)


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_guesses_in_an_ordinary_file_are_right(tmp_path, kind):
    path = tmp_path / "file"
    path.write_bytes(plain(2000, kind))
    source = identify(path)

    def never(stretch: ByteRange, at: int, known: object) -> Guess:
        raise AssertionError(f"{stretch} was guessed wrong: {at}")

    for size in (10_000, 33_333, 100_000):
        unreadable = divide(source, size)
        assert len(unreadable) > 3
        assert [one.stop for one in unreadable[:-1]] == [one.start for one in unreadable[1:]]
        splits = reconcile(source, [guess(source, one) for one in unreadable], never)
        assert len(splits) == len(unreadable)
        assert found(source, splits) == found(source)


def test_blocks_of_splits_say_what_blocks_of_the_file_say(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(plain(300, "pcapng"))
    source = identify(path)
    splits = reconcile(source, [guess(source, one) for one in divide(source, 9000)])
    assert len(splits) > 5
    blocks = []
    for split in splits:
        for one in read(source, ports={5040: "emp"}, sniff=lambda data: None, split=split):
            one.last = False
            blocks.append(one)
    blocks[-1].last = True
    check(blocks, path.read_bytes(), source.size)
    whole = list(read(source, ports={5040: "emp"}, sniff=lambda data: None))
    assert said(blocks) == said(whole)


def test_a_record_over_many_stretches_leaves_the_others_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(section() + interface(252) + packet_block(TS, bytes(50_000)) + packet_block(TS, bytes(100)))
    source = identify(path)
    splits = reconcile(source, [guess(source, one) for one in divide(source, 1000)])
    assert found(source, splits) == found(source)
    assert len(splits) < 4


@pytest.mark.parametrize("raw", [b"", b"hello", bytes(1000), b"\x0a\x0d\x0d\x0a" * 10, pcap([])])
def test_files_without_records_are_split_too(tmp_path, raw):
    path = tmp_path / "file"
    path.write_bytes(raw)
    source = identify(path)
    unreadable = [ByteRange(0, len(raw) // 2), ByteRange(len(raw) // 2, len(raw))]
    assert found(source, reconcile(source, [guess(source, one) for one in unreadable])) == found(source)


def test_a_packed_file_is_one_split(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(plain(300, "pcap")))
    source = identify(path)
    splits = reconcile(source, [guess(source, one) for one in divide(source, 3000)])
    assert [(split.begin, split.known) for split in splits] == [(0, None)]
    assert found(source, splits) == found(source)


def test_a_walk_says_where_it_ended(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(plain(50, "pcap"))
    source = identify(path)
    with open_source(source) as file:
        walk = Walk(source.path, file, stop=1000)
        last = [step for step in walk.steps() if not isinstance(step, Damaged)][-1]
        assert walk.at >= 1000
        assert last.base + last.rows[-1, 0] < 1000

"""Growing files: new, moved and replaced files are read once, in whole records, as one read would."""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from itertools import pairwise

import pytest
from tests.capture.build import PORTS, interface, packet_block, pcap, section
from tests.capture.test_read_split import as_pcapng, busy, ledger_entries, spoken

from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.read_split import PacketBatch, read_split
from wirelake.capture.blocks.transfer import from_batch, to_batches
from wirelake.capture.files.growing import Follower, Limits, Offset, micro_batches
from wirelake.capture.files.identity import KnownFile, identify, mark

TS = 1_700_000_000_000_000
NO_LIMITS = Limits()


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


def nobody(data: bytes) -> str | None:
    """Nothing is known by its bytes here."""


class Reader:
    """Follows files and reads what there is; a new one goes on where the last one was killed."""

    def __init__(self, paths, *, settle: float = 60.0, known=()) -> None:
        self.paths = paths
        self.now = 0.0
        self.settle = settle
        self.known = known
        self.offset = Offset()
        self.assembly = Assembly(PORTS, nobody)
        self.blocks: list[Block] = []
        self.spans: list[tuple[str, int, int]] = []
        self.again()

    def again(self) -> None:
        self.follower = Follower(self.known, settle=self.settle, now=lambda: self.now)
        self.assembly = Assembly.put(self.assembly.take(), PORTS, nobody)

    def end(self) -> int:
        """Read what is there as if nothing more came; says how many portions that was."""
        self.settle = -1.0
        self.again()
        works = 0
        for _ in range(3000):
            works += self.step(Limits(bytes=5000))
            if not self.offset.is_open:
                break
        return works

    def step(self, limits: Limits = NO_LIMITS) -> int:
        """One look, and all that is read by it; says how many portions that was."""
        paths = sorted(str(path) for path in self.paths() if path.exists())
        end = self.follower.latest(self.offset, paths, limits)
        packet_batches = []
        works = micro_batches(self.offset, end)
        for work in works:
            self.spans.append((work.source.path, work.spans[-1].at, work.spans[-1].length))
            sent = to_batches(read_split(work, ports=PORTS, window=5000))
            for one in (item for batch in sent for item in from_batch(batch)):
                (packet_batches if isinstance(one, PacketBatch) else self.blocks).append(one)
        for parcel in sorted(packet_batches, key=lambda one: (one.rank, one.place)):
            self.blocks += self.assembly.feed(parcel)
        self.blocks += self.assembly.finish() if end.settled > self.offset.settled else self.assembly.rest()
        self.offset = end
        return len(works)


def touched(path, now: float) -> None:
    os.utime(path, (now, now))


def one_reading(path) -> tuple:
    blocks = list(read(identify(path), ports=PORTS, sniff=lambda data: None))
    return spoken(blocks), ledger_entries(blocks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda seed: pcap([(TS + n, one) for n, one in enumerate(busy(seed))]), lambda seed: as_pcapng(busy(seed), seed)]
)
@pytest.mark.parametrize("seed", range(5))
def test_a_file_that_grows_is_read_as_if_it_had_been_there_whole(tmp_path, make, seed):
    dice = random.Random(seed)
    path = tmp_path / "a.pcap"
    whole = make(seed)
    reader = Reader(lambda: [path])
    at = 0
    while at < len(whole):
        at = min(len(whole), at + dice.choice([1, 30, 700, 5000, 40_000]))
        path.write_bytes(whole[:at])
        touched(path, reader.now)
        reader.step(Limits(bytes=dice.choice([0, 0, 500, 3000])))
        reader.now += 1
        if dice.random() < 0.2:
            reader.again()
    reader.end()
    said, told = one_reading(path)
    assert spoken(reader.blocks) == said
    assert ledger_entries(reader.blocks) == told
    ends = [(start, start + length) for _, start, length in reader.spans]
    assert ends[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    assert ends[-1][1] == len(whole)


@pytest.mark.parametrize("short", [1, 3, 20, 60, 1000, 9000])
def test_a_file_that_pauses_in_the_middle_of_a_record_for_long_loses_nothing(tmp_path, short):
    """A writer that buffers, on a quiet line: time alone ends neither a record, nor a message, nor a connection."""
    path = tmp_path / "a.pcap"
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(1))])
    path.write_bytes(whole[:-short])
    touched(path, 0)
    reader = Reader(lambda: [path], settle=10)
    assert reader.step() == 1
    at = reader.offset.files[0].at
    assert at <= len(whole) - short
    for reader.now in (9.0, 10.0, 10.0**6):
        assert reader.step() == 0
    assert (reader.offset.files[0].at, reader.offset.files[0].is_over, reader.offset.settled) == (at, False, 0)
    expected = [] if at == len(whole) - short else [(str(path), at, len(whole) - short)]
    assert reader.follower.unread(reader.offset) == expected
    path.write_bytes(whole)
    touched(path, reader.now)
    assert reader.step() == 1
    assert reader.offset.files[0].at == len(whole)
    reader.end()
    assert (spoken(reader.blocks), ledger_entries(reader.blocks)) == one_reading(path)


def test_the_user_ends_a_torn_record_and_it_is_cut(tmp_path):
    path = tmp_path / "a.pcap"
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(1))])
    path.write_bytes(whole[:-3])
    touched(path, 0)
    reader = Reader(lambda: [path], settle=10)
    assert reader.step() == 1
    assert reader.end() == 1
    assert (reader.offset.files[0].at, reader.offset.files[0].is_over, reader.offset.settled) == (len(whole) - 3, True, 1)
    assert [one.reason for block in reader.blocks for one in block.unreadable] == ["cut short"]
    assert (spoken(reader.blocks), ledger_entries(reader.blocks)) == one_reading(path)


@pytest.mark.slow
@pytest.mark.parametrize("short", [0, 10, 23, 24, 30, 60])
def test_a_file_that_stays_without_a_packet_for_long_is_read_when_one_comes(tmp_path, short):
    """As tcpdump leaves it on a quiet line: a header, or a part of one."""
    path = tmp_path / "a.pcap"
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(1))])
    path.write_bytes(whole[:short])
    touched(path, 0)
    reader = Reader(lambda: [path], settle=10)
    for reader.now in (0.0, 10.0, 10.0**6):
        reader.step()
    path.write_bytes(whole)
    touched(path, reader.now)
    reader.step()
    reader.end()
    assert spoken(reader.blocks) == one_reading(path)[0]
    assert [one.reason for block in reader.blocks for one in block.unreadable] == []
    assert sum(length for _, _, length in reader.spans) == len(whole)


def test_a_packed_file_waits_until_its_stream_is_complete(tmp_path):
    path = tmp_path / "a.pcap.gz"
    whole = gzip.compress(pcap([(TS + n, one) for n, one in enumerate(busy(1))]))
    path.write_bytes(whole[: len(whole) // 2])
    touched(path, 0)
    reader = Reader(lambda: [path], settle=10)
    for reader.now in (0.0, 10.0, 10.0**6):
        assert reader.step() == 0
    path.write_bytes(whole)
    touched(path, 0)
    assert reader.step() == 1
    assert reader.step() == 0
    reader.end()
    assert (spoken(reader.blocks), ledger_entries(reader.blocks)) == one_reading(path)


def test_files_are_read_in_the_order_of_their_first_packets_and_within_limits(tmp_path):
    names = ["c", "a", "b"]
    frames = busy(2)
    for number, name in enumerate(names):
        part = [(TS + 10**6 * number + n, one) for n, one in enumerate(frames[number * 40 : number * 40 + 40])]
        (tmp_path / f"{name}.pcap").write_bytes(pcap(part))
    reader = Reader(lambda: tmp_path.glob("*.pcap"), settle=10**12)
    assert reader.step(Limits(files=1)) == 1
    assert reader.step(Limits(files=2)) == 2
    assert [path.split("/")[-1][0] for path, _, _ in reader.spans] == names
    assert reader.step(Limits(files=1)) == 0
    again = Reader(lambda: tmp_path.glob("*.pcap"), settle=10**12)
    sizes = []
    while again.step(Limits(bytes=4000)):
        sizes.append(sum(length for _, _, length in again.spans) - sum(sizes))
    assert max(sizes) < 4000 + 2000
    assert len(sizes) > 5
    assert spoken(again.blocks) == spoken(reader.blocks)


def test_a_ring_of_files_comes_and_goes_under_the_same_names(tmp_path):
    """As tcpdump -W has it: a name is used again, for another file."""
    frames = busy(3)
    reader = Reader(lambda: tmp_path.glob("*.pcap"), settle=10**12)
    seen = Counter()
    for number in range(7):
        path = tmp_path / f"ring{number % 3}.pcap"
        part = pcap([(TS + 10**6 * number + n, one) for n, one in enumerate(frames[number * 15 : number * 15 + 15])])
        for stop in (30, len(part) // 2, len(part)):
            path.write_bytes(part[:stop])
            reader.step()
        seen[path.name] += len(part)
        if number == 4:
            (tmp_path / "ring0.pcap").unlink()
    read_of = Counter()
    for path, _, length in reader.spans:
        read_of[path.split("/")[-1]] += length
    assert read_of == seen
    assert len({one.source.id for one in reader.blocks}) == 7


def test_a_file_that_was_renamed_is_read_on(tmp_path):
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(4))])
    path, moved = tmp_path / "now.pcap", tmp_path / "then.pcap"
    path.write_bytes(whole[:9000])
    reader = Reader(lambda: tmp_path.glob("*.pcap"), settle=10**12)
    reader.step()
    path.rename(moved)
    moved.write_bytes(whole)
    reader.step()
    assert sum(length for _, _, length in reader.spans) == len(whole)
    assert {path for path, _, _ in reader.spans} == {str(path), str(moved)}


def test_what_others_have_read_is_not_read_again(tmp_path):
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(5))])
    path = tmp_path / "a.pcap"
    path.write_bytes(whole)
    source = identify(path)
    cut = len(pcap([(TS + n, one) for n, one in enumerate(busy(5)[:9])]))
    reader = Reader(lambda: [path], settle=0, known=[KnownFile(source, source.size, mark(source, source.size))])
    assert reader.step() == 0
    part = Reader(lambda: [path], settle=10**12, known=[KnownFile(source, cut, mark(source, cut))])
    assert part.step() == 1
    assert part.spans[0][1] == cut


def test_packed_and_foreign_files_are_read_when_they_are_quiet(tmp_path):
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(pcap([(TS, one) for one in busy(6)[:30]])))
    (tmp_path / "b.pcap").write_bytes(b"this is no capture" * 10)
    (tmp_path / "c.pcapng").write_bytes(section() + interface(1))
    for path in tmp_path.iterdir():
        touched(path, 0)
    reader = Reader(tmp_path.iterdir, settle=5)
    assert reader.step() == 0
    with (tmp_path / "c.pcapng").open("ab") as file:
        file.write(packet_block(TS, busy(6)[0]))
    touched(tmp_path / "c.pcapng", 0)
    assert reader.step() == 1
    reader.now = 5
    assert reader.step() == 2
    assert reader.offset.settled == 0
    (tmp_path / "d.pcap").touch()
    touched(tmp_path / "d.pcap", 0)
    assert reader.follower.has_more(reader.offset, [str(tmp_path / "d.pcap")])
    assert reader.step() == 0  # it is not known yet what it will be
    assert reader.end() == 2
    assert reader.offset.settled == 1
    assert not reader.follower.has_more(reader.offset, map(str, tmp_path.iterdir()))
    assert {one.reason for block in reader.blocks for one in block.unreadable} == {"not a capture"}
    assert reader.step() == 0


def test_files_that_vanish_or_shrink_are_let_go(tmp_path):
    path = tmp_path / "a.pcap"
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(7))])
    path.write_bytes(whole)
    reader = Reader(lambda: [path], settle=10**12)
    reader.step(Limits(bytes=3000))
    path.write_bytes(whole[:1500])
    reader.step()
    path.unlink()
    assert reader.step() == 0
    assert reader.offset.files == ()


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("settle", [0.0, -1.0])
def test_a_shorter_copy_in_the_same_folder_is_not_read(tmp_path, names, settle):
    whole = pcap([(TS + n, one) for n, one in enumerate(busy(8))])
    longer, shorter = (tmp_path / f"{name}.pcap" for name in names)
    longer.write_bytes(whole[:20_000])
    shorter.write_bytes(whole[:9000])
    reader = Reader(lambda: tmp_path.glob("*.pcap"), settle=settle)
    assert reader.step() == 1
    reader.again()
    shorter.write_bytes(whole[:9500])
    reader.step()
    longer.write_bytes(whole)
    reader.step()
    assert {path for path, _, _ in reader.spans} == {str(longer)}
    assert sum(length for _, _, length in reader.spans) == len(whole)


@pytest.mark.parametrize("at", [2000, 9000, -1])
def test_files_of_a_folder_that_differ_in_one_byte_are_both_read(tmp_path, at):
    whole = bytearray(pcap([(TS + n, one) for n, one in enumerate(busy(8))]))
    (tmp_path / "a.pcap").write_bytes(whole)
    whole[at] ^= 1
    (tmp_path / "b.pcap").write_bytes(whole)
    reader = Reader(lambda: tmp_path.glob("*.pcap"), settle=-1)
    assert reader.step() == 2
    assert {path[-6:] for path, _, _ in reader.spans} == {"a.pcap", "b.pcap"}
    assert len({one.id for one in reader.offset.files}) == 2
    assert reader.step() == 0
    reader.again()
    assert reader.step() == 0

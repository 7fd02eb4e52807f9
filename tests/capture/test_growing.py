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
from wirelake.capture.files.identity import KnownFile, content, identify, mark
from wirelake.errors import SourceChanged

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
        self.read: Counter[bytes] = Counter()
        """Bytes that were read of each source, by its id."""
        self.ledger: dict[bytes, KnownFile] = {}
        self.again()

    def again(self) -> None:
        self.follower = Follower([*self.known, *self.ledger.values()], settle=self.settle, now=lambda: self.now)
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

    def note(self, work) -> None:
        """Keep what the ledger has of a read task."""
        span, source = work.spans[-1], work.source
        before = self.ledger[source.id].spans if source.id in self.ledger else ()
        self.ledger[source.id] = KnownFile(source, span.at + span.length, spans=(*before, (span.at, span.length, span.mark)))
        self.read[source.id] += span.length

    def step(self, limits: Limits = NO_LIMITS) -> int:
        """One look, and all that is read by it; says how many portions that was."""
        paths = sorted(str(path) for path in self.paths() if path.exists())
        end = self.follower.latest(self.offset, paths, limits)
        packet_batches = []
        works = micro_batches(self.offset, end)
        for work in works:
            self.spans.append((work.source.path, work.spans[-1].at, work.spans[-1].length))
            self.note(work)
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


WHOLE = pcap([(TS + n, one) for n, one in enumerate(busy(7))])
OTHER = pcap([(TS + 5 * 10**6 + n, one) for n, one in enumerate(busy(9))])
TWIN = WHOLE[:9500] + bytes([WHOLE[9500] ^ 1]) + WHOLE[9501:]
"""Another capture with the same beginning."""
HERE = 20_000
"""Bytes that were read before the file is copied over."""
EDGES = [0, 1, 15, 16, 23, 24, 30, 100, 5000, HERE - 1, HERE]


def followed(tmp_path, first: bytes = WHOLE[:HERE], *, settle: float = 10.0, name: str = "a.pcap") -> tuple:
    """A file that was read as far as it goes, in micro-batches, and its reader."""
    path = tmp_path / name
    reader = Reader(lambda: sorted(tmp_path.glob("*.pcap*")), settle=settle)
    path.write_bytes(first)
    touched(path, 0)
    reader.now = settle
    while reader.step(Limits(bytes=4000)):
        pass
    return path, reader


def read_once(reader, path, whole: bytes) -> None:
    """Each byte was read once, as by one reading."""
    reader.end()
    assert sum(length for _, _, length in reader.spans) == len(whole)
    assert len({one.source.id for one in reader.blocks}) == 1
    assert (spoken(reader.blocks), ledger_entries(reader.blocks)) == one_reading(path)


@pytest.mark.parametrize("again", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("stays", EDGES)
def test_a_file_that_is_copied_over_itself_waits_and_goes_on(tmp_path, stays, again):
    path, reader = followed(tmp_path)
    place = reader.offset.files
    for size in (0, stays):
        path.write_bytes(WHOLE[:size])
        assert reader.step() == 0
        assert reader.offset.files == place
        assert reader.offset.cut == ((str(path),) if size < place[0].at else ())
    if again:
        reader.again()
    for reader.now in (60.0, 10.0**6):  # it stays short for long
        assert reader.step() == 0
    path.write_bytes(WHOLE)
    assert reader.step() == 1
    assert reader.offset.cut == ()
    read_once(reader, path, WHOLE)


@pytest.mark.parametrize("stop", [len(WHOLE), HERE])
@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_is_copied_over_in_pieces_is_read_once(tmp_path, seed, stop):
    path, reader = followed(tmp_path)
    dice, at = random.Random(seed), 0
    path.write_bytes(b"")
    while at < stop:
        size = dice.choice([1, 20, 300, 4000, 15_000])
        with path.open("ab") as file:
            file.write(WHOLE[at : min(at + size, stop)])
        at = min(at + size, stop)
        touched(path, reader.now)
        reader.step()
        reader.now += 1
        if dice.random() < 0.2:
            reader.again()
    read_once(reader, path, WHOLE[:stop])


@pytest.mark.parametrize("stop", [len(WHOLE), HERE])
def test_a_file_that_is_written_over_in_place_is_read_once(tmp_path, stop):
    """As `rsync --inplace` does: it truncates nothing."""
    path, reader = followed(tmp_path)
    for at in range(0, stop, 3000):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(WHOLE[at : min(at + 3000, stop)])
        touched(path, reader.now)
        reader.step()
        reader.now += 1
    read_once(reader, path, WHOLE[:stop])


@pytest.mark.parametrize("again", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("stays", EDGES)
@pytest.mark.parametrize("over", [OTHER, TWIN], ids=["other", "twin"])
def test_a_file_that_is_overwritten_with_other_bytes_is_another_one(tmp_path, over, stays, again):
    path, reader = followed(tmp_path)
    before = reader.offset.files[0]
    for size in (0, stays, len(over)):
        path.write_bytes(over[:size])
        touched(path, reader.now)
        if again:
            reader.again()
        reader.step()
    assert [one.id == before.id for one in reader.offset.files] == [False]
    assert reader.offset.cut == ()
    reader.end()
    assert sorted(reader.read.values()) == sorted([before.at, len(over)])


def test_a_shorter_file_with_other_bytes_is_read_though_it_stays_short(tmp_path):
    path, reader = followed(tmp_path)
    path.write_bytes(OTHER[:9000])
    assert reader.step() == 1
    assert reader.offset.files[0].at > 8000


def test_a_file_that_stays_short_waits_and_the_user_ends_it(tmp_path):
    path, reader = followed(tmp_path)
    at = reader.offset.files[0].at
    path.write_bytes(WHOLE[:3000])
    for reader.now in (20.0, 10.0**6):
        assert reader.step() == 0
    assert reader.follower.unread(reader.offset) == [(str(path), at, 3000)]
    assert not Follower(settle=-1.0).has_more(Offset(reader.offset.files), [str(path)])
    assert reader.end() == 0
    assert (reader.offset.settled, reader.offset.is_open) == (1, False)
    assert sum(length for _, _, length in reader.spans) == at


@pytest.mark.parametrize("copied", [False, True])
def test_a_rotated_file_is_no_truncated_one(tmp_path, copied):
    """`rename`, or `cp` and truncate: the bytes that were read have another name."""
    path, reader = followed(tmp_path)
    moved = tmp_path / "a.1.pcap"
    if copied:
        moved.write_bytes(path.read_bytes())
    else:
        path.rename(moved)
    path.write_bytes(b"")
    reader.step()
    assert reader.offset.cut == ()
    assert [one.path for one in reader.offset.files if one.at] == [str(moved)]
    for longer, file in ((WHOLE, moved), (OTHER, path)):
        file.write_bytes(longer)
    assert reader.step() == 2
    reader.end()
    assert sorted(reader.read.values()) == sorted([len(WHOLE), len(OTHER)])


@pytest.mark.parametrize("again", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize("stays", [0, 5, 11, 40, 5000])
def test_a_packed_file_that_is_copied_over_itself_is_not_read_again(tmp_path, stays, again):
    whole = gzip.compress(WHOLE)
    path, reader = followed(tmp_path, whole, name="a.pcap.gz")
    assert reader.read.total() == len(whole)
    for size in (stays, len(whole)):
        path.write_bytes(whole[:size])
        touched(path, reader.now)
        for seconds in (0.0, 100.0):
            reader.now += seconds
            if again:
                reader.again()
            assert reader.step() == 0
            assert reader.offset.cut == ((str(path),) if size < len(whole) else ())
    read_once(reader, path, whole)


@pytest.mark.parametrize("known", [False, True], ids=["followed", "ingested"])
def test_a_packed_file_that_is_overwritten_by_a_shorter_one_is_another(tmp_path, known):
    path, other = tmp_path / "a.pcap.gz", gzip.compress(OTHER[: len(OTHER) // 2])
    if known:
        path.write_bytes(gzip.compress(WHOLE))
        source = identify(path)
        reader = Reader(lambda: [path], settle=10, known=[KnownFile(source, source.size, mark(source, source.size))])
    else:
        path, reader = followed(tmp_path, gzip.compress(WHOLE), name=path.name)
    reader.read.clear()
    path.write_bytes(other)
    touched(path, reader.now)
    reader.step()
    reader.now += 100
    reader.step()
    assert list(reader.read.values()) == [len(other)]


@pytest.mark.parametrize("settle", [10.0, -1.0])
def test_an_ingested_file_that_is_copied_over_itself_while_it_is_followed_is_not_read_again(tmp_path, settle):
    path = tmp_path / "a.pcap"
    path.write_bytes(WHOLE)
    source, cut = identify(path), len(pcap([(TS + n, one) for n, one in enumerate(busy(7)[:40])]))
    known = [KnownFile(source, cut, spans=((0, cut, content(source, 0, cut)),))]
    for size in (*(size for size in EDGES if size < cut), cut - 1):
        path.write_bytes(WHOLE[:size])
        reader = Reader(lambda: [path], settle=settle, known=known)
        assert [reader.step() for _ in range(2)] == [0, 0]
        assert reader.offset.cut == (str(path),)
    path.write_bytes(WHOLE)
    assert reader.step() == 1
    assert reader.spans[0][1] == cut


def test_a_file_that_stays_short_is_compared_once(tmp_path, monkeypatch):
    path, reader = followed(tmp_path)
    path.write_bytes(WHOLE[:15_000])
    assert reader.step() == 0
    monkeypatch.setattr("wirelake.capture.files.growing.identity", None)
    assert reader.step() == 0
    assert reader.offset.cut == (str(path),)


def test_other_bytes_that_come_between_a_look_and_its_reading_are_not_read(tmp_path):
    """Their records end where the records of the first ones did."""
    path, reader = followed(tmp_path, WHOLE[:9000])
    path.write_bytes(WHOLE)
    end = reader.follower.latest(reader.offset, [str(path)], NO_LIMITS)
    (task,) = micro_batches(reader.offset, end)
    frames = bytearray(WHOLE)
    frames[-1] ^= 1
    path.write_bytes(frames)
    with pytest.raises(SourceChanged) as caught:
        list(read_split(task, ports=PORTS))
    assert caught.value.path == str(path)


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

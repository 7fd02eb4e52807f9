"""Split and assemble: however files are split, tasks read together what one reader reads."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from tests.capture.build import (
    ACK,
    PORTS,
    Talk,
    ethernet,
    fragment_v4,
    fragment_v6,
    interface,
    ipv4,
    ipv6,
    packet_block,
    pcap,
    section,
    tcp,
    udp,
)
from tests.cases import seeds

from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.block import Block, Source, source_of
from wirelake.capture.blocks.packet_batch import PacketBatch, pack, pack_plain, route
from wirelake.capture.blocks.read_file import read
from wirelake.capture.blocks.read_split import read_split, read_tasks
from wirelake.capture.blocks.transfer import from_batch, to_batches
from wirelake.capture.files.identity import identify
from wirelake.capture.files.split import ByteRange, Split, guess, reconcile
from wirelake.capture.record.exported_pdu import Tags, build
from wirelake.protocols.kernel import compiled, use_compiled, use_plain

TS = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)


def busy(seed: int, count: int = 25) -> list[bytes]:
    """Frames of many connections at once: reordered, repeated, lost; datagrams, whole and in parts; some of nobody's."""
    dice = random.Random(seed)
    streams: list[list[bytes]] = []
    for n in range(count):
        server = dice.choice([("10.0.0.2", 5040), ("10.0.0.3", 5040), ("10.0.0.4", 99)])
        ends = (("10.0.0.1", 2000 + n), server)
        if dice.random() < 0.3:
            ends = (("6.1", 2000 + n), ("6.2", server[1]))
        talk = Talk(*ends, first=dice.choice([1000, 2**32 - 50]))
        if dice.random() < 0.8:
            talk.open()
        for _ in range(dice.randint(1, 12)):
            size = dice.choice([1, 20, 200, 900])
            if dice.random() < 0.05:
                talk.next[0] += size
            else:
                talk.say(dice.randrange(2), dice.randbytes(size))
        if dice.random() < 0.5:
            talk.close()
        packets = [packet for _, packet in talk.packets]
        if dice.random() < 0.5:
            at = dice.randrange(len(packets))
            packets.insert(dice.randrange(len(packets)), packets[at])
        if dice.random() < 0.5 and len(packets) > 5:
            packets[4], packets[5] = packets[5], packets[4]
        cut = []
        for packet in packets:
            if len(packet) > 150 and dice.random() < 0.2:
                split = fragment_v4 if packet[0] >> 4 == 4 else fragment_v6
                parts = split(packet, [64, 104], dice.randrange(2**16))
                dice.shuffle(parts)
                cut += parts[: dice.choice([3, 3, 3, 2])]
            else:
                cut.append(packet)
        streams.append(cut)
    for n in range(count):
        data = dice.randbytes(dice.choice([10, 500]))
        packet = ipv4("10.0.0.7", "10.0.0.8", udp(3000 + n, 5040, data), protocol=17)
        if n % 3 == 0:
            packet = ipv6("6.7", "6.8", udp(5040, 3000 + n, data), protocol=17)
        many = [packet]
        if len(data) > 100:
            many = (fragment_v4 if n % 3 else fragment_v6)(packet, [8, 200], n)
            dice.shuffle(many)
        streams.append(many * dice.randint(1, 2))
    streams.append([ipv4("10.0.0.1", "10.0.0.2", bytes(20), protocol=1)] * 3)
    frames = []
    while streams:
        stream = dice.choice(streams[:8])
        frames.append(ethernet(stream.pop(0)))
        if not stream:
            streams.remove(stream)
    return frames


def as_pcapng(frames: list[bytes], seed: int) -> bytes:
    """The frames among recorded payloads, with damage between them."""
    dice = random.Random(seed)
    made = [section(), interface(1), interface(252)]
    for n, frame in enumerate(frames):
        made.append(packet_block(TS + n, frame))
        if n % 7 == 0:
            made.append(
                packet_block(TS + n, build(Tags(dissector="emp", source_port=n, destination_port=5040)) + dice.randbytes(30), number=1)
            )
        if n % 50 == 49:
            made.append(dice.randbytes(40))
    return b"".join(made)


def cuts_of(source: Source, places: list[int]) -> list[Split]:
    ends = sorted({0, *places, source.size})
    return reconcile(source, [guess(source, ByteRange(start, stop)) for start, stop in pairwise(ends)])


def shipped(sources: list[Source], splits: list[list[Split]], buckets: int, sniff=lambda data: None) -> list[Block]:
    """The blocks of all tasks: first all splits are read, then every bucket is assembled."""
    blocks: list[Block] = []
    packet_batches: list[PacketBatch] = []
    for rank, (source, ours) in enumerate(zip(sources, splits, strict=True)):
        for work in read_tasks(source, ours, rank):
            sent = to_batches(read_split(work, buckets=buckets, ports=PORTS, window=5000), buckets)
            for one in (item for batch in sent for item in from_batch(batch)):
                (packet_batches if isinstance(one, PacketBatch) else blocks).append(one)  # type: ignore[arg-type]
    for bucket in range(buckets):
        assembly = Assembly(PORTS, sniff)
        for parcel in sorted((one for one in packet_batches if one.bucket == bucket), key=lambda one: (one.rank, one.place)):
            blocks += assembly.feed(parcel)
        blocks += assembly.finish()
    return blocks


def spoken(blocks: list[Block]) -> dict[tuple[bytes, int], list[tuple[object, ...]]]:
    """(session, direction) -> every piece with its bytes, its source and place, its time, and what is missing before it."""
    out: dict[tuple[bytes, int], list[tuple[object, ...]]] = {}
    for one in blocks:
        data = bytes(one.data)
        starts = one.origins[:, 0]
        for start, stop, flow, to_server, missing in one.segments.tolist():
            first, last = np.searchsorted(starts, [start, stop])
            said = out.setdefault((one.flows[flow].session_id, to_server), [])
            for at, offset, ts in one.origins[first:last].tolist():
                later = starts[starts > at]
                end = min(stop, int(later[0]) if len(later) else stop)
                number, there = source_of(offset)
                path = one.all_sources()[number].path
                said.append((data[at:end], path, there, ts, missing if at == start else 0))
    return out


def ledger_entries(blocks: list[Block]) -> tuple[Counter, Counter, Counter]:
    """Accounts (bytes and items), stretches and events, wherever they stand."""
    accounts, unreadable, events = Counter(), Counter(), Counter()
    for one in blocks:
        for account in one.accounts:
            accounts[account.category, account.reason, "bytes"] += account.bytes
            accounts[account.category, account.reason, "items"] += account.items
        for stretch in one.unreadable:
            number, there = source_of(stretch.offset)
            unreadable[one.all_sources()[number].path, there, stretch.raw, stretch.layer, stretch.reason] += 1
        for event in one.events:
            number, there = source_of(event.offset)
            events[one.flows[event.flow].session_id, event.what, event.by, event.ts, one.all_sources()[number].path, there] += 1
    return accounts, unreadable, events


def by_span(blocks: list[Block], sources: list[Source]) -> dict[tuple[str, int], int]:
    """Bytes accounted for and in runs, by source and span."""
    sums: Counter = Counter()
    for one in blocks:
        for account in one.accounts:
            number, there = source_of(account.at)
            sums[one.all_sources()[number].path, there] += account.bytes
        starts = np.array([span.at for span in one.all_spans()])
        for at, offset, _ in one.origins.tolist():
            later = one.origins[one.origins[:, 0] > at, 0]
            inside = [(start, stop) for start, stop, *_ in one.segments.tolist() if start <= at < stop]
            if inside:
                end = min(inside[0][1], int(later[0]) if len(later) else inside[0][1])
                number, there = source_of(int(starts[np.searchsorted(starts, offset, side="right") - 1]))
                sums[one.all_sources()[number].path, there] += end - at
    return dict(sums)


@pytest.mark.parametrize("seed", seeds(6, test=2))
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_splits_and_buckets_give_what_one_reader_gives(tmp_path, kind, seed):
    dice = random.Random(seed)
    frames = busy(seed)
    raw = pcap([(TS + n, frame) for n, frame in enumerate(frames)]) if kind == "pcap" else as_pcapng(frames, seed)
    path = tmp_path / "file"
    path.write_bytes(raw)
    source = identify(path)
    expected = list(read(source, ports=PORTS, sniff=lambda data: None))
    assert len(spoken(expected)) > 20
    assert any("fragmented" in reason for _, reason, _ in ledger_entries(expected)[0])
    for buckets in (1, 2, 7):
        splits = cuts_of(source, [dice.randrange(source.size) for _ in range(dice.choice([0, 1, 5, 60]))])
        blocks = shipped([source], [splits], buckets)
        assert spoken(blocks) == spoken(expected)
        assert ledger_entries(blocks) == ledger_entries(expected)
        spans = {(source.path, work.spans[-1].at): work.size for work in read_tasks(source, splits)}
        assert by_span(blocks, [source]) == {key: length for key, length in spans.items() if length}


@pytest.mark.parametrize("seed", seeds(4, test=1))
def test_what_is_looked_for_before_a_split_is_neither_lost_nor_counted_twice(tmp_path, monkeypatch, seed):
    """The same with datagrams that are given up within a few packets, so that splits begin after and between."""
    for name, value in (("packets.ip_fragments.REACH", 1500), ("blocks.read_split.REACH", 1500), ("files.split.WARM", 12_000)):
        monkeypatch.setattr(f"wirelake.capture.{name}", value)
    dice = random.Random(seed)
    path = tmp_path / "file"
    path.write_bytes(pcap([(TS + n, frame) for n, frame in enumerate(busy(seed))]))
    source = identify(path)
    expected = list(read(source, ports=PORTS, sniff=lambda data: None))
    assert ledger_entries(expected)[0]["other", "incomplete datagram", "items"] > 5
    for _ in range(6):
        splits = cuts_of(source, [dice.randrange(source.size) for _ in range(dice.choice([5, 60]))])
        blocks = shipped([source], [splits], 2)
        assert spoken(blocks) == spoken(expected)
        assert ledger_entries(blocks) == ledger_entries(expected)
        spans = {(source.path, work.spans[-1].at): work.size for work in read_tasks(source, splits)}
        assert by_span(blocks, [source]) == {key: length for key, length in spans.items() if length}


def test_a_connection_goes_on_in_the_next_file(tmp_path):
    talk = Talk().open()
    text = random.Random(1).randbytes(3000)
    for at in range(0, 3000, 100):
        talk.say(0, text[at : at + 100])
    frames = talk.frames()
    frames[10], frames[12] = frames[12], frames[10]
    frames[17], frames[18] = frames[18], frames[17]  # out of order where one file ends and the next begins
    sources = []
    for number, (start, stop) in enumerate([(0, 8), (8, 18), (18, 40)]):
        path = tmp_path / f"part{number}.pcap"
        path.write_bytes(pcap(frames[start:stop]))
        sources.append(identify(path))
    blocks = shipped(sources, [cuts_of(source, [source.size // 2]) for source in sources], 3)
    ((_, said),) = spoken(blocks).items()
    assert b"".join(part[0] for part in said) == text
    assert {part[4] for part in said} == {0}
    assert [part[1] for part in said][:5] == [sources[0].path] * 5
    assert {part[1] for part in said} == {source.path for source in sources}
    for source in sources:
        raw = (tmp_path / source.path).read_bytes()
        assert all(raw[at : at + len(data)] == data for data, path, at, *_ in said if path == source.path)
    sums: Counter = Counter()
    for (path, _), size in by_span(blocks, sources).items():
        sums[path] += size
    assert sums == {source.path: source.size for source in sources}


def test_a_packed_file_is_shipped_whole(tmp_path):
    frames = busy(3)
    raw = pcap([(TS + n, frame) for n, frame in enumerate(frames)])
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(raw))
    source = identify(path)
    blocks = shipped([source], [cuts_of(source, [100])], 3)
    expected = list(read(source, ports=PORTS, sniff=lambda data: None))
    assert spoken(blocks) == spoken(expected)
    assert ledger_entries(blocks) == ledger_entries(expected)


@pytest.mark.parametrize("raw", [b"", b"hello, world", pcap([])])
def test_files_without_packets_are_accounted_for(tmp_path, raw):
    path = tmp_path / "file"
    path.write_bytes(raw)
    source = identify(path)
    blocks = shipped([source], [cuts_of(source, [])], 2)
    assert sum(account.bytes for one in blocks for account in one.accounts) == source.size


def test_protocols_are_known_by_their_bytes_across_splits(tmp_path):
    talk = Talk(("10.0.0.1", 1), ("10.0.0.2", 2)).open().say(1, b"banner").say(0, b"E").say(0, b"MP").say(0, b"rest")
    path = tmp_path / "file"
    path.write_bytes(pcap(talk.frames()))
    source = identify(path)
    for place in range(30, source.size, 37):
        blocks = shipped([source], [cuts_of(source, [place])], 2, sniff=lambda data: "emp" if data.startswith(b"EMP") else None)
        texts = {to_server: b"".join(part[0] for part in said) for (_, to_server), said in spoken(blocks).items()}
        assert texts == {0: b"banner", 1: b"EMPrest"}


@pytest.mark.parametrize("form", [use_plain, use_compiled])
def test_both_directions_go_to_the_same_bucket_and_connections_are_dealt_evenly(form):
    form()
    packets = np.zeros((400, 13), np.int64)
    data = b"".join(bytes([10, 0, n % 5, n % 7]) + bytes([10, 1, n % 3, n % 11]) for n in range(200))
    for n in range(200):
        here, there, port, other = 8 * n, 8 * n + 4, 1000 + n, 5040
        packets[2 * n, [6, 7, 8, 9, 10, 11]] = here, there, 4, port, other, 6
        packets[2 * n + 1, [6, 7, 8, 9, 10, 11]] = there, here, 4, other, port, 6
    for buckets in (1, 4, 16):
        numbers = route(data, packets, buckets)
        assert (numbers[::2] == numbers[1::2]).all()
        assert np.bincount(numbers[::2], minlength=buckets).min() > 200 // buckets // 4


@pytest.mark.parametrize("form", [use_plain, use_compiled])
def test_buckets_are_the_same_in_every_version(form):
    """The decoder's state of a connection is kept by bucket: with other numbers, a later batch would not find it."""
    form()
    ends = [
        (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 50_000, 5040, 6),
        (bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 50_000, 5040, 17),
        (bytes([192, 168, 1, 254]), bytes([8, 8, 8, 8]), 65_535, 1, 6),
        (bytes(15) + b"\x01", bytes.fromhex("fe800000000000000123456789abcdef"), 1, 443, 6),
        (bytes([255] * 16), bytes(16), 0, 0, 17),
    ]
    data, packets = b"".join(one + other for one, other, *_ in ends), np.zeros((len(ends), 13), np.int64)
    at = 0
    for row, (one, other, port, to, transport) in enumerate(ends):
        packets[row, [6, 7, 8, 9, 10, 11]] = at, at + len(one), len(one), port, to, transport
        at += len(one) + len(other)
    assert [route(data, packets, buckets).tolist() for buckets in (2, 7, 16, 1024)] == [
        [1, 0, 0, 0, 1],
        [3, 4, 6, 1, 2],
        [5, 0, 8, 6, 1],
        [581, 624, 56, 870, 113],
    ]


def test_packing_is_the_same_plain_and_compiled():
    raw = ethernet(ipv4("10.0.0.1", "10.0.0.2", tcp(1, 2, 3, 4, ACK, b"payload")))
    packets = np.zeros((2, 16), np.int64)
    packets[:, [1, 2, 6, 7, 8, 13, 14, 15]] = 54, 7, 26, 30, 4, 99, 1, 54
    chosen = np.array([1, 0])
    results = []
    for kernel, data in ((pack, raw), (compiled(pack), np.frombuffer(raw, np.uint8))):
        out, table = np.zeros(30, np.uint8), np.zeros((2, 16), np.int64)
        kernel(data, packets, chosen, out, table, 1000)
        results.append((out.tobytes(), table.tolist()))
    joined, rows = pack_plain(raw, packets, chosen, 1000)
    assert results[0] == results[1] == (joined, rows.tolist())
    assert [row[13:] for row in results[0][1]] == [[99, 1001, 1054]] * 2
    assert results[0][0] == (bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"payload") * 2

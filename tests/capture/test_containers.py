"""pcap and pcapng: every byte order, clock and block; nothing a file contains makes reading raise."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.capture.build import (
    Talk,
    accounts,
    block,
    ethernet,
    interface,
    ipv4,
    old_packet_block,
    packet_block,
    pcap,
    read_checked,
    said,
    section,
    simple_packet_block,
    talk_of,
    udp,
)
from tests.capture.test_recorder import record
from tests.cases import seeds

from wirelake.capture.blocks.accounting import MAX_UNREADABLE
from wirelake.capture.blocks.from_recording import intern
from wirelake.capture.blocks.read_file import open_container, read
from wirelake.capture.containers import pcap as pcap_room
from wirelake.capture.containers import pcapng as pcapng_room
from wirelake.capture.containers.records import LAST_MOMENT, MAX_RECORD, NO_TIME, RECORD_COLUMNS
from wirelake.capture.files.identity import identify
from wirelake.capture.packets.dissect import PACKET_BATCH_COLUMNS, dissect
from wirelake.capture.record.exported_pdu import Tags, build
from wirelake.errors import CaptureError
from wirelake.protocols.kernel import compiled

TS = 1_700_000_000_123_456


def times(blocks) -> list[int]:
    return [piece[2] for one in blocks for piece in one.origins.tolist()]


def segment(data: bytes = b"x") -> bytes:
    """An Ethernet frame of a segment of its own mid-stream flow."""
    return ethernet(Talk(("10.0.0.1", 1000 + len(data)), ("10.0.0.2", 5040)).segment(0, 16, data))


def wrote(tmp_path: Path, raw: bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_pcap_is_read_in_both_byte_orders_and_clocks(tmp_path, order, nanoseconds):
    path = wrote(tmp_path, pcap([(TS, segment())], order=order, nanoseconds=nanoseconds))
    blocks = read_checked(path)
    assert talk_of(blocks) == [(1, b"x")]
    assert times(blocks) == [TS]
    assert accounts(blocks)["container", "file header"] == 24


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_kind_of_pcapng_packet_block_is_read(tmp_path, order):
    raw = section(order) + interface(1, order, snap=55)
    raw += packet_block(TS, segment(b"a"), order) + old_packet_block(TS + 5, segment(b"bb"), order)
    raw += simple_packet_block(segment(b"ccc"), order)
    blocks = read_checked(wrote(tmp_path, raw))
    assert [data for one in blocks for start, stop, *_ in one.segments.tolist() for data in [bytes(one.data[start:stop])]] == [
        b"a",
        b"bb",
        b"c",
    ]
    blocks = read_checked(wrote(tmp_path, raw.replace(interface(1, order, snap=55), interface(1, order))))
    assert times(blocks) == [TS, TS + 5, NO_TIME]  # a simple packet block does not say when


@pytest.mark.parametrize(
    ("resolution", "ticks", "expected"),
    [
        (None, TS, TS),
        (6, TS, TS),
        (9, TS * 1000 + 999, TS),
        (3, TS // 1000, TS // 1000 * 1000),
        (0, 1_700_000_000, 1_700_000_000_000_000),
        (12, 5_000_000, 5),
        (0x80 | 10, (1_700_000_000 << 10) | 512, 1_700_000_000_500_000),
        (0x80 | 0, 7, 7_000_000),
        (0x80 | 50, 1 << 49, 500_000),
        (0x80 | 127, 1, 0),
        (127, 2**63 - 1, 9_223_372_036_854_775_807 // 10**18),
        (0, 2**63 - 1, LAST_MOMENT),
        (6, 2**64 - 1, LAST_MOMENT),
        (0x80, 2**62, LAST_MOMENT),
    ],
)
def test_times_follow_the_resolution_of_their_interface(tmp_path, resolution, ticks, expected):
    raw = section() + interface(1, resolution=resolution) + packet_block(ticks, segment())
    assert times(read_checked(wrote(tmp_path, raw))) == [expected]


@pytest.mark.parametrize(("offset", "expected"), [(10, TS + 10_000_000), (-10, TS - 10_000_000), (-(2**62), 0), (2**62, LAST_MOMENT)])
def test_times_follow_the_offset_of_their_interface(tmp_path, offset, expected):
    for order in "<>":
        raw = section(order) + interface(1, order, offset=offset, resolution=6) + packet_block(TS, segment(), order)
        assert times(read_checked(wrote(tmp_path, raw))) == [expected]


def test_sections_bring_their_own_byte_order_and_interfaces(tmp_path):
    raw = section("<") + interface(1, "<", resolution=9) + interface(101, "<")
    raw += packet_block(TS, segment()[14:], "<", number=1)
    raw += section(">") + interface(1, ">", resolution=3) + packet_block(TS // 1000, segment(b"yy"), ">")
    raw += packet_block(TS, segment(), ">", number=1)
    blocks = read_checked(wrote(tmp_path, raw))
    assert times(blocks) == [TS, TS // 1000 * 1000]
    assert [stretch.reason for one in blocks for stretch in one.unreadable] == ["packet of an unknown interface"]


def test_unknown_blocks_are_skipped_and_counted(tmp_path):
    kinds = {
        0x80000001: "skipped block",
        9: "skipped block",
        4: "name resolution",
        5: "interface statistics",
        10: "decryption secrets",
        0x0BAD: "custom block",
        0x40000BAD: "custom block",
    }
    raw = section() + b"".join(block(kind, bytes(kind % 7 * 4)) for kind in kinds) + interface() + packet_block(TS, segment())
    blocks = read_checked(wrote(tmp_path, raw))
    assert talk_of(blocks) == [(1, b"x")]
    for name in set(kinds.values()):
        assert accounts(blocks)["container", name] == sum(12 + kind % 7 * 4 for kind, called in kinds.items() if called == name)


def test_a_packet_that_does_not_fit_its_block_is_quarantined_alone(tmp_path):
    bad = packet_block(TS, segment(), size=500)
    short = block(6, bytes(16))
    raw = section() + interface() + bad + short + block(3, b"") + packet_block(TS, segment())
    blocks = read_checked(wrote(tmp_path, raw))
    assert talk_of(blocks) == [(1, b"x")]
    assert accounts(blocks)["quarantine", "packet does not fit its block"] == len(bad) + len(short) + 12


def test_a_packet_fits_its_block_to_the_last_byte(tmp_path):
    frame = segment(b"xx")
    assert len(frame) % 4 == 0
    for size, fits in ((len(frame), True), (len(frame) + 1, False)):
        blocks = read_checked(wrote(tmp_path, section() + interface() + packet_block(TS, frame, size=size)))
        assert bool(talk_of(blocks)) is fits


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (struct.pack("<III", 6, 8, 8), "impossible record length"),
        (struct.pack("<III", 6, 13, 13), "cut short"),
        (struct.pack("<IIII", 6, 13, 0, 16), "block lengths disagree"),
        (struct.pack("<III", 6, MAX_RECORD + 4, 0), "impossible record length"),
        (struct.pack("<III", 6, 12, 16), "block lengths disagree"),
        (struct.pack("<III", 0x0A0D0D0A, 28, 0), "no byte-order magic"),
        (section().replace(b"\x01\0\0\0", b"\x02\0\0\0"), "unknown version"),
        (block(0x0A0D0D0A, struct.pack("<I", 0x1A2B3C4D)), "impossible record length"),
        (block(1, b""), "impossible record length"),
        (struct.pack("<III", 6, 64, 0), "cut short"),
        (b"\0", "cut short"),
    ],
)
def test_after_a_corrupt_block_the_rest_is_a_stretch_that_says_why(tmp_path, tail, reason):
    good = section() + interface() + packet_block(TS, segment())
    blocks = read_checked(wrote(tmp_path, good + tail))
    assert talk_of(blocks) == [(1, b"x")]
    assert [(s.offset, s.length, s.layer, s.reason) for one in blocks for s in one.unreadable] == [(len(good), len(tail), "pcapng", reason)]


def test_after_an_impossible_pcap_record_the_rest_is_a_stretch_that_says_why(tmp_path):
    good = pcap([(TS, segment())])
    tail = struct.pack("<IIII", 1, 1, 262_145, 262_145) + bytes(50)
    blocks = read_checked(wrote(tmp_path, good + tail))
    assert talk_of(blocks) == [(1, b"x")]
    assert [(s.offset, s.length, s.layer, s.reason) for one in blocks for s in one.unreadable] == [
        (len(good), len(tail), "pcap", "impossible record length")
    ]


def test_a_block_that_does_not_count_its_padding_is_read(tmp_path):
    frame = segment(b"xxx")
    assert len(frame) % 4 == 1
    whole = packet_block(TS, frame)
    told = struct.pack("<I", len(whole) - 3)
    raw = section() + interface() + whole[:4] + told + whole[8:-4] + told + packet_block(TS, segment(b"y"))
    assert [data for *_, data in said(read_checked(wrote(tmp_path, raw)))] == [b"xxx", b"y"]


@pytest.mark.parametrize("raw", [b"\0", b"hello, world", bytes(100_000), b"\x0a\x0d\x0d\x0a" + bytes(50), b"PK\x03\x04" * 9])
def test_a_file_that_is_no_capture_becomes_one_stretch(tmp_path, raw):
    path = wrote(tmp_path, raw)
    blocks = read_checked(path)
    assert [(s.offset, s.length, s.reason) for one in blocks for s in one.unreadable] == [(0, len(raw), "not a capture")]
    with pytest.raises(CaptureError, match="not a capture") as caught:
        open_container(identify(path))
    assert (caught.value.path, caught.value.offset) == (str(path), 0)


def test_long_stretches_are_cut_at_the_limit(tmp_path):
    size = 2 * MAX_UNREADABLE + 5
    blocks = read_checked(wrote(tmp_path, bytes(size)))
    assert [s.length for one in blocks for s in one.unreadable] == [MAX_UNREADABLE, MAX_UNREADABLE, 5]


def test_an_empty_file_is_one_empty_block(tmp_path):
    (one,) = read_checked(wrote(tmp_path, b""))
    assert (len(one.segments), one.accounts, one.unreadable, one.last) == (0, [], [], True)


def test_files_of_nothing_but_headers_are_accounted_for(tmp_path):
    for raw in (pcap([]), pcap([])[:23], section(), section() + interface()):
        assert sum(accounts(read_checked(wrote(tmp_path, raw))).values()) == len(raw)


def test_a_file_that_grew_is_read_as_it_was_identified(tmp_path):
    path = wrote(tmp_path, section() + interface() + packet_block(TS, segment()))
    source = identify(path)
    with path.open("ab") as file:
        file.write(packet_block(TS, segment(b"more")))
    blocks = list(read(source, ports={5040: "emp"}, sniff=lambda data: None))
    assert talk_of(blocks) == [(1, b"x")]
    assert identify(path).id == source.id


def test_a_file_that_shrank_or_left_is_an_error_with_its_place(tmp_path):
    path = wrote(tmp_path, pcap([(TS, segment())] * 3))
    source = identify(path)
    os.truncate(path, 40)
    with pytest.raises(CaptureError, match="shorter") as caught:
        list(read(source, ports={}, sniff=lambda data: None))
    assert (caught.value.path, caught.value.offset) == (str(path), 40)
    path.unlink()
    with pytest.raises(CaptureError, match="No such file"):
        list(read(source, ports={}, sniff=lambda data: None))
    with pytest.raises(CaptureError, match="No such file"):
        identify(path)


def peak(path: Path, window: int) -> int:
    """The most memory held while reading a file and forgetting every block."""
    source = identify(path)
    tracemalloc.start()
    try:
        for _ in read(source, ports={}, sniff=lambda data: None, window=window):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)
    path = tmp_path / "garbage"
    path.touch()
    os.truncate(path, 256 << 20)  # sparse: it takes no room
    assert peak(path, 1 << 20) < 8 << 20
    made = section() + interface(252) + packet_block(TS, build(Tags(dissector="emp")) + bytes(100)) * 2000
    peaks = []
    for copies in (8, 80):
        path.write_bytes(made * copies)
        peaks.append(peak(path, 1 << 20))
    assert peaks[1] < 1.2 * peaks[0]


def small_capture(order: str = "<") -> bytes:
    """A pcapng of a whole conversation next to an unrelated one, in two sections."""
    talk = Talk().open().say(0, b"question").say(1, b"answer " * 9).close()
    other = Talk(("10.0.0.3", 999), ("10.0.0.4", 998)).open().say(0, b"secret")
    raw = section(order) + interface(1, order, resolution=9)
    raw += b"".join(packet_block(ts * 1000, frame, order) for ts, frame in talk.frames() + other.frames())
    raw += packet_block(TS * 1000, ethernet(ipv4("10.0.0.5", "10.0.0.6", udp(5040, 7, b"datagram"), protocol=17)), order)
    return raw + section() + interface() + b"".join(packet_block(ts, frame) for ts, frame in talk.frames())


def mutated(raw: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, removed, doubled or moved."""
    data = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data))
        match dice.randrange(5):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at] ^= 1 << dice.randrange(8)
            case 2:
                data[at : at + 4] = dice.choice([b"\xff\xff\xff\xff", bytes(4), b"\x80\0\0\0", b"\0\0\0\x80"])
            case 3:
                del data[at : at + dice.randint(1, 40)]
            case _:
                data[at:at] = data[at : at + dice.randint(1, 40)]
        data = data or bytearray(1)
    return bytes(data)


@pytest.mark.parametrize("seed", seeds(6, test=2))
def test_no_mutation_of_a_recording_breaks_the_sum(tmp_path, seed):
    path = tmp_path / "talk.pcapng"
    record(path)
    raw = path.read_bytes()
    dice = random.Random(seed)
    for _ in range(150):
        read_checked(wrote(tmp_path, mutated(raw, dice)), window=dice.choice([64, 700, 8 << 20]))


@pytest.mark.parametrize("seed", seeds(6, test=2))
def test_no_mutation_of_a_capture_breaks_the_sum(tmp_path, seed):
    dice = random.Random(seed)
    kinds = [small_capture("<"), small_capture(">"), pcap(Talk().open().say(0, b"question").say(1, b"answer").close().frames())]
    for _ in range(100):
        path = wrote(tmp_path, mutated(dice.choice(kinds), dice))
        read_checked(path, window=dice.choice([64, 700, 8 << 20]), sniff=lambda data: "emp" if data.startswith(b"sec") else None)


def both(kernel, data: bytes, *arrays: np.ndarray, limits: tuple[int, ...] = ()) -> None:
    """Run a kernel plain over bytes and compiled over an array; results and every array it writes must be equal."""
    plain = [one.copy() for one in arrays]
    fast = [one.copy() for one in arrays]
    assert kernel(data, *limits, *plain) == compiled(kernel)(np.frombuffer(data, np.uint8), *limits, *fast)
    for one, other in zip(plain, fast, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(arrays, plain, strict=True):
        one[...] = other


def test_compiled_and_plain_kernels_are_equal(tmp_path):
    dice = random.Random(7)
    path = tmp_path / "talk.pcapng"
    record(path)
    kinds = [path.read_bytes(), small_capture("<"), small_capture(">")]
    for resolution in (0, 3, 9, 40, 127, 0x80, 0x8A, 0xB0, 0xFF):
        kinds.append(section() + interface(resolution=resolution, offset=-5) + packet_block(dice.getrandbits(62), segment()))
    for number in range(300):
        raw = kinds[number] if number < len(kinds) else mutated(dice.choice(kinds), dice)
        rows = np.zeros((32, RECORD_COLUMNS), np.int64)
        state = np.zeros(pcapng_room.STATE_SIZE, np.int64)
        span = (0, len(raw), dice.choice([len(raw), 100]))
        both(pcapng_room.scan, raw, state, np.zeros((4, pcapng_room.INTERFACE_COLUMNS), np.int64), rows, limits=span)
        both(pcapng_room.find, raw, state, limits=(dice.randrange(60), len(raw), number % 2))
        packets = rows[(rows[:, 1] > 0) & (rows[:, 2] == 0)]
        both(dissect, raw, packets, np.zeros((len(packets), PACKET_BATCH_COLUMNS), np.int64))
        table, numbers, places = np.full(64, -1), np.zeros(len(packets), np.int64), np.zeros((len(packets), 2), np.int64)
        both(intern, raw, packets, table, numbers, places)
        for order in "<>":
            nano = bool(number % 2)
            cut = mutated(pcap(Talk().open().say(0, b"question").frames(), order=order, nanoseconds=nano), dice)
            state = np.zeros(pcap_room.STATE_SIZE, np.int64)
            both(pcap_room.scan, cut, state, np.zeros((32, RECORD_COLUMNS), np.int64), limits=(0, len(cut), len(cut)))
            both(pcap_room.find, cut, state, limits=(dice.randrange(60), len(cut), number % 2))


def test_reading_compiled_gives_the_same_blocks(tmp_path, monkeypatch):
    path = wrote(tmp_path, small_capture(">"))
    plain = read_checked(path)
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)
    fast = read_checked(path)
    assert said(plain[:1]) == said(fast[:1])
    assert accounts(plain) == accounts(fast)
    record(tmp_path / "talk.pcapng")
    assert talk_of(read_checked(tmp_path / "talk.pcapng"))[0] == (1, b"hello")

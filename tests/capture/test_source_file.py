"""Source files: compressed, joined, damaged or remote; accounts add up to the size of the file."""

from __future__ import annotations

import gzip
import random
import struct

import pyarrow as pa
import pytest
from tests.capture.build import Talk, accounts, ethernet, interface, packet_block, pcap, read_checked, said, section, talk_of

from wirelake.capture.blocks.read_file import read
from wirelake.capture.containers.records import LOOK_AHEAD
from wirelake.capture.files.identity import identify
from wirelake.capture.files.source_file import open_source
from wirelake.errors import CaptureError

TS = 1_700_000_000_000_000


def talk(text: bytes = b"what is said") -> Talk:
    return Talk().open().say(0, text).say(1, text[::-1]).close()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_a_packed_capture_is_read_like_the_capture(tmp_path, pack, kind):
    raw = pcap(talk().frames())
    if kind == "pcapng":
        raw = section() + interface() + b"".join(packet_block(ts, frame) for ts, frame in talk().frames())
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(raw)
    packed.write_bytes(pack(raw))
    expected = read_checked(plain)
    for window in (1, 100, 8 << 20):
        blocks = read_checked(packed, raw=raw, window=window)
        assert talk_of(blocks) == talk_of(expected)
        spared = accounts(blocks).pop(("container", "spared by compression"))
        assert spared == len(pack(raw)) - len(raw)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())
def test_packed_captures_joined_to_one_are_read_to_the_end(tmp_path, pack):
    raw = pcap(talk().frames())
    path = tmp_path / "joined"
    path.write_bytes(pack(raw) + pack(pcap(Talk(first=900_000).open().say(0, b"more").frames(), order=">")))
    content = raw + pcap(Talk(first=900_000).open().say(0, b"more").frames(), order=">")
    assert said(read_checked(path, raw=content))[-1][2] == b"more"


@pytest.mark.slow
@pytest.mark.parametrize("how", PACKERS.keys())
@pytest.mark.parametrize("damage", ["cut", "flip", "tail"])
def test_a_damaged_packed_file_is_read_as_far_as_it_goes(tmp_path, how, damage):
    noise = bytes(random.Random(5).choices(b"abcdefgh", k=600_000))
    frames = [(TS, ethernet(Talk(("10.0.0.1", 1000 + n)).segment(0, 16, noise[n * 1000 : n * 1000 + 1000]))) for n in range(600)]
    raw = pcap(frames)
    packed = bytearray(PACKERS[how](raw))
    if damage == "cut":
        del packed[-len(packed) // 5 :]
    elif damage == "flip":
        middle = len(packed) // 2
        packed[middle : middle + 400] = bytes(400)
    else:
        packed += b"this is not packed"
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    source = identify(path)
    blocks = list(read(source, ports={5040: "emp"}, sniff=lambda data: None))
    in_segments = sum(int((one.segments[:, 1] - one.segments[:, 0]).sum()) for one in blocks)
    assert in_segments + sum(account.bytes for one in blocks for account in one.accounts) == source.size
    found = {stretch.reason: stretch for one in blocks for stretch in one.unreadable}
    assert f"broken {how} stream" in found or damage == "cut"
    if damage == "tail":
        assert in_segments == 600_000
        assert found[f"broken {how} stream"].raw.endswith(b"s not packed")
        assert found[f"broken {how} stream"].length < 40
    elif damage == "cut":
        assert 300_000 < in_segments < 500_000
    else:
        assert 100_000 < in_segments < 400_000


def test_a_packed_file_that_is_no_capture_is_one_stretch(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"hello, world"))
    blocks = read_checked(path, raw=b"hello, world")
    assert [(s.offset, s.length, s.reason) for one in blocks for s in one.unreadable] == [(0, 12, "not a capture")]


@pytest.mark.parametrize("how", PACKERS)
def test_a_window_of_a_packed_file_that_goes_back_is_refused(tmp_path, how):
    path = tmp_path / f"text.{how}"
    path.write_bytes(PACKERS[how](bytes(range(256)) * 100))
    with open_source(identify(path)) as file:
        assert file.window(0, 3) == file.window(0, 3) == b"\0\1\2"
        assert file.window(300, 2) == b",-"
        assert not file.is_end(10)
        with pytest.raises(CaptureError, match="internal error") as wrong:
            file.window(299, 2)
        assert (wrong.value.path, wrong.value.offset) == (str(path), 299)
        assert file.window(300, 2) == b",-"


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
def test_captures_joined_to_one_keep_their_own_order_and_clock(tmp_path, order, nanoseconds):
    first = pcap([(TS, frame) for _, frame in talk().frames()])
    second = pcap([(TS + 7, ethernet(Talk(("10.0.0.1", 777)).segment(0, 16, b"more")))], order=order, nanoseconds=nanoseconds)
    ng = section(order) + interface(1, order) + packet_block(TS + 9, ethernet(Talk(("10.0.0.1", 778)).segment(0, 16, b"last")), order)
    path = tmp_path / "joined"
    for raw in (first + second + ng, first + ng + second, ng + first + second):
        path.write_bytes(raw)
        blocks = read_checked(path)
        pieces = [(piece[2], bytes(one.data[piece[0] : piece[0] + 4])) for one in blocks for piece in one.origins.tolist()]
        assert (TS + 7, b"more") in pieces
        assert (TS + 9, b"last") in pieces
        assert accounts(blocks)["container", "file header"] == 48


def test_the_variant_with_long_headers_is_read(tmp_path):
    frames = talk().frames()
    raw = struct.pack("<IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 65535, 1)
    for ts, frame in frames:
        raw += struct.pack("<IIIIIHBB", ts // 10**6, ts % 10**6, len(frame), len(frame), 2, 8, 0, 0) + frame
    path = tmp_path / "long"
    path.write_bytes(raw)
    assert talk_of(read_checked(path)) == [(1, b"what is said"), (0, b"dias si tahw")]


@pytest.mark.parametrize("minor", [0, 2, 3])
def test_old_versions_have_their_lengths_the_other_way_round(tmp_path, minor):
    frame = ethernet(Talk().segment(0, 16, b"data"), trailer=bytes(20))
    kept = frame[:-10]
    raw = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, minor, 0, 0, 65535, 1)
    raw += struct.pack("<IIII", 5, 6, len(frame), len(kept)) + kept
    path = tmp_path / "old"
    path.write_bytes(raw)
    assert talk_of(read_checked(path)) == [(1, b"data")]


def damaged(kind: str, order: str = "<", count: int = 12) -> tuple[bytes, list[int]]:
    """A capture of so many flows of one segment, and where its records begin."""
    frames = [(TS + n, ethernet(Talk(("10.0.0.1", 1000 + n)).segment(0, 16, b"data%02d" % n))) for n in range(count)]
    if kind == "pcap":
        raw, records = pcap([], order=order), [pcap([one], order=order)[24:] for one in frames]
    else:
        raw, records = section(order) + interface(1, order), [packet_block(ts, frame, order) for ts, frame in frames]
    places = []
    for record in records:
        places.append(len(raw))
        raw += record
    return raw, places


@pytest.mark.slow
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_a_corrupt_record_costs_itself_only(tmp_path, kind, order):
    raw, places = damaged(kind, order)
    for hit in range(9):
        spoilt = bytearray(raw)
        at = places[hit] + (8 if kind == "pcap" else 4)
        spoilt[at : at + 4] = b"\xff\xff\xff\xff"
        path = tmp_path / "spoilt"
        path.write_bytes(spoilt)
        for window in (1, 100, 8 << 20):
            blocks = read_checked(path, window=window)
            texts = [data for *_, data in said(blocks)]
            assert texts == [b"data%02d" % n for n in range(12) if n != hit]
            unreadable = [(s.offset, s.offset + s.length) for one in blocks for s in one.unreadable]
            assert unreadable == [(places[hit], places[hit + 1])]


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
@pytest.mark.parametrize("size", [1, 7, 1000, LOOK_AHEAD - 3, 2 * LOOK_AHEAD + 5])
def test_garbage_between_records_is_passed_over(tmp_path, kind, size, monkeypatch):
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", True)
    raw, places = damaged(kind)
    garbage = random.Random(size).randbytes(size)
    path = tmp_path / "garbage"
    path.write_bytes(raw[: places[6]] + b"\xff" * 12 + garbage + raw[places[6] :])
    blocks = read_checked(path)
    assert [data for *_, data in said(blocks)] == [b"data%02d" % n for n in range(12)]
    assert sum(s.length for one in blocks for s in one.unreadable) == size + 12


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_a_hole_in_a_file_is_passed_over(tmp_path, kind, filler):
    raw, places = damaged(kind)
    hole = filler * (places[8] - places[3])
    path = tmp_path / "hole"
    path.write_bytes(raw[: places[3]] + hole + raw[places[8] :])
    texts = [data for *_, data in said(read_checked(path))]
    assert texts == [b"data%02d" % n for n in range(12) if n not in range(3, 8)]


def test_a_header_of_an_unknown_version_does_not_cost_the_packets(tmp_path):
    raw, _ = damaged("pcap")
    path = tmp_path / "version"
    path.write_bytes(raw[:4] + b"\x01\0\x04\0" + raw[8:])
    blocks = read_checked(path)
    assert len(said(blocks)) == 12
    assert [(s.offset, s.length, s.reason) for one in blocks for s in one.unreadable] == [(0, 24, "unknown version")]


def test_a_path_with_a_scheme_is_read_through_fsspec(tmp_path):
    import fsspec

    raw = pcap(talk().frames())
    with fsspec.open("memory://captures/talk.pcap", "wb") as file:
        file.write(raw)
    source = identify("memory://captures/talk.pcap")
    assert source.size == len(raw)
    assert talk_of(list(read(source, ports={5040: "emp"}, sniff=lambda data: None, window=100))) == [
        (1, b"what is said"),
        (0, b"dias si tahw"),
    ]
    local = tmp_path / "talk.pcap"
    local.write_bytes(raw)
    assert identify(local.as_uri()) == identify(local)
    with pytest.raises(CaptureError, match="cannot read"):
        identify("memory://captures/nothing.pcap")
    with pytest.raises(CaptureError, match="cannot read"):
        identify("no-such-scheme://captures/nothing.pcap")

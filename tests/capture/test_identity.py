"""Identity: a file that grows or moves keeps its id, and one that is replaced does not."""

from __future__ import annotations

import gzip
from hashlib import blake2b, sha256

import pytest
from tests.capture.build import Talk, interface, packet_block, pcap, section

from wirelake.capture.files.identity import KnownFile, content, identify, mark, namesake, place
from wirelake.errors import CaptureError


def frames(port: int = 40_000, count: int = 20) -> list[tuple[int, bytes]]:
    talk = Talk(("10.0.0.1", port)).open()
    for number in range(count):
        talk.say(0, b"%04d" % number * 200)
    return talk.frames()


def known(path) -> KnownFile:
    source = identify(path)
    return read_as(source)


def read_as(source) -> KnownFile:
    """A source that was read in two stretches."""
    half = source.size // 2
    spans = ((0, half), (half, source.size - half))
    return KnownFile(source, source.size, spans=tuple((at, size, content(source, at, size)) for at, size in spans))


def told(path, *before: KnownFile):
    by_path: dict[str, list[KnownFile]] = {}
    for one in before:
        by_path.setdefault(one.source.path, []).append(one)
    by_id: dict[bytes, list[KnownFile]] = {}
    for one in before:
        by_id.setdefault(one.source.id, []).append(one)
    return place(identify(path), by_path, by_id)


@pytest.mark.parametrize("make", [pcap, lambda packets: section() + interface(1) + b"".join(packet_block(*one) for one in packets)])
def test_a_file_is_the_same_while_it_grows(tmp_path, make):
    path = tmp_path / "a.pcap"
    whole = make(frames())
    path.write_bytes(whole)
    expected = identify(path).id
    first = len(make(frames()[:1]))
    for size in (first, first + 1, len(whole) // 2, len(whole)):
        path.write_bytes(whole[:size])
        assert identify(path).id == expected
    path.write_bytes(whole[: first - 1])
    assert identify(path).id != expected


def test_what_was_read_of_a_file_is_known_wherever_it_lies(tmp_path):
    path, moved = tmp_path / "a.pcap", tmp_path / "b.pcap"
    whole = pcap(frames())
    path.write_bytes(whole[:5000])
    before = known(path)
    path.write_bytes(whole)
    grown = told(path, before)
    assert (grown.is_known, grown.end, grown.source.id, grown.source.size) == (True, 5000, before.source.id, len(whole))
    path.rename(moved)
    elsewhere = told(moved, before)
    assert (elsewhere.is_known, elsewhere.end, elsewhere.source.path) == (True, 5000, str(moved))


def test_a_file_that_was_replaced_or_cut_is_another(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(frames()))
    before = known(path)
    for other in (pcap(frames(port=40_001)), path.read_bytes()[:5000], path.read_bytes()[:-1] + b"?", b"", b"something else"):
        path.write_bytes(other)
        found = told(path, before)
        assert found.is_other
        assert found.end == 0


def test_files_that_begin_alike_are_told_apart(tmp_path):
    one, other = tmp_path / "a.pcap", tmp_path / "b.pcap"
    one.write_bytes(pcap(frames(count=5)))
    other.write_bytes(pcap([*frames(count=3), *frames(port=50_000, count=9)]))
    assert identify(one).id == identify(other).id
    found = told(other, known(one))
    assert (found.is_known, found.is_other, found.source.id) == (False, False, namesake(identify(other), 1).id)
    again = read_as(found.source)
    assert told(other, known(one), again).end == other.stat().st_size
    moved = other.rename(tmp_path / "c.pcap")
    assert told(moved, known(one), again).source.id == again.source.id
    assert told(moved, again).source.id == again.source.id  # though the first of them was forgotten


def test_a_file_without_a_packet_is_known_by_its_content_and_may_get_some(tmp_path):
    path = tmp_path / "a.pcap"
    whole = pcap(frames())
    path.write_bytes(whole[:24])
    header = known(path)
    path.write_bytes(whole)
    grown = told(path, header)
    assert (grown.is_known, grown.end, grown.source.id) == (True, 24, header.source.id)
    path.write_bytes(b"")
    empty = known(path)
    path.write_bytes(whole)
    assert told(path, empty) == place(identify(path), {}, {})


def test_packed_files_and_foreign_ones_are_known_by_their_content(tmp_path):
    contents = [gzip.compress(pcap(frames()), mtime=0), gzip.compress(pcap(frames(count=21)), mtime=0), b"no capture", b"no capture at all"]
    ids = set()
    for number, data in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(data)
        ids.add(identify(path).id)
    assert len(ids) == len(contents)


def test_a_file_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(CaptureError) as error:
        identify(tmp_path / "gone.pcap")
    assert error.value.offset == 0


def test_a_copy_of_what_has_grown_since_has_nothing_new(tmp_path):
    first, copy = tmp_path / "a.pcapng", tmp_path / "copy.pcapng"
    first.write_bytes(pcap(frames()))
    copy.write_bytes(first.read_bytes())
    before = known(first)
    with first.open("ab") as grown:
        grown.write(b"and more")
    after = known(first)
    found = told(copy, before, after)
    assert (found.source.id, found.end, found.is_known, found.is_other) == (before.source.id, before.end, True, False)
    with copy.open("ab") as grown:
        grown.write(b"something else")
    assert told(copy, before, after).source.id != before.source.id


@pytest.mark.parametrize("at", [24 + 16 + 74, 3000, 9000, -1])
def test_files_that_differ_in_one_byte_are_two(tmp_path, at):
    one, other = tmp_path / "a.pcap", tmp_path / "b.pcap"
    one.write_bytes(pcap(frames()))
    changed = bytearray(one.read_bytes())
    changed[at] ^= 1
    other.write_bytes(changed)
    for before in (known(one), KnownFile(identify(one), one.stat().st_size, is_here=True)):
        found = told(other, before)
        assert (found.is_known, found.is_other, found.end) == (False, False, 0)
        assert found.source.id != before.source.id
        copy = tmp_path / "c.pcap"
        copy.write_bytes(one.read_bytes())
        same = told(copy, before)
        assert (same.is_known, same.end, same.like, same.is_part) == (True, before.end, str(one), False)
    one.write_bytes(changed)
    assert told(one, known(other), before).source.id == identify(other).id  # the contents are those of b now


def test_a_shorter_copy_is_the_beginning_of_the_longer_one(tmp_path):
    one, other = tmp_path / "a.pcap", tmp_path / "b.pcap"
    whole = pcap(frames())
    one.write_bytes(whole)
    at = len(whole) // 2
    for before in (known(one), KnownFile(identify(one), len(whole), is_here=True)):
        for size in (at - 1, at, at + 1, len(whole) - 1):
            other.write_bytes(whole[:size])
            found = told(other, before)
            assert (found.source.id, found.end, found.like, found.is_part) == (before.source.id, size, str(one), True)
            other.write_bytes(whole[: size - 1] + bytes([whole[size - 1] ^ 1]))
            assert not told(other, before).is_known
    before = known(one)
    one.write_bytes(whole[:-1])
    other.write_bytes(whole[: at + 1])
    assert not told(other, before).is_known  # the longer one is not what it was
    one.unlink()
    assert not told(other, before).is_known
    other.write_bytes(whole[:at])
    assert told(other, before).end == at  # a stretch that was read ends here, and its hash is known


def test_what_an_older_wirelake_read_is_known_by_its_last_bytes(tmp_path):
    path = tmp_path / "a.pcap"
    whole = pcap(frames())
    path.write_bytes(whole)
    source = identify(path)
    older = KnownFile(source, 9000, spans=((0, 5000, b""), (5000, 4000, mark(source, 9000))))
    assert told(path, older).end == 9000
    path.write_bytes(whole[:8999] + bytes([whole[8999] ^ 1]) + whole[9000:])
    assert told(path, older).is_other


@pytest.mark.parametrize("changed", [0, 4999, 5000, 8999])
def test_what_an_older_wirelake_hashed_with_another_algorithm_is_still_compared(tmp_path, changed):
    path = tmp_path / "a.pcap"
    whole = pcap(frames())
    path.write_bytes(whole)
    spans = ((0, 5000), (5000, 4000))
    older = tuple((at, size, blake2b(whole[at : at + size], digest_size=16).digest()) for at, size in spans)
    before = KnownFile(identify(path), 9000, spans=older)
    assert told(path, before).end == 9000
    path.write_bytes(whole[:changed] + bytes([whole[changed] ^ 1]) + whole[changed + 1 :])
    assert not told(path, before).is_known


def test_a_span_is_hashed_as_sha256(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(frames()))
    assert content(identify(path), 100, 5000) == sha256(path.read_bytes()[100:5100]).digest()

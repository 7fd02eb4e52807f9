"""The buffer: the same frames wherever the stream was cut, and a cost that grows with the bytes and not with the pieces."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.protocols.emp import speech
from tests.protocols.emp.scanning import scanned

from wirelake.protocols import kernel
from wirelake.protocols.buffer import BATCH, LARGE, PIECE, Buffer
from wirelake.protocols.emp.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.emp.messages import Data
from wirelake.protocols.emp.scanner import PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.emp.wire import encode, message
from wirelake.protocols.kernel import COMPILED_BYTES, FAULT, KIND, LENGTH, START, compiled
from wirelake.protocols.stream_session import StreamSession
from wirelake.protocols.wolpertinger import wire as wolpertinger

STREAM = b"".join(
    (
        speech.hello(),
        speech.data(b"hello"),
        speech.data(b"", speech.blocks(16)),
        speech.request(1, b"x" * 300),
        speech.data(b"y", speech.rr(False, 2, more=True) + speech.gz(0)),
        speech.ping,
        speech.envelope(6),
        speech.error(3, b"oops"),
    )
)


def make(limits=DEFAULT_LIMITS, scan=scan):
    return Buffer(scan, ROW_COLUMNS, PART_COLUMNS, limits.for_scan(), limits.max_extension_blocks)


@pytest.fixture(params=["plain", "compiled", "by size"])
def form(request, monkeypatch):
    """How buffers scan: always plain, always compiled, or as a server does: compiled from `COMPILED_BYTES` on."""
    monkeypatch.setattr(kernel, "_use_compiled", request.param != "plain")
    monkeypatch.setattr(kernel, "compiled_from", 0 if request.param == "compiled" else COMPILED_BYTES)
    return request.param


def cut(data, size):
    return [data[at : at + size] for at in range(0, len(data), size)]


def frames(buffer, pieces):
    """Every frame as (fault, its bytes, its blocks), in order; and that `taken` is what the frames of each feed are made of."""
    seen = []
    for piece in pieces:
        taken = b""
        for whole, rows, parts in buffer.feed(piece):
            for row in rows:
                frame = whole[row[START] : row[START] + row[LENGTH]]
                if row[KIND] >= 0:
                    taken += frame
                blocks = parts[row[5] * PART_COLUMNS : (row[5] + row[6]) * PART_COLUMNS]
                starts = [at - row[START] for at in blocks[::PART_COLUMNS]]
                seen.append((row[FAULT], frame if row[KIND] >= 0 else b"", starts, blocks[1::PART_COLUMNS]))
        assert buffer.taken == taken
    return seen


@each("size", [1, 2, 3, 5, 7, 8, 64, 4096])
def test_the_cut_does_not_matter(form, size):
    whole = frames(make(), [STREAM])
    assert b"".join(frame for _, frame, _, _ in whole) == STREAM
    buffer = make()
    assert frames(buffer, cut(STREAM, size)) == whole
    assert buffer.rest == b""
    assert not buffer.lost


@given(st.lists(speech.messages, min_size=1, max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_random_cuts_do_not_matter(messages, dice, exclusive):
    limits = Limits(sizes_exclude_themselves=exclusive)
    data = b"".join(encode(one, limits) for one in messages)
    places = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(12)))
    pieces = [data[one:other] for one, other in zip([0, *places], [*places, len(data)], strict=True)]
    buffer, decoded = make(limits), []
    for piece in pieces:
        for whole, rows, parts in buffer.feed(piece):
            decoded += [message(whole, row, parts) for row in rows]
    assert decoded == messages


def test_what_is_unfinished_is_the_rest(form):
    buffer = make()
    seen = frames(buffer, [speech.ping + speech.hello()[:7]])
    assert [frame for _, frame, _, _ in seen] == [speech.ping]
    assert (buffer.taken, buffer.rest) == (speech.ping, speech.hello()[:7])
    assert frames(buffer, [b""]) == []
    assert (buffer.taken, buffer.rest) == (b"", speech.hello()[:7])
    assert [frame for _, frame, _, _ in frames(buffer, [speech.hello()[7:] + b"\x00"])] == [speech.hello()]
    assert (buffer.taken, buffer.rest) == (speech.hello(), b"\x00")


def test_memory_counts_the_pieces_of_a_frame_and_large_frames_until_they_are_forgotten():
    frame = encode(Data(bytes(100_000)))
    buffer = make()
    for at in range(0, 1000, 10):
        list(buffer.feed(frame[at : at + 10]))
    assert buffer.memory >= 90 * PIECE + 1000
    list(buffer.feed(frame[1000:]))
    assert buffer.memory >= 100_000, "what was read last is kept for a recorder"
    buffer.forget_taken()
    assert (buffer.memory, buffer.rest) == (0, b"")
    list(buffer.feed(frame + frame[:7]))
    buffer.forget_taken()
    assert (buffer.memory, buffer.rest) == (7, frame[:7])
    assert next(iter(buffer.feed(frame[7:])))[1][0][LENGTH] == len(frame)


def test_many_frames_come_in_batches(form):
    count = 3 * BATCH + 5
    sizes = [len(rows) for _, rows, _ in make().feed(speech.ping * count)]
    assert sum(sizes) == count
    assert max(sizes) == BATCH


def test_blocks_end_a_batch_as_frames_do(form):
    said = speech.data(b"", speech.blocks(16))
    count = BATCH
    seen = frames(make(), [said * count])
    assert [frame for _, frame, _, _ in seen] == [said] * count
    assert all(starts == list(range(8, 8 + 16 * 8, 8)) for _, _, starts, _ in seen)


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_a_framing_fault_loses_the_stream_for_good(form, size):
    buffer = make()
    seen = frames(buffer, cut(speech.ping + b"\x00\x00\x00\x07" + speech.ping, size))
    assert [(fault, frame) for fault, frame, _, _ in seen] == [(0, speech.ping), (1, b"")]
    assert buffer.lost
    assert frames(buffer, [speech.ping]) == []


def test_a_reader_that_stops_in_the_middle_finds_the_buffer_in_order(form):
    buffer = make()
    for _ in buffer.feed(speech.ping * (BATCH + 1) + b"\x00"):
        break
    assert buffer.taken == speech.ping * BATCH
    assert buffer.rest == speech.ping + b"\x00"
    assert [frame for _, frame, _, _ in frames(buffer, [b"\x00"])] == [speech.ping]
    assert buffer.rest == b"\x00\x00"


def rows_of(data, *, use_compiled, compiled_from, monkeypatch):
    """All that a new buffer gives for one chunk: rows, parts, and what it keeps."""
    monkeypatch.setattr(kernel, "_use_compiled", use_compiled)
    monkeypatch.setattr(kernel, "compiled_from", compiled_from)
    buffer = make()
    return [(rows, parts) for _, rows, parts in buffer.feed(data)], buffer.taken, buffer.rest, buffer.lost


@pytest.mark.parametrize("size", [COMPILED_BYTES - 1, COMPILED_BYTES, COMPILED_BYTES + 1])
@pytest.mark.parametrize("kind", ["one frame", "many frames", "cut frame", "broken frame"])
def test_rows_are_the_same_on_both_sides_of_the_threshold(size, kind, monkeypatch):
    filler = speech.data(bytes(size - 16))
    data = {
        "one frame": speech.data(bytes(size - 8)),
        "many frames": speech.request(1, b"x") + speech.data(bytes(size - len(speech.request(1, b"x")) - 16)) + speech.ping,
        "cut frame": filler + speech.data(bytes(8))[:8],
        "broken frame": filler + b"\x00\x00\x00\x07....",
    }[kind]
    assert len(data) == size
    plain = rows_of(data, use_compiled=False, compiled_from=0, monkeypatch=monkeypatch)
    assert plain[0]
    assert rows_of(data, use_compiled=True, compiled_from=0, monkeypatch=monkeypatch) == plain
    assert rows_of(data, use_compiled=True, compiled_from=COMPILED_BYTES, monkeypatch=monkeypatch) == plain


@pytest.mark.parametrize(("size", "is_compiled"), [(COMPILED_BYTES - 1, False), (COMPILED_BYTES, True), (COMPILED_BYTES + 1, True)])
def test_the_bytes_that_wait_decide_whether_a_scan_is_compiled(size, is_compiled, monkeypatch):
    monkeypatch.setattr(kernel, "_use_compiled", True)
    monkeypatch.setattr(kernel, "compiled_from", COMPILED_BYTES)
    buffer, calls = make(), []
    assert buffer._compiled_scan is compiled(scan)
    forms = {name: getattr(buffer, name) for name in ("_scan", "_compiled_scan")}
    for name, form in forms.items():
        monkeypatch.setattr(buffer, name, lambda *arguments, name=name, form=form: calls.append(name) or form(*arguments))
    said = speech.data(bytes(size - 8))
    assert [len(rows) for _, rows, _ in buffer.feed(said)] == [1]
    assert calls == ["_compiled_scan" if is_compiled else "_scan"]
    calls.clear()
    assert list(buffer.feed(said[:8])) == []
    assert [len(rows) for _, rows, _ in buffer.feed(said[8:])] == [1], "bytes that waited count too"
    assert calls == ["_scan", "_compiled_scan" if is_compiled else "_scan"]


class Counting:
    """A scanner that counts how often it is asked, and over how many bytes."""

    def __init__(self):
        self.calls = 0
        self.bytes = 0

    def __call__(self, data, start, stop, rows, parts, limits):
        self.calls += 1
        self.bytes += stop - start
        return scan(data, start, stop, rows, parts, limits)


class Bytes(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, key):
        piece = super().__getitem__(key)
        if isinstance(key, slice):
            Bytes.copied += len(piece)
            return Bytes(piece)
        return piece


def test_a_large_message_in_small_pieces_costs_one_scan_per_size_not_per_piece(monkeypatch):
    monkeypatch.setattr(kernel, "_use_compiled", False)
    said = speech.data(bytes(16 * 1024 * 1024 - 8))
    counting = Counting()
    buffer = make(scan=counting)
    seen = [rows for piece in cut(said, 1024) for _, rows, _ in buffer.feed(piece)]
    assert len(seen) == 1
    assert seen[0][0][LENGTH] == len(said)
    assert counting.calls == 2, "once to learn the size, once when all of it is there"
    assert counting.bytes == 1024 + len(said)


def test_many_small_messages_in_one_piece_are_not_copied_once_a_batch():
    """The rest is cut off once, not after each batch: half a megabyte of pings would otherwise be copied a hundred times."""
    Bytes.copied = 0
    said = Bytes(speech.ping * (256 * BATCH) + b"\x00")
    assert sum(len(rows) for _, rows, _ in make().feed(said)) == 256 * BATCH
    assert Bytes.copied <= 2 * len(said)


def test_announced_gigabytes_buffer_nothing():
    buffer = make()
    assert [row[FAULT] for _, rows, _ in buffer.feed(b"\xff\xff\xff\xff") for row in rows] == [2]
    assert buffer.lost


def test_scanner_and_buffer_agree_on_random_cuts_of_one_long_stream(form):
    dice = random.Random(5040)
    data = STREAM * 20
    expected = [row[LENGTH] for row in scanned(data, rows=200, parts=700).rows]
    for _ in range(20):
        buffer, lengths, at = make(), [], 0
        while at < len(data):
            size = dice.choice((1, 2, 3, 11, 200, 4096))
            lengths += [row[LENGTH] for _, rows, _ in buffer.feed(data[at : at + size]) for row in rows]
            at += size
        assert lengths == expected


def test_the_sizes_of_the_frames_of_a_large_feed_are_kept(form):
    """More frames than a batch, and a cut one at either end."""
    spoken = [speech.data(bytes(size)) for size in (70_000, 0, 5, 90_000, *([1] * BATCH), 20_000)]
    stream, buffer = b"".join(spoken), make()
    list(buffer.feed(stream[:1000]))
    assert (buffer.taken, buffer.sizes()) == (b"", [0])
    list(buffer.feed(stream[1000:-1]))
    assert buffer.sizes() == [len(frame) for frame in spoken[:-1]]
    list(buffer.feed(stream[-1:]))
    assert buffer.sizes() == [len(spoken[-1])]


def test_the_lines_of_a_large_feed_are_kept_apart():
    texts = [b"result:0;message_id:%d;" % number for number in range(8000)]
    buffer = wolpertinger.buffer()
    list(buffer.feed(b"\n".join((*texts, b"result:"))))
    assert buffer.sizes() == [len(text) + 1 for text in texts]


def test_the_sizes_of_large_output_are_kept_until_the_next():
    session = StreamSession()
    pieces = [bytes(LARGE), b"", b"x"]
    assert session._join(pieces) == bytes(LARGE) + b"x"
    assert session.sent_sizes == [LARGE, 0, 1]
    assert session._join([b"y", b"z"]) == b"yz"
    assert session.sent_sizes == ()

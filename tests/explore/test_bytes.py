"""Fields and bytes: every byte has exactly one field, and the bytes of a message are the right ones."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.capture.build import Talk, fragment_v4, pcap
from tests.explore.test_read import BYE, HELLO, answered, asked, clock, spoken
from tests.lake import test_websocket as websocket
from tests.lake import test_xmpp as xmpp
from tests.lake.relink_sessions import STORY, record

from wirelake import protocols
from wirelake.capture.record.recorder import Recorder
from wirelake.explore.bytes.dissect import fields_of, layers
from wirelake.explore.bytes.layout import Field
from wirelake.explore.bytes.read import Place, SourceGone, read
from wirelake.explore.model.rows import plain
from wirelake.explore.reading.engine import ReadOptions
from wirelake.explore.reading.inputs import Reading
from wirelake.explore.reading.records import Message
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.protocols.kernel import use_plain
from wirelake.protocols.relink.limits import DEFAULT_LIMITS, Stage

LONG = b"x" * 5000
VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture(autouse=True, scope="module")
def _plain_scanners() -> Iterator[None]:
    use_plain()
    yield
    use_plain(False)


def check_tiling(fields: list[Field], size: int) -> None:
    at = 0
    for field in fields:
        assert field.start == at < field.stop, fields
        at = field.stop
    assert at == size, fields


def vectors() -> Iterator[tuple[str, str, bytes]]:
    for protocol in ("emp", "event_mesh", "relink", "yamp", "wolpertinger"):
        for one in json.loads((VECTORS / f"{protocol.replace('_', '-')}.json").read_text()):
            wires = [bytes.fromhex(one["hex"])] if "hex" in one else [text.encode("latin-1") for text in one.get("wire") or ()]
            for number, wire in enumerate(wires):
                yield f"{protocol}-{one['name']}-{number}", protocol, wire


def ways(protocol: str) -> Iterator[tuple[Any, tuple[int, ...]]]:
    limits = DecodeOptions().limits(protocol)
    if protocol == "relink":
        for stage in Stage:
            for size in (0, 1, 2, 4, 8, 16):
                yield limits, DEFAULT_LIMITS.for_scan(stage, size, size)
    elif protocol == "wolpertinger":
        yield limits, (*limits.for_scan()[:2], 0)
    else:
        yield limits, limits.for_scan()


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "wire"), [pytest.param(protocol, wire, id=name) for name, protocol, wire in vectors()])
def test_every_byte_of_a_vector_has_one_field(protocol: str, wire: bytes) -> None:
    """Also where a vector is broken: whatever a scanner accepts, and with each byte turned over."""
    descriptor = protocols.get(protocol)
    columns = descriptor.columns()
    dice = random.Random(len(wire))
    turned = [bytes([*wire[:at], dice.randrange(256), *wire[at + 1 :]]) for at in range(min(len(wire), 64))]
    found = 0
    for data in (wire, *turned):
        for limits, scan_limits in ways(protocol):
            rows, parts = [0] * (8 * columns.ROW_COLUMNS), [0] * (columns.PART_COLUMNS * (limits.max_parts + 1) * 8)
            count, _, _, _ = descriptor.scan(data, 0, len(data), rows, parts, scan_limits)
            for index in range(count):
                row = rows[index * columns.ROW_COLUMNS : (index + 1) * columns.ROW_COLUMNS]
                fields = fields_of(protocol, data, row, parts)
                check_tiling([Field(f.name, f.start - row[0], f.stop - row[0], f.value) for f in fields], row[1])
                found += 1
    assert found or protocol in ("emp", "relink", "yamp")  # a cut vector of a stream is no message yet


def test_fields_name_the_values_of_a_request() -> None:
    data = asked(7, b'{"item": "tea"}')
    (place,) = placed(data, "emp")
    assert [(field.group.partition(":")[0], field.name, field.value) for field in place] == [
        ("", "size", str(len(data))),
        ("", "type", "5 data"),
        ("", "flags", "extended"),
        ("", "unused", "0000"),
        ("extension 0", "size", "20"),
        ("extension 0", "id", "0"),
        ("extension 0", "flags", "last"),
        ("extension 0", "unused", "0000"),
        ("extension 0", "request", "request"),
        ("extension 0", "unused", "000000"),
        ("extension 0", "request_id", "7"),
        ("", "body", '{"item": "tea"}'),
    ]


def placed(data: bytes, protocol: str) -> list[list[Field]]:
    descriptor = protocols.get(protocol)
    columns, limits = descriptor.columns(), DecodeOptions().limits(protocol)
    rows, parts = [0] * (8 * columns.ROW_COLUMNS), [0] * (columns.PART_COLUMNS * (limits.max_parts + 1) * 8)
    count, _, _, _ = descriptor.scan(data, 0, len(data), rows, parts, limits.for_scan())
    width = columns.ROW_COLUMNS
    return [fields_of(protocol, data, rows[index * width : (index + 1) * width], parts) for index in range(count)]


def emp_in_segments(path: Path) -> Path:
    """Two connections whose messages are cut anywhere, with a retransmission, and large bodies."""
    dice, talks = random.Random(3), []
    for number in range(2):
        talk = Talk(client=(f"10.0.0.{number + 3}", 40_000)).open()
        for side, said in (
            (0, HELLO),
            (1, HELLO),
            (0, asked(1, b"x" * 5000) + asked(2)),
            (1, answered(1, b"y" * 3000) + answered(2)),
            (0, BYE),
        ):
            at = 0
            while at < len(said):
                stop = at + dice.randrange(1, 1400)
                talk.say(side, said[at:stop])
                at = stop
        talks.append(talk.close())
    frames = sorted((frame for talk in talks for frame in talk.frames()), key=lambda each: each[0])
    path.write_bytes(pcap([*frames[:7], frames[6], *frames[7:]]))
    return path


def emp_in_fragments(path: Path) -> Path:
    """A message in one segment, whose packet is in IP fragments."""
    talk = Talk().open().say(0, HELLO).say(1, HELLO).say(0, asked(1, b"z" * 600)).close()
    frames = [
        (ts, packet)
        for ts, frame in talk.frames()
        for packet in ([frame[:14] + piece for piece in fragment_v4(frame[14:], [200, 400])] if len(frame) > 600 else [frame])
    ]
    path.write_bytes(pcap(frames))
    return path


def emp_recording(path: Path) -> Path:
    with Recorder(path, protocol="emp", clock=clock()) as recorder:
        spoken(recorder, requests=5, unanswered=1)
    return path


def emp_dialect(path: Path) -> Path:
    """A peer whose sizes do not count themselves (EMP-1)."""
    said = [(int.from_bytes(one[:4]) - 4).to_bytes(4) + one[4:] for one in (HELLO, BYE)]
    talk = Talk().open().say(0, said[0]).say(1, said[0]).say(0, said[1]).close()
    path.write_bytes(pcap(talk.frames()))
    return path


def relink_recording(path: Path) -> Path:
    record(path, STORY)
    return path


def yamp_in_websockets(path: Path) -> Path:
    return websocket.captured(path, websocket.CLIENT, websocket.SERVER, cuts=9)


def wolpertinger_in_xmpp(path: Path) -> Path:
    return xmpp.captured(path, xmpp.SPOKEN, cuts=2)


def compressed(path: Path) -> Path:
    packed = path.with_suffix(".pcap.gz")
    packed.write_bytes(gzip.compress(emp_in_segments(path).read_bytes()))
    path.unlink()
    return packed


CAPTURES = [
    emp_in_segments,
    emp_in_fragments,
    emp_recording,
    emp_dialect,
    relink_recording,
    yamp_in_websockets,
    wolpertinger_in_xmpp,
    compressed,
]


def messages_of(path: Path) -> list[Message]:
    reading = Reading(ReadOptions(whole=True, raw=True))
    return [one for one in reading.read([str(path)]) if isinstance(one, Message)]


def place_of(message: Message) -> Place:
    # `wirelake read` prints numbers of 64 bits as text; a lake has them as decimals.
    schema = protocols.get(message.protocol).columns().SCHEMA
    wide = {field.name for field in schema if str(field.type).startswith("decimal")}
    own = {name: int(value) if name in wide and value is not None else plain(value) for name, value in (message.own or {}).items()}
    return Place(message.protocol, message.source, message.offset, message.length, message.size, own)


@pytest.mark.slow
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda each: each.__name__)
def test_the_bytes_of_a_message_are_those_that_were_decoded(tmp_path: Path, capture: Any) -> None:
    found = messages_of(capture(tmp_path / "a.pcap"))
    assert found
    for message in found:
        frame = read(place_of(message))
        assert frame.data == message.raw
        check_tiling(frame.fields, message.size)
        assert frame.is_contiguous or "recording" not in capture.__name__


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    path = emp_recording(tmp_path / "a.pcapng")
    place = place_of(messages_of(path)[0])
    path.unlink()
    with pytest.raises(SourceGone, match="cannot be read"):
        read(place)


def test_a_file_that_has_changed_is_said(tmp_path: Path) -> None:
    path = emp_recording(tmp_path / "a.pcapng")
    message = messages_of(path)[3]
    content = bytearray(path.read_bytes())
    content[message.offset + message.size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceGone, match="no longer has"):
        read(place_of(message))


def test_only_the_beginning_of_a_file_is_searched(tmp_path: Path) -> None:
    message = next(one for one in messages_of(emp_in_segments(tmp_path / "a.pcap")) if one.length > one.size)
    with pytest.raises(SourceGone, match="several pieces"):
        read(place_of(message), search_bytes=10)


def test_layers_go_from_the_frame_to_the_document(tmp_path: Path) -> None:
    message = messages_of(wolpertinger_in_xmpp(tmp_path / "a.pcap"))[0]
    frame = read(place_of(message))
    found = layers(frame.data, frame.fields, message.body)
    assert [layer.name for layer in found] == ["frame", "XML"]
    assert found[1].data == message.body
    assert (found[1].text or "").startswith("<RemoteMethodCall")
    assert [layer.name for layer in layers(None, [], message.body)] == ["XML"]
    assert [layer.name for layer in layers(b"abc", [], b"\x00\x01", encrypted=True)] == ["frame", "decrypted"]
    assert [layer.name for layer in layers(b"abc", [], b"b")] == ["frame"]


@pytest.mark.parametrize(
    "body", [b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', b"<a>", b"{", b"[" * 100_000, b'{"a": NaN', b"<" + b"a" * 100 + b"/>x"]
)
def test_a_document_that_is_none_stays_bytes(body: bytes) -> None:
    assert [layer.syntax for layer in layers(b"", [], body)] == [None, None]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            b'<a x="&lt;&quot;"><b>1 &amp; 2</b><c/><a><a>x</a></a></a>',
            '<a x="&lt;&quot;">\n  <b>1 &amp; 2</b>\n  <c/>\n  <a>\n    <a>x</a>\n  </a>\n</a>',
        ),
        ('{"ä": [1]}'.encode(), '{\n  "ä": [\n    1\n  ]\n}'),
    ],
)
def test_documents_are_formatted(body: bytes, text: str) -> None:
    assert layers(None, [], body)[0].text == text

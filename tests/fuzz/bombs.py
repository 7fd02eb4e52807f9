"""Handmade inputs: small ones that ask for much memory or work. Each runs in every campaign.

Every input that broke something once is here or, where code cannot make it, a file in `corpus/`.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable

from tests.capture.build import Talk, ethernet, ipv4, pcap
from tests.fuzz.cases import Case
from tests.fuzz.seeds import REQUEST, Turn, frame, recording
from tests.lake.wolpertinger_sessions import line
from tests.protocols.relink import speech as relink
from tests.protocols.yamp import speech as yamp

from wirelake.protocols.emp.messages import Compression, Data, Hello, Ping
from wirelake.protocols.emp.wire import encode

OPEN: dict[str, dict[str, str]] = {}
"""Target and what it has to know -> name or file of an input -> the issue that is open for it.

Such an input may fail, and no campaign fails because of it.
"""


def wide(count: int, head: bytes, item: bytes) -> bytes:
    """An array of many items."""
    return head + item * count


def _cbor_laughs(levels: int, width: int) -> bytes:
    """Arrays that refer to the array before them: `width` to the power of `levels` items for whoever follows them all."""
    item = b"\xd8\x1c\x81\x61x"  # 28([ "x" ]): shared value 0
    out = bytes([0x80 | (levels + 1)]) + item if levels < 23 else b"\x98" + bytes([levels + 1]) + item
    for level in range(levels):
        number = bytes([level]) if level < 24 else bytes([0x18, level])
        out += b"\xd8\x1c" + bytes([0x80 | width]) + (b"\xd8\x1d" + number) * width
    return out


def _nested(opening: bytes, core: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + core + closing * depth


def _bson_nested(depth: int) -> bytes:
    data = b"\x05\x00\x00\x00\x00"
    for _ in range(depth):
        data = struct.pack("<i", 4 + 3 + len(data) + 1) + b"\x03a\x00" + data + b"\x00"
    return data


def _protobuf_nested(depth: int) -> bytes:
    """A `Value` with a list with a `Value` …"""
    data = b"\x20\x01"
    for _ in range(depth):
        inner = b"\x0a" + _varint(len(data)) + data
        data = b"\x32" + _varint(len(inner)) + inner
    return data


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


BODIES: dict[str, dict[str, Callable[[], bytes]]] = {
    "json": {
        "deep arrays": lambda: b"[" * 200_000,
        "deep objects": lambda: _nested(b'{"a":', b"1", b"}", 989),
        "deeper objects": lambda: _nested(b'{"a":', b"1", b"}", 5_000),
        "long integer": lambda: b"9" * 1_000_000,
        "long fraction": lambda: b"1." + b"9" * 1_000_000,
        "large exponent": lambda: b"1e999999999",
        "equal keys": lambda: b"{" + b",".join([b'"a":1'] * 100_000) + b"}",
        "escapes": lambda: b'"' + b"\\ud800" * 100_000 + b'"',
    },
    "msgpack": {
        "announced array": lambda: b"\xdd\xff\xff\xff\xff",
        "announced map": lambda: b"\xdf\xff\xff\xff\xff",
        "announced string": lambda: b"\xdb\xff\xff\xff\xff",
        "announced arrays": lambda: b"\xdd\x00\xff\xff\xff" * 200,
        "deep arrays": lambda: b"\x91" * 200_000,
        "deep maps": lambda: b"\x81\xa1a" * 100_000,
        "late time": lambda: b"\xc7\x0c\xff" + bytes(4) + b"\x7f" + b"\xff" * 7,
        "unknown extension": lambda: b"\xd4\x01\x00",
    },
    "cbor": {
        "shared references": lambda: _cbor_laughs(20, 7),
        "more shared references": lambda: _cbor_laughs(23, 12),
        "reference to itself": lambda: b"\xd8\x1c\x81\xd8\x1d\x00",
        "bignum": lambda: b"\xc2\x5a\x00\x01\x00\x00" + b"\xff" * 65_536,
        "decimal of a bignum": lambda: b"\xc4\x82\x00\xc2\x5a\x00\x04\x00\x00" + b"\xff" * 262_144,
        "decimals of bignums": lambda: wide(20, b"\x94", b"\xc4\x82\x00\xc2\x5a\x00\x00\x80\x00" + b"\xff" * 32_768),
        "large exponent": lambda: b"\xc4\x82\x1b\x3f" + b"\xff" * 7 + b"\x01",
        "large binary exponent": lambda: b"\xc5\x82\x1a\x0f\xff\xff\xff\x01",
        "larger binary exponent": lambda: b"\xc5\x82\x1b\x3f" + b"\xff" * 7 + b"\x01",
        "regular expression": lambda: b"\xd8\x23\x78\x20" + b"(a+)+" * 6 + b"$" + b"b",
        "large repetition": lambda: b"\xd8\x23\x78\x1d((a{1,60000}){1,60000}){1,600}",
        "announced array": lambda: b"\x9b\x7f" + b"\xff" * 7,
        "announced string": lambda: b"\x5b\x00\x00\x00\xff" + b"\xff" * 4,
        "deep arrays": lambda: b"\x81" * 100_000,
        "deep tags": lambda: b"\xc1" * 100_000,
        "string references": lambda: b"\xd9\x01\x00\x82\x64abcd\x9a\x00\x00\x10\x00" + b"\xd8\x19\x00" * 4096,
        "fraction": lambda: b"\xd8\x1e\x82\xc2\x5a\x00\x00\x40\x00" + b"\xff" * 16_384 + b"\xc2\x5a\x00\x00\x40\x00" + b"\xfe" * 16_384,
        "network": lambda: b"\xd9\x01\x05\xa1\x44\x00\x00\x00\x00\x00",
        "set of sets": lambda: _nested(b"\xd9\x01\x02\x81", b"\x01", b"", 500),
        "unfinished pieces": lambda: b"\x7f" + b"\x60" * 200_000,
        "far date": lambda: b"\xc1\x1b\x7f" + b"\xff" * 7,
    },
    "bson": {
        "deep documents": lambda: _bson_nested(2_000),
        "announced document": lambda: b"\xff\xff\xff\x7f\x00",
        "regular expression": lambda: b"\x14\x00\x00\x00\x0ba\x00" + b"(a+)+$\x00\x00\x00\x00\x00\x00",
        "decimal": lambda: b"\x18\x00\x00\x00\x13a\x00" + b"\xff" * 15 + b"\x5f\x00",
    },
    "xml": {
        "laughs": lambda: (
            b"<!DOCTYPE a ["
            + b"".join(b'<!ENTITY l%d "%s">' % (at, b"&l%d;" % (at - 1) * 10 if at else b"ha") for at in range(12))
            + b"]><a>&l11;</a>"
        ),
        "deep elements": lambda: _nested(b"<a>", b"", b"</a>", 20_000),
        "attributes": lambda: b"<a " + b" ".join(b'a%d="x"' % at for at in range(50_000)) + b"/>",
        "siblings": lambda: b"<a>" + b"<b/>" * 200_000 + b"</a>",
        "texts": lambda: b"<a>" + b"x<b/>" * 100_000 + b"</a>",
        "references": lambda: b"<a>" + b"&#65;" * 200_000 + b"</a>",
    },
    "protobuf": {
        "deep lists": lambda: _protobuf_nested(2_000),
        "announced list": lambda: b"\x32\xff\xff\xff\xff\x07",
        "many nulls": lambda: b"\x32" + _varint(400_000) + b"\x0a\x00" * 200_000,
        "strings over each other": lambda: b"\x1a\x01a" * 100_000,
    },
}
"""Serializer -> body."""


def _emp_gzip(count: int, size: int) -> bytes:
    bomb = encode(Data(gzip.compress(bytes(size), 9, mtime=0), (Compression(1),)))
    return recording("emp", [[("client", encode(Hello())), ("server", encode(Hello())), ("client", bomb * count)]])


def _wolpertinger_gzip(count: int, size: int) -> bytes:
    document = b"<a>" + b" " * size + b"</a>"
    return recording("wolpertinger", [[("client", line(document, number, compress=True)) for number in range(1, count + 1)]])


def _relink_hello(sizes: tuple[int, int]) -> list[Turn]:
    request = relink.request(b"demo", sizes)
    return [("client", bytes(8)), ("server", bytes(8)), ("client", request), ("server", relink.reply(1, 1))]


def _relink_without_ids(count: int) -> bytes:
    """Acknowledgements of 8 bytes for 65,536 channels each, whose ids take no bytes."""
    multicast = b"\x43\0\0\0" + (1 << 16).to_bytes(4, "little")
    return recording("relink", [[*_relink_hello((0, 0)), ("server", multicast * count)]])


def _relink_stream(count: int) -> bytes:
    multicast = b"\x43\0\0\0" + (1 << 16).to_bytes(4, "little")
    return bytes(8) + relink.request(b"", (0, 0)) + multicast * count


def _relink_one_side(count: int) -> bytes:
    hello = [turn for turn in _relink_hello((0, 0)) if turn[0] == "client"]
    return recording("relink", [[*hello, *[("client", relink.GENERAL["ping"])] * count]], each=True)


def _single_bytes(count: int) -> bytes:
    return recording("wolpertinger", [[("client", b"\n" * count)]])


def _port() -> bytes:
    """A recording with one bit flipped in the tag of a port."""
    data = recording("emp", [[("client", encode(Hello())), ("server", encode(Hello()))]])
    tag = b"\0\x1a\0\4"
    return data.replace(tag + b"\0", tag + b"\x80", 1)


def _packets(packets: list[tuple[int, bytes]]) -> bytes:
    return pcap([(ts, ethernet(packet)) for ts, packet in packets])


def _duplicates(count: int) -> bytes:
    """Every packet twice, as captures on `any` and on mirror ports have them."""
    talk = Talk(server=("10.0.0.2", 8888)).open().say(0, yamp.handshake()).say(1, yamp.handshake())
    for _ in range(count):
        talk.say(0, yamp.ping(b"123456"))
    return _packets([packet for packet in talk.packets for _ in range(2)])


def _fragments(count: int) -> bytes:
    """Fragments of 8 bytes, of one packet that is never complete."""
    parts = [ipv4("10.0.0.1", "10.0.0.2", bytes(8), protocol=17, fragment=0x2000 | at % 8190 + 1) for at in range(count)]
    return _packets([(1_700_000_000_000_000 + at, one) for at, one in enumerate(parts)])


def _long_openings(connections: int, size: int, count: int) -> bytes:
    """WebSockets whose opening is long and whose first frames come in segments of one byte."""
    packets = []
    for number in range(connections):
        talk = Talk(("10.0.0.1", 40_000 + number), ("10.0.0.2", 7777)).open()
        talk.say(0, REQUEST[:-2] + b"X-Long: " + b"x" * size + b"\r\n\r\n")
        for _ in range(count):
            talk.say(0, b"\x82")
        packets += talk.packets
    return _packets(packets)


def _stanza_crumbs(count: int) -> bytes:
    """A stanza of XMPP that does not end, in segments of one byte, with as many from the other side between."""
    talk = Talk(("10.0.0.1", 40_000), ("10.0.0.2", 8844)).open()
    opening = b"<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
    talk.say(0, opening).say(1, opening).say(0, b"<message><body>")
    for _ in range(count):
        talk.say(0, b"x").say(1, b" ")
    return _packets(talk.packets)


HANDMADE: dict[tuple[str, str], dict[str, Callable[[], bytes]]] = {
    ("recordings", ""): {
        "relink multicast without ids": lambda: _relink_without_ids(1_000),
        "emp gzip in one block": lambda: _emp_gzip(40, 16_000_000),
        "wolpertinger gzip in one block": lambda: _wolpertinger_gzip(10, 60_000_000),
        "quarantine of single bytes": lambda: _single_bytes(60_000),
        "relink one side only": lambda: _relink_one_side(6_000),
        "port over 65535": _port,
        "empty file": lambda: b"",
    },
    ("captures", ""): {
        "every packet twice": lambda: _duplicates(8_000),
        "small fragments": lambda: _fragments(20_000),
        "long openings of WebSockets": lambda: _long_openings(50, 15_000, 250),
        "stanza in single bytes": lambda: _stanza_crumbs(10_000),
    },
    ("decode", "relink json"): {"multicast without ids": lambda: _relink_stream(1_000)},
    ("decode", "yamp text"): {
        "deep objects": lambda: yamp.handshake() + yamp.event(b"e", BODIES["json"]["deep objects"]()),
        "deeper objects": lambda: yamp.handshake() + yamp.event(b"e", BODIES["json"]["deeper objects"]()),
        "deep arrays": lambda: yamp.handshake() + yamp.event(b"e", _nested(b"[", b"", b"]", 900)),
    },
    ("peers", "yamp wsopen mute"): {
        "flood of pings": lambda: frame(2, yamp.handshake(), b"mask") + frame(9, b"p" * 125, b"mask") * 500_000
    },
    ("peers", "yamp tcp mute"): {"flood of pings": lambda: yamp.handshake() + yamp.ping(b"p" * 255) * 200_000},
    ("peers", "emp tcp mute"): {"flood of pings": lambda: encode(Hello()) + encode(Ping()) * 300_000},
    ("peers", "yamp udp many"): {"handshakes from many ports": lambda: yamp.handshake() * 3_000},
}
"""(Target, what it has to know) -> name -> the input."""


def _makers() -> dict[tuple[str, str], dict[str, Callable[[], bytes]]]:
    return {**HANDMADE, **{("serializers", serializer): bodies for serializer, bodies in BODIES.items()}}


def handmade(targets: Iterable[str]) -> list[Case]:
    """All handmade inputs of these targets, without their bytes: some are large."""
    wanted = set(targets)
    return [Case(target, what, b"", name) for (target, what), made in _makers().items() if target in wanted for name in made]


def filled(case: Case) -> Case:
    """A handmade input with its bytes; others as they are."""
    make = _makers().get((case.target, case.what), {}).get(case.name)
    return case if make is None else Case(case.target, case.what, make(), case.name)


def open_issue(case: Case) -> str:
    """The issue that is open for a handmade input, if there is one."""
    return OPEN.get(f"{case.target} {case.what}".strip(), {}).get(case.name, "")

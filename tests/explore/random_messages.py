"""Random messages of every protocol, recorded.

Most are as encoders write them, some are odd, and the last record of a connection may be broken.
"""

from __future__ import annotations

import binascii
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.capture.build import Talk, ethernet, ipv4, pcap, udp
from tests.fuzz.mutating import change_number, cut_and_splice
from tests.protocols.wolpertinger.pair import KEYS

from wirelake import protocols
from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.emp import messages as emp
from wirelake.protocols.emp import wire as emp_wire
from wirelake.protocols.event_mesh import messages as mesh
from wirelake.protocols.relink import messages as relink
from wirelake.protocols.wolpertinger import messages as wolpertinger
from wirelake.protocols.wolpertinger import wire as wolpertinger_wire
from wirelake.protocols.wolpertinger.layer1.fragments import split
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.values import Int32
from wirelake.protocols.yamp import messages as yamp

Turn = tuple[str, bytes]
WORDS = ("", "a", "orders.new", "größe", "名前", "𝄞 clef", 'say "hi" & <go>', "x" * 300)
START_NS = 1_700_000_000 * 10**9
TURNS = 40
"""Records of a connection."""


def text(dice: random.Random) -> str:
    return dice.choice(WORDS)[: dice.choice([8, 400])]


def body(dice: random.Random) -> bytes:
    return dice.choice([b"", b"x", b'{"a": [1, 2]}', b"\x00\n\xff", dice.randbytes(dice.randrange(200)), text(dice).encode()])


def emp_message(dice: random.Random) -> bytes:
    extensions: list[emp.Extension] = []
    packed = body(dice)
    while dice.random() < 0.45:
        match dice.randrange(4):
            case 0 | 1:
                extensions.append(emp.RequestResponse(dice.random() < 0.5, dice.choice([0, 1, dice.getrandbits(64)])))
            case 2:
                scheme = dice.choice([0, 1, 1, 1, 7])
                packed = emp_wire.pack(packed) if scheme == 1 and dice.random() < 0.9 else packed
                extensions.append(emp.Compression(scheme))
            case _:
                extensions.append(emp.OtherExtension(dice.choice([2, 127, 128, 255]), dice.randbytes(dice.randrange(20))))
    blocks = tuple(extensions)
    message: emp.Message
    match dice.randrange(12):
        case 0:
            message = emp.Hello(dice.randrange(256), blocks[:1])
        case 1:
            message = dice.choice([emp.Bye, emp.Ping, emp.Pong])(blocks[:1])
        case 2:
            message = emp.Error(dice.randrange(256), dice.randrange(256), dice.randrange(256), text(dice), blocks[:1])
        case 3:
            message = emp.Application(dice.randrange(128, 256), packed, blocks)
        case _:
            message = emp.Data(packed, blocks)
    data = bytearray(emp_wire.encode(message))
    if dice.random() < 0.03:
        data[dice.choice([4, 5, 6, 7, len(data) - 1])] ^= 1 << dice.randrange(8)  # no byte of a size
    return bytes(data)


def mesh_message(dice: random.Random) -> bytes:
    fields: list[mesh.Field] = []
    sizes = {0x02: 4, 0x03: 4, 0x10: 32, 0x12: 64, 0x13: 32, 0x14: 16, 0x15: 8, 0x16: 12, 0x17: 16, 0x18: 4}
    for _ in range(dice.randrange(7)):
        kind = dice.choice([1, 1, 1, 2, 3, 4, 5, 0x10, 0x11, 0x12, 0x13, 0x14, 0x14, 0x15, 0x16, 0x17, 0x18, dice.randrange(256)])
        if kind == 0x11:
            inner = [
                (1, bytes([dice.choice([1, 1, 2, 9])])),
                (2, b"\x0c"),
                (3, dice.randbytes(12)),
                (4, dice.randbytes(12)),
                (5, bytes(16)),
            ]
            chosen = dice.sample(inner, dice.randrange(len(inner) + 1))
            value = b"".join(bytes((number, len(content))) + content for number, content in chosen)
        elif kind in (1, 5):
            value = dice.choice([text(dice).encode()[:255], ("é" * 200).encode()[:255], b'{"a":1}', b"\xff"])
        elif kind in sizes and dice.random() < 0.97:
            value = dice.randbytes(sizes[kind])
        else:
            value = dice.randbytes(dice.choice([0, 3, 255]))
        fields.append(mesh.Field(kind, value))
    if dice.random() < 0.7:
        fields.sort(key=lambda field: (field.type in mesh.TAIL and 1 + mesh.TAIL.index(mesh.FieldType(field.type)), field.type))
    while sum(2 + len(field.value) for field in fields) > mesh.MAX_PAYLOAD_SIZE:
        fields.pop(0)
    flags = dice.choice([0, 0, 0, 1, 2, 4, 7])
    head = {"message_id": dice.getrandbits(32), "timestamp": dice.choice([1_700_000_000, dice.getrandbits(64)]), "flags": flags}
    message: mesh.Message
    if dice.random() < 0.1:
        message = mesh.Other(dice.randrange(4, 256), fields=tuple(fields), **head)
    else:
        message = dice.choice([mesh.Hello, mesh.Heartbeat, mesh.Event, mesh.Event])(fields=tuple(fields), **head)
    return protocols.get("event_mesh").encode(message, protocols.get("event_mesh").limits())


def yamp_message(dice: random.Random) -> bytes:
    uid, other, uri = dice.randbytes(16), dice.randbytes(16), text(dice)[:60]
    message: yamp.Message = dice.choice(
        [
            yamp.Ping(dice.randbytes(dice.randrange(20))),
            yamp.Pong(b""),
            yamp.Close(text(dice)),
            yamp.CloseRedirect(text(dice)),
            yamp.Event(uid, uri, body(dice)),
            yamp.Event(uid, uri, body(dice)),
            yamp.Request(uid, uri, dice.random() < 0.5, body(dice)),
            yamp.Request(uid, uri, False, body(dice)),
            yamp.Cancel(uid, uri, other, dice.random() < 0.5),
            yamp.Response(uid, uri, other, dice.choice([0, 1, 2, 3, 9]), body(dice)),
            yamp.Handshake(1, dice.choice(["json", "msgpack", ""])),
        ]
    )
    data = bytearray(protocols.get("yamp").encode(message, protocols.get("yamp").limits()))
    if data[0] == 5 and data[17] and dice.random() < 0.02:
        data[18] = 0xFF  # YAMP-16
    return bytes(data)


def relink_message(dice: random.Random, own: int, other: int) -> bytes:
    def ids(size: int, many: bool) -> tuple[bytes, ...]:
        return tuple(dice.randbytes(size) for _ in range(dice.choice([0, 1, 2, 5]) if many else 1))

    many = dice.random() < 0.3
    sequence = dice.choice([None, dice.getrandbits(32)])
    message: relink.AnyMessage
    match dice.randrange(10):
        case 0:
            message = dice.choice([relink.Nop, relink.Ping, relink.Pong, relink.Resume, relink.Shutdown])()
        case 1:
            message = dice.choice([relink.Commit, relink.Rollback])(ids(own, many), sequence, many)
        case 2:
            message = relink.Close(ids(own, many), many)
        case 3 | 4:
            kind = dice.choice([relink.Received, relink.Consumed, relink.Committed, relink.Uncommitted])
            message = kind(ids(other, many), sequence, many)
        case 5:
            message = relink.Closed(ids(other, many), many)
        case _:
            parts = tuple(body(dice) for _ in range(dice.choice([0, 1, 1, 1, 2, 7])))
            message = relink.Message(ids(own, many), parts, many, dice.random() < 0.1, dice.random() < 0.1)
    data = bytearray(protocols.get("relink").encode(message, protocols.get("relink").limits()))
    if dice.random() < 0.03 and not many and not isinstance(message, relink.Message):
        data[-1] ^= 1  # RELINK-12: padding, or the last byte of a sequence number or channel id; never of a count
    return bytes(data)


def wolpertinger_text(dice: random.Random) -> bytes:
    number = dice.getrandbits(32)
    if dice.random() < 0.25:
        message: wolpertinger.Message = wolpertinger.Result(dice.choice([0, 0, 1, 5, 6, 1000]), number)
        return protocols.get("wolpertinger").encode(message, protocols.get("wolpertinger").limits())
    call_id = str(uuid.UUID(int=dice.getrandbits(128)))
    name, method = text(dice)[:50], text(dice)[:30]
    said = dice.choice(
        [
            wolpertinger.Call(name, method, call_id, (Int32(7), text(dice), dice.random() < 0.5)),
            wolpertinger.Response(name, call_id, dice.choice([None, "done", ("a", ("b",))])),
            wolpertinger.Error(name, dice.choice([100, 303, 502]), dice.choice([None, call_id])),
        ]
    )
    document = dice.choice([documents.encode(said)] * 9 + [b"<no", b"", b"\xff<a/>"])
    keys = KEYS if dice.random() < 0.2 else None
    sealed = wolpertinger_wire.sealed(document, keys, compress=dice.random() < 0.2)
    payload = sealed.text
    if dice.random() < 0.05:
        payload = dice.choice(
            [payload[:-1], payload[:9] + b" \t" + payload[9:], b"*" + payload, binascii.b2a_base64(b"x" * 7, newline=False)]
        )
    whole = wolpertinger.Envelope(number, payload, sealed.gzip, sealed.encryption)
    if dice.random() < 0.15 and len(payload) > 20:
        pieces = split(payload, -(-len(payload) // 3))
        texts = [
            wolpertinger_wire.encode(wolpertinger.Envelope(number, piece, sealed.gzip, sealed.encryption, index, len(pieces)))
            for index, piece in enumerate(pieces)
        ]
        dice.shuffle(texts)
        if dice.random() < 0.2:
            texts.insert(dice.randrange(4), dice.choice(texts))
        return b"".join(one + b"\n" for one in texts)
    line = wolpertinger_wire.encode(whole)
    if dice.random() < 0.05:
        line = dice.choice(
            [line.replace(b"message_id", b"Message_ID"), b"gzip:0;" + line, b"color:red;" + line, line.replace(b":", b"::", 1)]
        )
    return line + b"\n"


def greeting(protocol: str) -> list[Turn]:
    """How both sides begin, so that a reader knows the protocol by it; Relink's handshake is part of `connection`."""
    match protocol:
        case "emp":
            return [("client", emp_wire.encode(emp.Hello())), ("server", emp_wire.encode(emp.Hello()))]
        case "yamp":
            said = protocols.get("yamp").encode(yamp.Handshake(1, "json"), protocols.get("yamp").limits())
            return [("client", said), ("server", said)]
        case "wolpertinger":
            return [("client", b"message_id:1;\n"), ("server", b"result:0;message_id:1;\n")]
    return []


def connection(dice: random.Random, protocol: str, turns: int, *, broken: float = 0.8) -> Iterator[Turn]:
    """What two say to each other; the last turn is broken anywhere, with this probability."""
    makers: dict[str, Callable[[random.Random], bytes]] = {
        "emp": emp_message,
        "event_mesh": mesh_message,
        "yamp": yamp_message,
        "wolpertinger": wolpertinger_text,
    }
    sizes = {"client": dice.choice([0, 1, 2, 4, 8]), "server": dice.choice([1, 2, 3])}
    if protocol == "relink":
        asked = relink.Request(
            text(dice)[:40], sizes["client"], sizes["server"], dice.randrange(8), dice.getrandbits(50) + 1, dice.getrandbits(62)
        )
        encode, limits = protocols.get("relink").encode, protocols.get("relink").limits()
        yield "client", encode(relink.Version(0), limits) + encode(asked, limits)
        yield "server", encode(relink.Version(0), limits) + encode(relink.Reply(1_700_000_000_000_000, dice.getrandbits(62) + 1), limits)
    for number in range(turns):
        who = dice.choice(["client", "server"])
        count = 1 if protocol == "event_mesh" else dice.choice([1, 1, 1, 2, 5])
        if protocol == "relink":
            other = "server" if who == "client" else "client"
            data = b"".join(relink_message(dice, sizes[who], sizes[other]) for _ in range(count))
        else:
            data = b"".join(makers[protocol](dice) for _ in range(count))
        if number == turns - 1 and dice.random() < broken:
            changed = bytearray(data)
            data = bytes(change_number(dice, changed) if dice.random() < 0.5 else cut_and_splice(dice, changed, lambda data=data: data))
        yield who, data[:60_000] or b"\0"


def recording(path: Path, protocol: str, seed: int, messages: int) -> Path:
    """A recording of about so many messages."""
    dice, now = random.Random(seed), [START_NS]
    per_turn = 1 if protocol == "event_mesh" else 2

    def clock() -> int:
        now[0] += 1_000_000
        return now[0]

    with Recorder(path, protocol=protocol, clock=clock) as recorder:
        for number in range(max(1, messages // (TURNS * per_turn))):
            one = recorder.connection(
                role=dice.choice(["client", "server"]),
                transport="udp" if protocol == "event_mesh" else "tcp",
                local=("10.0.0.1", 20_000 + number),
                remote=("10.0.0.2", 9),
                connection_id=number.to_bytes(8),
            )
            is_client = one._words["role"] == "client"
            for who, data in connection(dice, protocol, TURNS):
                (one.sent if (who == "client") == is_client else one.received)(data)
            one.closed("eof")
    return path


def packets(path: Path, protocol: str, seed: int, port: int, *, turns: int = TURNS) -> Path:
    """A capture of one connection whose segments are cut anywhere, but for the first of each side; or of its datagrams."""
    dice = random.Random(seed)
    said = [*greeting(protocol), *connection(dice, protocol, turns, broken=0)]
    ends = (("10.0.0.3", 40_000 + seed), ("10.0.0.4", port))
    if protocol == "event_mesh":
        frames = []
        for number, (who, data) in enumerate(said):
            (source, source_port), (target, target_port) = ends if who == "client" else ends[::-1]
            frames.append((START_NS // 1000 + number, ethernet(ipv4(source, target, udp(source_port, target_port, data), protocol=17))))
        path.write_bytes(pcap(frames))
        return path
    talk, spoke = Talk(client=ends[0], server=ends[1]).open(), set()
    for who, data in said:
        at = 0
        while at < len(data):
            stop = at + (dice.choice([1, 7, 60, 700, 1400]) if who in spoke else len(data))
            talk.say(0 if who == "client" else 1, data[at:stop])
            at = stop
            spoke.add(who)
    path.write_bytes(pcap(talk.close().frames()))
    return path

"""Seeds: sessions of every protocol from other tests, as recordings, packets and streams."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

from tests.capture import build
from tests.capture.build import ACK, PSH, Talk
from tests.lake import broken_sessions, conftest, mesh, relink_cases, relink_sessions, wolpertinger_sessions, yamp_sessions
from tests.lake.relink_recording import START_NS

from wirelake import protocols
from wirelake.capture.record.recorder import Recorder

Turn = tuple[str, bytes]
"""`client` or `server`, and what it says."""

LONGEST = 20_000
"""Bytes of a conversation; longer ones would make most runs slow, and are left to the handmade cases."""
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"


@cache
def talks(protocol: str) -> list[list[Turn]]:
    """Conversations of a protocol: good ones, and one for each rule that can be broken."""
    found: list[list[Turn]]
    match protocol:
        case "emp":
            cases = [
                [(who, conftest._frame(what)) for _, who, what in steps if who in ("client", "server")] for steps in conftest.CASES.values()
            ]
            found = [*cases, *broken_sessions.emp_talks()]
        case "yamp":
            found = [[(who, what) for _, who, what in steps if isinstance(what, bytes)] for steps in yamp_sessions.CASES.values()]
            found += broken_sessions.yamp_talks()
        case "wolpertinger":
            found = [[(who, what) for _, who, what in steps if isinstance(what, bytes)] for steps in wolpertinger_sessions.CASES.values()]
            found += broken_sessions.wolpertinger_talks()
        case "relink":
            story = [(who, data) for _, who, _, data in relink_sessions.STORY]
            found = [story, *(story(link) for link, (story, _) in enumerate(relink_cases.CASES.values(), 1))]
            found += list(broken_sessions.relink_talks())[::16]
        case _:
            found = [[("client", data)] for _, _, _, data in mesh.STORY]
            found += [[("client", data)] for _, data in broken_sessions.packets()]
    found = [[(who, data) for who, data in talk if who in ("client", "server") and data] for talk in found]
    return [talk for talk in found if 0 < sum(len(data) for _, data in talk) <= LONGEST]


def talk_of(dice: random.Random, protocol: str) -> list[Turn]:
    """One of them."""
    return dice.choice(talks(protocol))


def stream_of(dice: random.Random, protocol: str, speaker: str) -> bytes:
    """All that one side says in one of them; the other side's words if it says nothing."""
    talk = talk_of(dice, protocol)
    return b"".join(data for who, data in talk if who == speaker) or b"".join(data for _, data in talk)


def frame(opcode: int, data: bytes, mask: bytes = b"") -> bytes:
    """A WebSocket frame, whole; masked if there is a mask."""
    size = (
        bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2) if len(data) < 65536 else b"\x7f" + len(data).to_bytes(8)
    )
    size = bytes([size[0] | (0x80 if mask else 0)]) + size[1:]
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)) if mask else data
    return bytes([0x80 | opcode]) + size + mask + body


def recording(protocol: str, turns: list[list[Turn]], *, transport: str = "tcp", each: bool = False) -> bytes:
    """The file of a recorder that saw these conversations; with `each`, one record for each turn."""
    now = [START_NS]
    numbers = iter(range(1, 1_000_000))
    with tempfile.TemporaryDirectory(prefix="wirelake-fuzz-") as folder:
        path = Path(folder) / "seed.pcapng"
        more = {"clock": lambda: now[0], "new_id": lambda: next(numbers).to_bytes(8), "observer": "fuzz"}
        with Recorder(path, protocol=protocol, **more) as recorder:
            for port, talk in enumerate(turns, 20_000):
                remote = ("127.0.0.1", protocols.get(protocol).port)
                connection = recorder.connection(role="client", local=("127.0.0.1", port), remote=remote, transport=transport)
                for who, data in talk:
                    now[0] += 10**8
                    (connection.sent if who == "client" else connection.received)(data)
                    if each:
                        recorder.flush()
                connection.closed("eof")
        return path.read_bytes()


def packets(dice: random.Random, protocol: str, talk: list[Turn]) -> list[tuple[int, bytes]]:
    """The IP packets of a conversation, cut anywhere; some lost, repeated, swapped, or in fragments."""
    client, server = ("10.0.0.1", dice.randint(1025, 65_000)), ("10.0.0.2", dice.choice([protocols.get(protocol).port, 7777]))
    if protocol == "event_mesh":
        said = [build.ipv4(client[0], server[0], build.udp(client[1], server[1], data), protocol=17) for _, data in talk]
        made = [(1_700_000_000_000_000 + at * 1000, packet) for at, packet in enumerate(said)]
    else:
        tcp = Talk(client, server, first=dice.choice([1000, 2**32 - 20]))
        if dice.random() < 0.9:
            tcp.open()
        if protocol == "yamp" and dice.random() < 0.4:
            mask = dice.randbytes(4)
            talk = [("client", REQUEST), ("server", RESPONSE)] + [
                (who, frame(2, data, mask if who == "client" else b"")) for who, data in talk
            ]
        for who, data in talk:
            at = 0
            while at < len(data):
                size = dice.choice([1, 3, 20, 500, 1400, 1400])
                tcp.segment(0 if who == "client" else 1, ACK | PSH, data[at : at + size])
                at += size
        made = tcp.close().packets if dice.random() < 0.7 else tcp.packets
    for _ in range(dice.choice([0, 0, 1, 3])):
        at = dice.randrange(len(made))
        match dice.randrange(5):
            case 0 if len(made) > 1:
                del made[at]
            case 1:
                made = [one for one in made for _ in range(2)]
            case 2:
                other = dice.randrange(len(made))
                made[at], made[other] = made[other], made[at]
            case 3:
                ts, packet = made[at]
                cuts = [cut for cut in (8, 16, 48) if cut < len(packet) - 20]
                if packet[0] >> 4 == 4:
                    made[at : at + 1] = [(ts, one) for one in build.fragment_v4(packet, cuts, dice.randint(0, 3))]
            case _:
                made.insert(at, made[dice.randrange(len(made))])
    return made


def capture(dice: random.Random, made: list[tuple[int, bytes]]) -> bytes:
    """The file of packets in one of the containers."""
    order = dice.choice("<>")
    vlans = dice.choice([(), (), (0x8100,), (0x88A8, 0x8100)])
    frames = [(ts, build.ethernet(packet, vlans=vlans)) for ts, packet in made]
    if dice.random() < 0.6:
        return build.pcap(frames, order=order, nanoseconds=dice.random() < 0.3, cut=dice.choice([0, 0, 0, 0, 5]))
    blocks = [build.packet_block(ts, packet, order) for ts, packet in frames]
    return build.section(order) + build.interface(1, order) + b"".join(blocks)

"""Whatever breaks a rule by itself, for every room, each on a connection of its own: what the rooms' own tests have, and the bad vectors.

What breaks one by what was said before, or not said, is in `conftest`, `relink_cases`, `yamp_sessions` and `wolpertinger_sessions`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.lake import relink_cases
from tests.lake.mesh import BOB
from tests.lake.relink_recording import Tape, tell
from tests.lake.wolpertinger_sessions import line, result
from tests.protocols.emp import speech as emp
from tests.protocols.emp import test_faults as emp_faults
from tests.protocols.event_mesh import speech as mesh
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.test_faults import BY_FORM
from tests.protocols.relink import speech as relink
from tests.protocols.wolpertinger import xml_documents
from tests.protocols.yamp import speech as yamp
from tests.protocols.yamp import test_faults as yamp_faults

from wirelake.capture.record.recorder import Recorder
from wirelake.protocols.event_mesh.security.encryption import aad
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

VECTORS = Path(__file__).parents[1] / "vectors"
FORMER = bytes(15) + b"\x07"
"""A node whose key was revoked."""
OPENING = bytes(range(64, 96))
"""The encryption key of the mesh's one node."""
WEAK = (1).to_bytes(32, "little")

Talk = list[tuple[str, bytes]]
"""Who, and what; a second between them."""


def bad(room: str) -> list[dict]:
    return [one for one in json.loads((VECTORS / f"{room}.json").read_text()) if one["expect"] != "ok"]


def emp_talks() -> Iterator[Talk]:
    hellos = [("client", emp.hello()), ("server", emp.hello())]
    for said in (*emp_faults.HEARD.values(), *(bytes.fromhex(one["hex"]) for one in bad("emp"))):
        yield [*hellos, ("client", said), ("server", emp.error(3))]
    for said in emp_faults.GREETED.values():
        yield [("client", said), ("server", emp.error(3))]


def yamp_talks() -> Iterator[Talk]:
    hands = [("client", yamp.handshake()), ("server", yamp.handshake())]
    for said in (*yamp_faults.HEARD.values(), *(bytes.fromhex(one["hex"]) for one in bad("yamp"))):
        yield [*hands, ("client", said), ("server", yamp.close(b"no"))]
    for said in yamp_faults.GREETED.values():
        yield [("client", said), ("server", yamp.close(b"no"))]
    for said in yamp_faults.TOLD.values():
        yield [hands[0], ("server", said), ("client", yamp.close(b"no"))]


def wolpertinger_talks() -> Iterator[Talk]:
    for one in bad("wolpertinger"):
        yield (
            [("client", text.encode() + b"\n") for text in one["wire"]] if one["layer"] == 1 else [("client", line(one["xml"].encode(), 1))]
        )
    for document in (
        xml_documents.call(xml_documents.held("directoryObjectDiff", "")).encode(),
        xml_documents.error().replace("303", "x").encode(),
        b"<a>" * 100,
        b"\xff",
    ):
        yield [("client", line(document, 1)), ("server", result(1))]
    yield [("client", b"message_id:1;" + b"A" * (256 << 10) + b"\n")]
    yield [
        ("client", b"message_id:1;signature:x;\n"),
        ("client", b"message_id:1;result:x;\n"),
        ("client", b"result:0;message_id:1;gzip:1;\n"),
    ]
    yield [("client", b"message_id:1;a-b:1;\n")]
    yield [("client", b"".join(b"fragment_index:0;fragment_count:2;message_id:%d;AAAA\n" % number for number in range(300)))]


def relink_talks() -> Iterator[Talk]:
    """Each has a link of its own."""
    links, closed = iter(range(1, 10_000)), ("closed", b"")
    for first in range(256):  # every type there could be, from both sides
        for who in ("client", "server"):
            yield [*relink_cases.hello(next(links)), (who, bytes((first, 1)) + bytes(38)), closed]
    for said in (
        relink.message((b"a",) * 2, multicast=True)[:4] + (2**20).to_bytes(4, "little"),
        relink.message((b"a",), length=2**20, long=True),
        relink.message((b"a",), sizes=[2**40], length=1, large=True),
        relink.message((b"a",), sizes=[2**23] * 30, length=30, large=True),
    ):
        yield [*relink_cases.hello(next(links)), ("client", said), closed]
    versions = [("client", bytes(8)), ("server", bytes(8))]
    for asked in (
        relink.request(b"\xff", (1, 1)),
        relink.request(b"demo", (1, 1), 0, 1, 2**63),
        relink.request(b"demo", (1, 1), 0, 0, 7),
    ):
        yield [*versions, ("client", asked), closed]
    asked = ("client", relink.request(b"demo", (1, 1)))
    yield [versions[0], ("server", b"\x09" + bytes(7)), asked, closed]
    yield [*versions, asked, ("server", relink.reply(0, 7)), closed]
    early = relink.message((b"a",), (b"x",))
    yield [versions[0], ("client", asked[1] + early)]  # before there is a link
    yield [("server", bytes(8) + relink.reply(relink_cases.EPOCH, 19_999)), ("server", early), ("client", bytes(8) + asked[1][:-3]), closed]
    for link, (story, _) in enumerate(relink_cases.CASES.values(), 20_000):
        yield story(link)


def packets() -> Iterator[tuple[float, bytes]]:
    """(when, datagram)."""
    for said in BY_FORM.values():
        yield mesh.NOW, said
    for one in bad("event-mesh"):
        for said in (*one.get("prior", ()), one["hex"]):
            yield one["keys"]["now"], bytes.fromhex(said)
    former = mesh.tlv(0x14, FORMER)
    yield mesh.NOW, mesh.maced(mesh.name + former + mesh.auth)
    yield mesh.NOW, mesh.packet(mesh.name + mesh.node + mesh.tlv(0x13, WEAK) + mesh.tlv(0x12, WEAK + bytes(32)))
    yield mesh.NOW, mesh.packet(mesh.name + mesh.tlv(5, b"[1]"))
    yield mesh.NOW, mesh.packet(mesh.name + mesh.tlv(4, bytes(255)))
    yield mesh.NOW, mesh.packet(mesh.name + mesh.key + mesh.node)
    yield mesh.NOW, mesh.packet(mesh.tlv(4, bytes(32)) + mesh.metadata + mesh.node, flags=2)
    yield mesh.NOW, mesh.packet(mesh.tlv(4, zlib.compress(bytes(65_537), 9)), flags=4)
    hidden = mesh.name + mesh.tlv(0x14, bytes(16))
    sealed = AESGCM(OPENING).encrypt(mesh.NONCE, hidden, aad(3, 0xDEADBEEF, mesh.MADE, 2))
    yield mesh.NOW, mesh.packet(mesh.tlv(4, sealed) + mesh.metadata + mesh.node, flags=2)


def keys() -> TrustStore:
    """What everybody in the mesh knows."""
    known = store(Key(FORMER, mesh.AUTH, mesh.SECRET, revoked_from=1))
    known.add_encryption(mesh.NODE, OPENING)
    return known


def record(folder: Path) -> None:
    """One recording for each room."""
    for room, talks, port in (("emp", emp_talks(), 5040), ("yamp", yamp_talks(), 8888), ("wolpertinger", wolpertinger_talks(), 4711)):
        record_streams(folder / f"broken-{room}.pcapng", room, talks, port)
    tape = Tape(folder / "broken-relink.pcapng")
    for talk in relink_talks():
        tell(tape, talk)
    tape.recorder.close()
    now = [0]
    with Recorder(folder / "broken-mesh.pcapng", protocol="event_mesh", clock=lambda: now[0]) as recorder:
        for port, (when, said) in enumerate(packets(), 10_000):
            now[0] = int(when * 1e9)
            recorder.connection(role="server", local=BOB, remote=("127.0.0.1", port), transport="udp").received(said)


def record_streams(path: Path, room: str, talks: Iterable[Talk], server: int) -> None:
    now = [1_700_000_000 * 10**9]
    with Recorder(path, protocol=room, clock=lambda: now[0]) as recorder:
        for port, talk in enumerate(talks, 50_000):
            connection = recorder.connection(role="client", local=("127.0.0.1", port), remote=("127.0.0.1", server))
            for who, said in talk:
                now[0] += 10**9
                (connection.sent if who == "client" else connection.received)(said)
            connection.closed("eof")

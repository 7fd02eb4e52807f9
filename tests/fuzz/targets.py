"""Fuzz targets: each reads an input, and raises if a guarantee is broken."""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.capture.build import check
from tests.fuzz import hostile
from tests.fuzz.cases import Case
from tests.fuzz.seeds import recording
from tests.fuzz.worker import MIB, Bounds
from tests.protocols.emp import pair as emp
from tests.protocols.event_mesh.mesh import credentials, known
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import NOW
from tests.protocols.relink import pair as relink
from tests.protocols.wolpertinger import pair as wolpertinger
from tests.protocols.yamp import pair as yamp
from tests.protocols.yamp import speech

from wirelake import protocols
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.files.magic import HEAD_SIZE, compression_of
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run as run_command
from wirelake.lake.decode.accounting import balance
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.protocols.event_mesh.session import Now
from wirelake.protocols.event_mesh.session import Session as MeshSession
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.session import Session as RelinkSession
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.yamp.serializers import formats
from wirelake.protocols.yamp.serializers.bodies import BodyRejected, unpack


def capture(case: Case) -> None:
    """The reader and the lake's decoder: no exception, whole Arrow rows, and a ledger that accounts for every byte."""
    path = Path("input")
    path.write_bytes(case.data)
    source = identify(path)
    blocks = list(read(source, ports=protocols.ports(), sniff=protocols.sniff, dialect=protocols.dialect, protocols=protocols.names()))
    if not compression_of(case.data[:HEAD_SIZE]):
        check(blocks, case.data, source.size)
    balance([source], ledger_of(blocks))


def ledger_of(blocks: list[Block]) -> pa.RecordBatch:
    """The ledger that decoding makes of blocks."""
    decoder = Decoder(DecodeOptions(), keys=store(), keyring=Keyring([wolpertinger.KEYS]))
    for block in blocks:
        _validate(decoder.feed(block))
    rest = decoder.finish()
    _validate(rest)
    (books,) = rest["ledger"]
    return books


def _validate(rows: dict[str, list[pa.RecordBatch]]) -> None:
    for batches in rows.values():
        for batch in batches:
            batch.validate(full=True)


def decode(case: Case) -> None:
    """`wirelake decode PROTOCOL FILE -T FORM`: an exit code that says what happened, never an internal error."""
    protocol, form = case.what.split()
    Path("input").write_bytes(case.data)
    said = io.StringIO()
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(said):
        code = run_command(["-v", "decode", protocol, "input", "-T", form])
    if code not in (ExitCode.OK, ExitCode.DATA):
        raise AssertionError(f"exit code {code}: {said.getvalue()[-2000:]}")


def session(case: Case) -> None:
    """A session that hears these bytes in pieces: it raises nothing, ends at most once, and its timers go on."""
    protocol, speaker = case.what.split()
    dice = random.Random(zlib.crc32(case.data))
    SESSIONS[protocol](speaker, case.data, dice)


def _cuts(data: bytes, dice: random.Random) -> list[bytes]:
    size = dice.choice([1, 3, 64, 4096, 1 << 20]) if len(data) < 5_000 else dice.choice([64, 4096, 1 << 20])
    return [data[at : at + size] for at in range(0, len(data), size)]


def _emp(speaker: str, data: bytes, dice: random.Random) -> None:
    side = emp.Side(getattr(emp.Speaker, speaker.upper()), emp.EXTENDED, dice.choice([1, 7, 4096]))
    side.start()
    side.receive(data)
    _wait(side, dice)


def _yamp(speaker: str, data: bytes, dice: random.Random) -> None:
    options = yamp.options(serializers=formats.installed(), datagrams=dice.random() < 0.2)
    side = yamp.Side(getattr(yamp.Speaker, speaker.upper()), options, dice.choice([1, 7, 4096]))
    side.start()
    if options.datagrams:
        for piece in _cuts(data, dice):
            side.receive(piece)
    else:
        side.receive(data)
    _wait(side, dice)


def _wait(side: Any, dice: random.Random) -> None:
    if side.session.ended is None:
        side.now += dice.choice([0.0, 5.0, 1000.0])
        side.tick()
    if side.session.ended is None and dice.random() < 0.5:
        side.eof()


def _relink(speaker: str, data: bytes, dice: random.Random) -> None:
    endpoint = relink.Endpoint("demo", *dice.choice([(0, 0), (1, 1), (2, 0), (4, 4)]))
    if speaker == "client":
        one = RelinkSession(relink.C, link=relink.LinkCore(relink.C, endpoint, relink.Options()))
    else:
        registry = Registry([endpoint], relink.EPOCH, iter(range(7, 1 << 30)).__next__, relink.Options())
        one = RelinkSession(relink.L, registry=registry, remote="here")
    _drive(one, data, dice)
    if one.link is not None:
        relink.invariants.check(one.link)


def _wolpertinger(speaker: str, data: bytes, dice: random.Random) -> None:
    standing = dice.choice([wolpertinger.STRANGER, wolpertinger.TRUSTED])
    _drive(wolpertinger.session(getattr(wolpertinger.Speaker, speaker.upper()), standing), data, dice)


def _drive(one: Any, data: bytes, dice: random.Random) -> None:
    now, heard = 0.0, []
    one.start(now)
    for piece in _cuts(data, dice):
        if one.ended is not None:
            break
        one.receive(piece, now)
        one.output()
        heard += one.events()
        if dice.random() < 0.05:
            now += dice.choice([0.1, 60.0])
            one.tick(now)
    if one.ended is None:
        one.receive_eof(now)
    one.output()
    heard += one.events()
    endings = [event for event in heard if type(event).__name__ == "Ended"]
    assert len(endings) <= 1, endings


def _event_mesh(_: str, data: bytes, dice: random.Random) -> None:
    node = MeshSession(credentials("me"), draw=dice.randbytes, store=known(["me", "friend"]), peers=[("friend", 1)])
    now = Now(100.0, float(NOW))
    node.start(now)
    pieces = [data] if len(data) < 1500 else [data[at : at + 600] for at in range(0, len(data), 600)]
    for piece in pieces:
        node.receive(piece, ("somebody", dice.randint(1, 9)), now)
        node.output()
        node.events()
    node.tick(now)


SESSIONS: dict[str, Callable[[str, bytes, random.Random], None]] = {
    "emp": _emp,
    "event_mesh": _event_mesh,
    "relink": _relink,
    "wolpertinger": _wolpertinger,
    "yamp": _yamp,
}


@cache
def serializers() -> dict[str, Any]:
    """Every serializer there is, by its name."""
    return {**formats.installed(), "protobuf": formats.Protobuf()}


def body(case: Case) -> None:
    """A body for a serializer: read or refused, by itself and on its way into the lake."""
    with contextlib.suppress(BodyRejected):
        unpack(serializers()[case.what], case.data)
    hands = speech.handshake(1, case.what.encode())
    talk = [("client", hands), ("server", hands), ("client", speech.event(b"e", case.data))]
    capture(Case("recordings", "", recording("yamp", [talk])))


def peer(case: Case) -> None:
    """A live server that hears these bytes from a hostile peer; afterwards it serves an honest client."""
    hostile.meet(case.what.split(), case.data)


def selftest(case: Case) -> None:
    """Break a limit: for the tests of the worker."""
    match case.what:
        case "raise":
            raise ValueError("as asked")
        case "spin":
            while True:
                pass
        case "grow":
            _ = b"\1" * (700 * MIB)
        case "grow for ever":
            _ = [b"\1" * (1 << 33)]
        case "die":
            os.abort()
        case "leave":
            os._exit(3)
        case "sleep":
            time.sleep(0.01)


TARGETS: dict[str, Callable[[Case], None]] = {
    "captures": capture,
    "recordings": capture,
    "sessions": session,
    "serializers": body,
    "decode": decode,
    "peers": peer,
    "selftest": selftest,
}

BOUNDS = {
    "captures": Bounds(),
    "recordings": Bounds(768 * MIB),
    "sessions": Bounds(128 * MIB, 5),
    "serializers": Bounds(128 * MIB, 5),
    "decode": Bounds(256 * MIB, 10),
    "peers": Bounds(48 * MIB, 20),
    "selftest": Bounds(512 * MIB, 1),
}
"""What one input may take. Random inputs are under 200 KB, most of them under 20 KB.

For recordings it is the memory budget of a task (docs/lake.md), and what the interpreter needs beside it.
"""


def run(case: Case) -> None:
    """Run an input through its target."""
    TARGETS[case.target](case)


def bounds(case: Case) -> Bounds:
    """The limits of an input."""
    return BOUNDS[case.target]

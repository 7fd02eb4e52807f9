"""Wolpertinger in the lake: both layers, from the blocks of a recording to the columns of its tables.

Goal: 60,000 messages a second a core.
"""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from figures import Figure, main
from wirelake import protocols
from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.capture.record.recorder import Recorder
from wirelake.lake.decode.decoder import DecodeOptions, Decoder
from wirelake.protocols.kernel import use_compiled
from wirelake.protocols.wolpertinger.layer1.fragments import split
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.values import Int32
from wirelake.protocols.wolpertinger.messages import Envelope, Result
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import Keys, encode, sealed

GOAL = 60_000
TABLE = "Texts of wolpertinger to columns, CPU"
KEYS = Keys(bytes(range(32)), bytes(16))

Lines = list[bytes]


def said(number: int) -> Call | Response | Error:
    """A call with two parameters, its response, or an error."""
    call_id = str(uuid.UUID(int=number // 2))
    if number % 2 == 0:
        return Call("FileShare", "GetDirectoryInfo", call_id, (f"/home/{number}", Int32(2)))
    if number % 20 == 19:
        return Error("FileShare", 502, call_id)
    return Response("FileShare", call_id, f"{number} files")


def text(number: int, keys: Keys | None = None, *, compress: bool = False) -> bytes:
    what = sealed(documents.encode(said(number)), keys, compress=compress)
    return encode(Envelope(number + 1, what.text, what.gzip, what.encryption)) + b"\n"


def messages(count: int) -> Lines:
    return [text(number) for number in range(count)]


def packed(count: int) -> Lines:
    return [text(number, compress=True) for number in range(count)]


def sealed_texts(count: int) -> Lines:
    return [text(number, KEYS) for number in range(count)]


def fragments(count: int) -> Lines:
    """Every message in four texts."""
    lines = []
    for number in range(count // 4):
        what = sealed(documents.encode(said(number)), None)
        pieces = split(what.text, -(-len(what.text) // 4))
        lines += [encode(Envelope(number, piece, fragment_index=at, fragment_count=4)) + b"\n" for at, piece in enumerate(pieces)]
    return lines


def conversation(count: int) -> Lines:
    """What a connection carries: every message with the result that confirms it, some in two pieces, some packed."""
    dice = random.Random(4)  # noqa: S311 - texts, not secrets
    lines: Lines = []
    number = 0
    while len(lines) < count:
        lines += [text(number, compress=dice.random() < 0.1), encode(Result(0, number + 1)) + b"\n"]
        number += 1
    return lines[:count]


KINDS: dict[str, Callable[[int], Lines]] = {
    "message": messages,
    "conversation": conversation,
    "packed": packed,
    "encrypted": sealed_texts,
    "fragment": fragments,
}


def recorded(path: Path, texts: Lines) -> list[Block]:
    """The blocks of a recording of one side that says all this."""
    with Recorder(path, protocol="wolpertinger") as recorder:
        connection = recorder.connection(role="client", local=("127.0.0.1", 40_000), remote=("127.0.0.1", 4711))
        for at in range(0, len(texts), 100):
            connection.sent(b"".join(texts[at : at + 100]))
    return list(read(identify(path), ports=protocols.ports(), sniff=protocols.sniff))


def decoded(blocks: list[Block]) -> int:
    """Blocks to the columns of `messages` and `wolpertinger`, ledger included; says how many texts there were."""
    decoder = Decoder(DecodeOptions(), keyring=Keyring([KEYS]))
    made = [*(decoder.feed(block) for block in blocks), decoder.finish()]
    return sum(batch.num_rows for batches in made for batch in batches.get("messages", []))


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """CPU time of every kind, the best of several turns: the least disturbed one."""
    use_compiled()
    count, times = (5000, 3) if quick else (20_000, 10)
    texts = {name: make(count) for name, make in KINDS.items()}
    with tempfile.TemporaryDirectory() as folder:
        blocks = {name: recorded(Path(folder) / f"{name}.pcapng", texts[name]) for name in KINDS}
    took: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(times):
        for name in KINDS:
            began = time.process_time_ns()
            assert decoded(blocks[name]) == len(texts[name])
            took[name].append((time.process_time_ns() - began) / len(texts[name]))
    goals = {"message": GOAL}
    return [
        Figure(table=TABLE, name=f"wolpertinger {name}", ours=1e9 / min(found), unit="/s", least=goals.get(name))
        for name, found in took.items()
    ]


if __name__ == "__main__":
    main(run, __doc__)

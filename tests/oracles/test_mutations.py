"""Captures of others, cut, flipped, spliced and repeated: no crash, no hang, and every byte accounted for.

How many is told by WIRELAKE_MUTATIONS; each is made from its number alone, so that one that fails can be made again.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.capture.build import check
from tests.fuzz.mutating import cut_and_splice
from tests.oracles.verdicts import AnyPort

from wirelake.capture.blocks.block import Block
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.identity import identify
from wirelake.lake.decode.accounting import balance
from wirelake.lake.decode.decoder import DecodeOptions, Decoder

COUNT = int(os.environ.get("WIRELAKE_MUTATIONS", "500"))
GROUPS = 20
EACH = 5
"""Every so many are decoded, too, and their ledger is checked."""
LONGEST = 20.0
"""Seconds of CPU that no mutation may take; those it takes to compile a kernel that is needed for the first time are among them."""
SMALL = 400_000
"""Bytes of a capture that is mutated: larger ones are cut first, or ten thousand would take hours."""


def ledger_of(blocks: list[Block]) -> pa.RecordBatch:
    """The ledger that decoding makes of blocks."""
    decoder = Decoder(DecodeOptions())
    for block in blocks:
        decoder.feed(block)
    (books,) = decoder.finish()["ledger"]
    return books


def mutant(number: int, paths: list[Path]) -> bytes:
    """The capture of a number."""
    dice = random.Random(number)
    data = bytearray(dice.choice(paths).read_bytes()[:SMALL])
    return bytes(cut_and_splice(dice, data, lambda: dice.choice(paths).read_bytes()))


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.timeout(3600)
def test_no_mutation_breaks_the_reader_or_the_sum(folder, opinions, compiled, tmp_path, group):
    paths = [folder / row["sha256"] for row in opinions["captures"]]
    path = tmp_path / "mutant"
    path.write_bytes(paths[0].read_bytes())
    ledger_of(list(read(identify(path), ports=AnyPort(), sniff=lambda data: None)))  # compiling kernels is not reading
    for number in range(group, COUNT, GROUPS):
        raw = mutant(number, paths)
        path.write_bytes(raw)
        source = identify(path)
        began = time.process_time()
        blocks = list(read(source, ports=AnyPort(), sniff=lambda data: None))
        books = ledger_of(blocks) if number % EACH == 0 else None
        assert time.process_time() - began < LONGEST, number
        try:
            check(blocks, raw, source.size)
            if books is not None:
                balance([source], books)
        except AssertionError as error:
            error.add_note(f"mutation {number}")
            raise

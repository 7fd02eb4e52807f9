"""What tests of following share: conversations of every room in captures that are cut up, and tables by content."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

from tests.capture.build import pcap
from tests.lake.test_cuts import packets

from wirelake.lake.decode import unrecognised
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import SILVER, table

ROOMS = ("emp", "yamp", "websocket", "relink", "event_mesh")
PORTS = {5040: "emp", 5041: "yamp", 5042: "relink", 5043: "event_mesh"}


def story(seed: int, count: int = 2) -> list[tuple[int, bytes]]:
    """Frames of hostile conversations of every room at once, in the order of time."""
    dice = random.Random(seed)
    talks = [[frame for _, frame in packets(room, random.Random(f"{room} {seed}"), count)] for room in ROOMS]
    out = []
    while talks:
        one = dice.choice(talks)
        out.append(one.pop(0))
        talks = [talk for talk in talks if talk]
    return [(1_700_000_000_000_000 + 1000 * number, frame) for number, frame in enumerate(out)]


def files(frames: list[tuple[int, bytes]], count: int) -> list[bytes]:
    """The same as captures that follow each other."""
    size = len(frames) // count + 1
    return [pcap(frames[at : at + size]) for at in range(0, len(frames), size)]


def record_ends(parts: list[bytes]) -> list[int]:
    """Where each packet of captures that follow each other ends."""
    ends, begin = [], 0
    for part in parts:
        at = 24
        while at < len(part):
            at += 16 + int.from_bytes(part[at + 8 : at + 12], "little")
            ends.append(begin + at)
        begin += len(part)
    return ends


def contents(lake: Path) -> dict[str, str]:
    """A hash for each silver table over its sorted rows; of the ledger and of `unrecognised`, of what they say in all."""
    out = {}
    for each in SILVER:
        rows = delta.dataset(lake, table(each.name)).to_table().to_pylist()
        if each.name == "ledger":
            sums: dict[tuple, list[int]] = {}
            for row in rows:
                mine = sums.setdefault((row["source"], row["source_id"], row["category"], row["reason"]), [0, 0])
                mine[0] += row["bytes"]
                mine[1] += row["items"]
            rows = [{"what": what, "sums": both} for what, both in sums.items() if any(both)]
        if each.name == "unrecognised":
            rows = unrecognised.merge(delta.dataset(lake, each).to_table().to_batches()).to_pylist()
        told = "\n".join(sorted(map(repr, rows)))
        out[each.name] = hashlib.blake2b(told.encode()).hexdigest()
    return out


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)

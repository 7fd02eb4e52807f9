"""Planning: what is to be read by whom, before anything is read.

A look at the first bytes of each file tells when it begins, and whether it is a recording, whose payloads need no reassembly; unless it is
of a protocol that is read by what was said before, perhaps in another file. Large files
are cut: tasks walk the stretches, and their claims are settled here. What remains are works, some to be decoded where they are read,
the others to be dealt by connection.

It refuses to know what is in packets, and who runs the tasks: a function that claims stretches comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from wirelake import protocols
from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.from_recording import RecordingReader
from wirelake.capture.blocks.read_split import ReadTask, quarantine_rest, read_tasks
from wirelake.capture.containers.records import KIND, LINK, NO_TIME, RECORD_PACKET, TS
from wirelake.capture.containers.walk import EVERYTHING, Damaged, Walk, Window
from wirelake.capture.files.source_file import open_source
from wirelake.capture.files.split import ByteRange, Guess, Split, divide, guess, reconcile
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.lake.decode.scan import is_self_contained
from wirelake.protocols.kernel import use_compiled

__all__ = ["SPLIT_BYTES", "Cut", "Plan", "guess_here", "plan"]

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Files of twice this and more are cut into stretches of about this."""
BUCKET_BYTES: Final = 64 * 1024 * 1024
"""Packets whose connections are assembled by one task, about."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""So many are worth a task, if there are tasks to spare."""
MAX_BUCKETS: Final = 1024
LOOK_BYTES: Final = 64 * 1024
"""Bytes at the start of a file that are looked at."""


class Cut(msgspec.Struct, frozen=True):
    """A stretch of a source that somebody is to walk."""

    source: Source
    byte_range: ByteRange


class Plan(msgspec.Struct, frozen=True):
    """What there is to do."""

    direct: list[ReadTask]
    """To be decoded where it is read."""
    partitioned: list[ReadTask]
    """To be dealt by connection into `buckets`."""
    buckets: int


class _Look(msgspec.Struct, frozen=True):
    source: Source
    begins: int
    stands_alone: bool
    """Whether it can be decoded where it is read."""


def _look(source: Source) -> _Look:
    """When a source begins, and whether its first packets are recorded payloads that need nothing of others."""
    with open_source(source) as file:
        walk = Walk(source.path, file, stop=LOOK_BYTES, window=LOOK_BYTES)
        for step in walk.steps():
            if isinstance(step, Damaged):
                break
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            if len(packets):
                begins = next((ts for ts in packets[:, TS].tolist() if ts != NO_TIME), 0)
                return _Look(source, begins, _stands_alone(source, step, packets))
    return _Look(source, 0, stands_alone=True)


def _stands_alone(source: Source, step: Window, packets: np.ndarray[Any, Any]) -> bool:
    if not (packets[:, LINK] == LINK_EXPORTED).all():
        return False
    try:
        block = RecordingReader(protocols.ports(), protocols.names(), Accounting()).block(source, step.base, step.data, step.used, packets)
    except Exception:  # the task that reads it will say what it is
        return False
    return block is None or all(map(is_self_contained, block.flows))


def _rest(at: int, told: Guess) -> Split:
    """What comes after a place, given what walking up to it told; what was unfinished there has been given up."""
    return Split(at, EVERYTHING, told.after, (at, told.after))


def guess_here(one: Cut) -> Guess:
    """Walk a stretch in this process."""
    use_compiled()
    return guess(one.source, one.byte_range)


def plan(
    sources: Iterable[Source],
    guesses: Callable[[list[Cut]], list[Guess]],
    parallelism: int,
    split_bytes: int = SPLIT_BYTES,
    *,
    read: Mapping[bytes, int] | None = None,
    deal_all: bool = False,
    spoilt: Mapping[bytes, str] | None = None,
) -> Plan:
    """Who reads what; `guesses` has stretches walked, wherever that is best done.

    What was `read` of a source before is not read again. With `deal_all`, nothing is decoded where it is read. Nothing of a source that is
    `spoilt` is decoded: its bytes go to quarantine, with this reason.
    """
    before, failed = read or {}, spoilt or {}
    every = list(sources)
    looks = sorted((_look(one) for one in every if one.id not in failed), key=lambda look: (look.begins, look.source.path))
    ranges = [
        Cut(look.source, one)
        for look in looks
        for one in (
            [ByteRange(0, before[look.source.id])]
            if look.source.id in before
            else divide(look.source, split_bytes)
            if look.source.size >= 2 * split_bytes
            else []
        )
    ]
    guessed: dict[bytes, list[Guess]] = {}
    for one, told in zip(ranges, guesses(ranges) if ranges else [], strict=True):
        guessed.setdefault(one.source.id, []).append(told)
    direct = [quarantine_rest(one, before.get(one.id, 0), failed[one.id]) for one in every if one.id in failed]
    partitioned: list[ReadTask] = []
    for rank, look in enumerate(looks):
        guesses_of = guessed.get(look.source.id, [])
        begun = before.get(look.source.id)
        splits = reconcile(look.source, guesses_of) if begun is None else [_rest(begun, guesses_of[0])]
        (direct if look.stands_alone and not deal_all else partitioned).extend(read_tasks(look.source, splits, rank))
    size = sum(read_task.size for read_task in partitioned)
    buckets = max(size // BUCKET_BYTES, min(parallelism, size // SMALL_BYTES), 1)
    return Plan(direct, partitioned, min(buckets, MAX_BUCKETS))

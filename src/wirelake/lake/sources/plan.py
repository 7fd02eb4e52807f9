"""Planning on the driver: which task reads which bytes, before any byte is decoded.

Reads the first 64 KiB of each file to get its start time and type. Recordings of stateless protocols are decoded by the task that reads
them. Packet captures, and recordings of stateful protocols, are first repartitioned by connection. Large files are divided: tasks walk
the byte ranges and guess where records begin; the guesses are reconciled here.

What a plan says of a file is a hint, because later bytes may be of another protocol. The task that reads a file asks `needs_shuffle` for
every block, with the same answer for the same connections. If the hint was wrong, the task fails with the code NEEDS_SHUFFLE, and the
driver retries the batch with a shuffle of everything. Nothing was committed until then, so the retry is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from wirelake import protocols
from wirelake.capture.blocks.accounting import Accounting
from wirelake.capture.blocks.block import Flow, Source
from wirelake.capture.blocks.from_recording import RecordingReader
from wirelake.capture.blocks.read_split import ReadTask, quarantine_rest, read_tasks
from wirelake.capture.containers.records import KIND, LINK, NO_TIME, RECORD_PACKET, TS
from wirelake.capture.containers.walk import EVERYTHING, Damaged, Walk, Window
from wirelake.capture.files.source_file import open_source
from wirelake.capture.files.split import ByteRange, Guess, Split, divide, guess, reconcile
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.lake.decode.scan import is_self_contained
from wirelake.lake.session.errors import coded
from wirelake.lake.session.tasks import run_tasks
from wirelake.protocols.kernel import use_compiled, use_plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SPLIT_BYTES", "Beginning", "Cut", "Plan", "beginning", "guess_here", "guess_in_tasks", "needs_shuffle", "plan"]

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Files of at least twice this size are divided into byte ranges of about this size."""
BUCKET_BYTES: Final = 64 * 1024 * 1024
"""About so many bytes of connections are assembled by one task."""
SMALL_BYTES: Final = 4 * 1024 * 1024
"""So many bytes are worth a task, if there are cores to spare."""
MAX_BUCKETS: Final = 1024
LOOK_BYTES: Final = 64 * 1024
"""Bytes at the start of a file that planning reads."""


class Cut(msgspec.Struct, frozen=True):
    """A byte range of a source, for a task to walk."""

    source: Source
    byte_range: ByteRange


class Plan(msgspec.Struct, frozen=True):
    """Read tasks, by what happens to their blocks."""

    direct: list[ReadTask]
    """Blocks are decoded by the task that reads them."""
    partitioned: list[ReadTask]
    """Connections are partitioned into `buckets` by a shuffle, then decoded."""
    buckets: int


def needs_shuffle(flows: Iterable[Flow]) -> bool:
    """Whether connections must be partitioned before decoding, because they need earlier bytes."""
    return not all(map(is_self_contained, flows))


class Beginning(msgspec.Struct, frozen=True):
    """What the first bytes of a source say."""

    source: Source
    begins: int
    """Time of the first packet, microseconds since 1970; 0 if there is none."""
    is_direct: bool
    """Whether its first packets are recorded payloads that need no shuffle."""
    flows: list[Flow] = []
    """Connections of recorded payloads; none of packets."""
    links: frozenset[int] = frozenset()
    """Link types of the first packets."""


def beginning(source: Source) -> Beginning:
    """Read the beginning of a source."""
    with open_source(source) as file:
        walk = Walk(source.path, file, stop=LOOK_BYTES, window=LOOK_BYTES)
        for step in walk.steps():
            if isinstance(step, Damaged):
                break
            packets = step.rows[step.rows[:, KIND] == RECORD_PACKET]
            if len(packets):
                begins = next((ts for ts in packets[:, TS].tolist() if ts != NO_TIME), 0)
                flows = _recorded(source, step, packets)
                is_direct = flows is not None and not needs_shuffle(flows)
                return Beginning(source, begins, is_direct, flows or [], frozenset(packets[:, LINK].tolist()))
    return Beginning(source, 0, is_direct=True)


def _recorded(source: Source, step: Window, packets: np.ndarray[Any, Any]) -> list[Flow] | None:
    """The connections of recorded payloads; None if there are packets of another kind, or payloads that cannot be read."""
    if not (packets[:, LINK] == LINK_EXPORTED).all():
        return None
    try:
        block = RecordingReader(protocols.ports(), protocols.names(), Accounting()).block(source, step.base, step.data, step.used, packets)
    except Exception:  # the task that reads the source raises the same, with the source's name
        return None
    return list(block.flows) if block is not None else []


def _rest(at: int, before: Guess) -> Split:
    """The split after a position, from the state in which the walk up to it ended.

    An unfinished record there was given up.
    """
    return Split(at, EVERYTHING, before.after, (at, before.after))


def guess_here(cut: Cut) -> Guess:
    """Walk a byte range in this process."""
    use_compiled()
    with coded():
        return guess(cut.source, cut.byte_range)


def guess_in_tasks(spark: SparkSession, cuts: list[Cut], *, plain: bool) -> list[Guess]:
    """Walk each byte range in a Spark task. With `plain`, tasks use no Numba."""
    results = (msgspec.msgpack.decode(result, type=_Guessed) for result in run_tasks(spark, partial(_walk, cuts, plain), len(cuts)))
    return [each.guess for each in sorted(results, key=lambda each: each.number)]


class _Guessed(msgspec.Struct):
    """What one task returns."""

    number: int
    guess: Guess


def _walk(cuts: list[Cut], plain: bool, number: int) -> bytes:
    """In a task: walk one of the byte ranges."""
    if plain:
        use_plain()
    else:
        use_compiled()
    cut = cuts[number]
    return msgspec.msgpack.encode(_Guessed(number, guess(cut.source, cut.byte_range)))


def plan(
    sources: Iterable[Source],
    guesses: Callable[[list[Cut]], list[Guess]],
    parallelism: int,
    split_bytes: int = SPLIT_BYTES,
    *,
    read: Mapping[bytes, int] | None = None,
    shuffle_all: bool = False,
    quarantined: Mapping[bytes, str] | None = None,
) -> Plan:
    """Plan who reads what. `guesses` walks byte ranges, in Spark tasks or here.

    `read` has the bytes of a source that were ingested before and are skipped. With `shuffle_all`, nothing is decoded in place. The bytes
    of a source in `quarantined` (id -> reason) are not decoded but go to the table `quarantine`.
    """
    before, reasons = read or {}, quarantined or {}
    every = list(sources)
    looks = sorted((beginning(source) for source in every if source.id not in reasons), key=lambda look: (look.begins, look.source.path))
    cuts = [Cut(look.source, byte_range) for look in looks for byte_range in _ranges(look.source, before.get(look.source.id), split_bytes)]
    guessed: dict[bytes, list[Guess]] = {}
    for cut, walked in zip(cuts, guesses(cuts) if cuts else [], strict=True):
        guessed.setdefault(cut.source.id, []).append(walked)
    direct = [quarantine_rest(source, before.get(source.id, 0), reasons[source.id]) for source in every if source.id in reasons]
    partitioned: list[ReadTask] = []
    # Of several captures, two may have the same connection.
    several = sum(LINK_EXPORTED not in look.links for look in looks if look.links) > 1
    for rank, look in enumerate(looks):
        guesses_of = guessed.get(look.source.id, [])
        begun = before.get(look.source.id)
        splits = reconcile(look.source, guesses_of) if begun is None else [_rest(begun, guesses_of[0])]
        source = msgspec.structs.replace(look.source, begins=look.begins) if several else look.source
        (direct if look.is_direct and not shuffle_all else partitioned).extend(read_tasks(source, splits, rank))
    size = sum(read_task.size for read_task in partitioned)
    buckets = max(size // BUCKET_BYTES, min(parallelism, size // SMALL_BYTES), 1)
    return Plan(direct, partitioned, min(buckets, MAX_BUCKETS))


def _ranges(source: Source, read: int | None, split_bytes: int) -> list[ByteRange]:
    """The byte ranges of a source to walk before it is read: what was read before, or all of a large one."""
    if read is not None:
        return [ByteRange(0, read)]
    return divide(source, split_bytes) if source.size >= 2 * split_bytes else []

"""The ingest: from paths to a lake that has them, once.

It first finishes what an earlier ingest left half published, then plans (what is new, what is known, what has changed), runs one Spark
job from the source to the writer, and brings the gold tables up to date. What is in the ledger is never read again, wherever it lies.

It refuses to know formats, protocols and tables: it only brings together those who do.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake import protocols
from wirelake.capture.blocks import Source
from wirelake.capture.identity import Known, identify, mark
from wirelake.capture.splits import Claim
from wirelake.errors import CaptureError, LakeError
from wirelake.lake import delta, gold, journal, planning, running, settings, snapshot
from wirelake.lake.catalog import SILVER
from wirelake.lake.decode import DecodeOptions
from wirelake.lake.listing import expand, lake_folder
from wirelake.lake.positions import positions
from wirelake.lake.recovery import prepare, recover
from wirelake.lake.spark import activate, is_connect, suited

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession

    from wirelake.protocols.event_mesh.trust import TrustStore
    from wirelake.protocols.wolpertinger.keyring import Keyring

__all__ = ["IngestResult", "Progress", "ingest", "plainly"]

_POLL_SECONDS: Final = 0.25


class Progress(msgspec.Struct, frozen=True):
    """How far an ingest is, for whoever shows it."""

    stage: str
    """`recover`, `plan`, `decode` or `build`."""
    text: str
    done: int = 0
    total: int = 0
    """In tasks for `decode`, in tables and their index for `build`; 0 while it is not known."""


class IngestResult(msgspec.Struct, frozen=True):
    """What an ingest did."""

    batch: int | None
    """The number of the batch it added; None if there was nothing new."""
    files: int
    bytes: int
    messages: int
    quarantined: int
    """Stretches of bytes that went to quarantine."""
    skipped: tuple[str, ...]
    """Files that the lake has already, perhaps under another name."""
    changed: tuple[str, ...]
    """Files that the lake knows with other contents: left alone, for somebody to decide."""
    built: tuple[str, ...]
    """Gold tables that were brought up to date."""
    resumed: bool
    """Whether the batch of an earlier ingest had to be finished first."""
    seconds: float
    unreadable: tuple[str, ...] = ()
    """What lies in folders that were named and could not be read: the place, and why."""


class _Plan(msgspec.Struct):
    fresh: list[Source] = []
    read: dict[bytes, int] = {}
    """How far those of them were read before that have grown since."""
    skipped: list[str] = []
    changed: list[str] = []


def _plan(lake: Path, paths: Iterable[str]) -> _Plan:
    """Sort files by what the ledger says of them: content counts, not names."""
    known = positions(lake)
    plan = _Plan()
    for found in map(identify, paths):
        told = known.place(found)
        if told.is_other:
            plan.changed.append(found.path)
        elif told.is_known and told.end == found.size:
            plan.skipped.append(found.path)
        else:
            plan.fresh.append(told.source)
            plan.read |= {told.source.id: told.end} if told.end else {}
            known.add(Known(told.source, found.size, mark(found, found.size)))
    return plan


def ingest(
    spark: SparkSession,
    lake: str | PathLike[str],
    paths: Iterable[str | PathLike[str]],
    options: DecodeOptions | None = None,
    *,
    ports: Mapping[int, str] | None = None,
    late_seconds: float | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    build: bool = True,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Add captures to a lake, which is made if there is none. Doing it again changes nothing.

    `keys` are what packets are verified with; giving others later judges all of history anew. Without paths that is all that happens.
    `late_seconds` says after what time an answer is late, when the lake is made; later it can but say the same.
    `keyring` opens what is encrypted in what is read now.
    Without `build` gold tables stay as they are: the next ingest brings them up to date for all that came meanwhile.
    `ports` says which protocol is spoken on which port, where a capture does not say it itself; by default every protocol's own.
    """
    started = time.monotonic()
    root = lake_folder(lake)
    unreadable: list[str] = []
    found = expand(paths, unreadable)
    journal.initialise(root)
    with journal.locked(root), suited(spark), running.recorded(root, "ingest") as run:
        run.inputs = found
        settings.hold(root, late_seconds)
        with run.stage("recover"):
            progress(Progress("recover", "looking for unfinished work"))
            prepare(root)
            resumed = recover(root)
        with run.stage("plan"):
            progress(Progress("plan", f"looking at {len(found)} files"))
            with plainly(root):
                plan = _plan(root, found)
        run.files, run.bytes = len(plan.fresh), sum(source.size - plan.read.get(source.id, 0) for source in plan.fresh)
        run.skipped = len(plan.skipped) + len(plan.changed)
        batch, counts = None, dict.fromkeys(("messages", "quarantine"), 0)
        if plan.fresh:
            with run.stage("decode"):
                ports_of = dict(ports or protocols.ports())
                batch, counts = _run(spark, root, plan, options or DecodeOptions(), ports_of, (keys, keyring), progress)
            run.added(batch, counts)
            run.quarantined = counts["quarantine"]
        if build:
            total = 1 + len(gold.stale(root, keys))  # the index comes first
            steps = iter(range(total))
            with run.stage("build"), _cancelled(spark, uuid.uuid4().hex):
                run.built = gold.refresh(
                    spark, root, keys, lambda name: progress(Progress("build", f"building {name}", next(steps, total), total))
                )
        snapshot.publish(root)
        for table in SILVER:
            snapshot.sweep(root, table)
    return IngestResult(
        batch=batch,
        files=run.files,
        bytes=run.bytes,
        messages=counts["messages"],
        quarantined=counts["quarantine"],
        skipped=tuple(plan.skipped),
        changed=tuple(plan.changed),
        unreadable=tuple(unreadable),
        built=tuple(run.built),
        resumed=resumed,
        seconds=time.monotonic() - started,
    )


def _run(
    spark: SparkSession,
    lake: Path,
    todo: _Plan,
    options: DecodeOptions,
    ports: dict[int, str],
    keys: tuple[TrustStore | None, Keyring | None],
    progress: Callable[[Progress], None],
) -> tuple[int, dict[str, int]]:
    """One batch: begin, read, decode, write, publish, done. Gives its number and how many rows each table got."""
    from wirelake.lake import source, writer  # noqa: PLC0415 - only Spark work pays for importing Spark

    batch = 1 + max(delta.batch(lake, table) or 0 for table in SILVER)
    spark.dataSource.register(writer.sink_with(*keys))
    context = None if is_connect(spark) else spark.sparkContext

    def claims(cuts: list[planning.Cut]) -> list[Claim]:
        if context is None:  # a Connect client has no tasks of its own making: it looks itself
            return list(map(planning.claim_here, cuts))
        return context.parallelize(cuts, len(cuts)).map(planning.claim_here).collect()

    def attempt(*, deal_all: bool) -> None:
        begun = journal.begin(lake, batch, todo.fresh, todo.read, uuid.uuid4().hex)
        try:
            with plainly(lake), _cancelled(spark, begun.attempt), _watched(spark, progress):
                plan = planning.plan(todo.fresh, claims, context.defaultParallelism if context else 1, read=todo.read, deal_all=deal_all)
                told = {"lake": str(lake), "batch": str(batch), "attempt": begun.attempt, "decode": _json(options), "ports": _json(ports)}
                activate(spark)  # planning may have gone through a connection that an interrupt closed
                source.blocks(spark, plan, ports).write.format(writer.FORMAT).options(**told).mode("append").save()
        except BaseException:
            recover(lake)
            raise

    try:
        attempt(deal_all=False)
    except LakeError as error:
        if source.NOT_ALONE not in str(error):
            raise
        attempt(deal_all=True)
    published = journal.pending(lake)
    journal.done(lake)
    files = (published.files if published else None) or {}
    return batch, {table.name: sum(file.rows for file in files.get(table.name, ())) for table in SILVER}


def _json(value: object) -> str:
    """What a data source's option can carry."""
    return msgspec.json.encode(value).decode()


_OURS: Final = re.compile(r"^(?:wirelake\.errors\.)(\w+): (.+)$", re.MULTILINE)
"""How one of our errors, raised in a task or at commit, looks in the text of Spark's."""

_PYTHONS: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)
"""How any other error of a task looks there, for instance of a full disk: the last one is the cause."""


@contextmanager
def plainly(lake: Path) -> Iterator[None]:
    """Say what went wrong in one line, whatever Spark wrapped around it."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only Spark work pays for importing Spark

    try:
        yield
    except CaptureError as error:  # on the driver, while planning
        raise LakeError(str(error)) from error
    except PySparkException as error:
        text = str(error)
        if ours := _OURS.findall(text):
            raise LakeError(ours[-1][1]) from error
        blamed = _PYTHONS.findall(text) or text.strip().splitlines()[:1]
        raise LakeError(f"{lake}: the Spark job failed: {blamed[-1]}") from error


@contextmanager
def _cancelled(spark: SparkSession, tag: str) -> Iterator[None]:
    """Of Ctrl-C Spark hears nothing, and its tasks would go on: they are told."""
    # A session knows tags by thread, and the interrupted one is gone; a context knows them all. A Connect client has but its session.
    add, remove, cancel = (
        (spark.addTag, spark.removeTag, spark.interruptTag)
        if is_connect(spark)
        else (spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag, spark.sparkContext.cancelJobsWithTag)
    )
    add(tag)
    try:
        yield
    except KeyboardInterrupt:
        activate(spark)
        cancel(tag)
        raise
    finally:
        remove(tag)


@contextmanager
def _watched(spark: SparkSession, progress: Callable[[Progress], None]) -> Iterator[None]:
    """Report finished tasks while the job runs; a Connect client hears of none."""
    progress(Progress("decode", "reading and decoding"))
    if is_connect(spark):
        yield
        return
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        told = None
        while not over.wait(_POLL_SECONDS):
            for stage in filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())):
                now = Progress("decode", "reading and decoding", stage.numCompletedTasks, stage.numTasks)
                if now != told:
                    progress(now)
                    told = now

    watcher = threading.Thread(target=watch, name="wirelake-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()

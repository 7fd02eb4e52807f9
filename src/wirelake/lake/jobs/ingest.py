"""The ingest: from paths to a lake that has them, once.

It first finishes what an earlier ingest left half published, then plans (what is new, what is known, what has changed), runs one Spark
job from the source to the writer, and brings the gold tables up to date. What is in the ledger is never read again, wherever it lies.

It refuses to know formats, protocols and tables: it only brings together those who do.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from wirelake import protocols
from wirelake.capture.files.split import Guess
from wirelake.errors import LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.session.start import activate, is_connect, suited
from wirelake.lake.sources import failures, intake
from wirelake.lake.sources import plan as sources_plan
from wirelake.lake.sources.failures import plainly
from wirelake.lake.sources.intake import Like, Plan
from wirelake.lake.sources.paths import expand
from wirelake.lake.store import decode_settings, delta, folder, gold_commit, journal, run_log, settings, snapshot
from wirelake.lake.store.commit import prepare, publish, recover
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.store.removal import Remainder, remainder
from wirelake.lake.tables import unrecognised
from wirelake.lake.tables.catalog import SILVER

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["Decoding", "IngestResult", "Progress", "ingest", "remove", "work"]

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
    differently: tuple[str, ...]
    """Those of them that were decoded with other options than the ones that were given now: these had no effect on them."""
    changed: tuple[str, ...]
    """Files that the lake knows with other contents: left alone, for somebody to decide."""
    removed: tuple[str, ...]
    """Sources whose rows went, whether or not they were read again."""
    reread: tuple[str, ...]
    """Those of them that nobody named: they share connections with others, and were read again."""
    built: tuple[str, ...]
    """Gold tables that were brought up to date."""
    resumed: bool
    """Whether the batch of an earlier ingest had to be finished first."""
    seconds: float
    unrecognised: int = 0
    """Bytes that no protocol recognised: the table `unrecognised` has them by host and port."""
    unreadable: tuple[str, ...] = ()
    """What lies in folders that were named and could not be read: the place, and why."""
    likes: dict[str, Like] = {}
    """What each skipped file equals."""
    failed: dict[str, str] = {}
    """Files that could not be decoded, and why: they are in quarantine whole."""
    continued: tuple[str, ...] = ()
    """Files that ended in the middle of a record when they were read before: they have grown, and were read from their first byte."""


def ingest(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    paths: Iterable[str | PathLike[str]],
    options: DecodeOptions | None = None,
    *,
    ports: Mapping[int, str] | None = None,
    late_seconds: float | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    build: bool = True,
    again: bool = False,
    strict: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Add captures to a lake, which is made if there is none. Doing it again changes nothing.

    `spark` is a session, or a function that starts one, which is called only if there is work for Spark.
    `keys` are what packets are verified with; giving others later judges all of history anew. Without paths that is all that happens.
    `late_seconds` says after what time an answer is late, when the lake is made; later it can but say the same.
    `keyring` opens what is encrypted in what is read now.
    Without `build` gold tables stay as they are: the next ingest brings them up to date for all that came meanwhile.
    `ports` says which protocol is spoken on which port, where a capture does not say it itself; by default every protocol's own.
    A file whose decoding fails goes to quarantine whole, and the others are published; with `strict`, nothing is.
    With `again` files are read from their first byte, in place of what the lake has of them: with other options, or other contents.
    """
    root = lake_folder(lake)
    unreadable: list[str] = []
    found = expand(paths, unreadable)
    folder.claim(root)
    journal.initialise(root)
    is_told = not (options is None and ports is None and keyring is None)
    decoding = Decoding(options or DecodeOptions(), dict(ports or protocols.ports()), keys, keyring, is_told)
    plan = partial(intake.again if again else intake.new, root, found)
    more = {"late_seconds": late_seconds, "build": build or again, "strict": strict}
    result = work(spark, root, "ingest", found, plan, decoding, progress=progress, **more)  # type: ignore[arg-type]  # the same names
    return msgspec.structs.replace(result, unreadable=tuple(unreadable))


class Decoding(NamedTuple):
    """How what is read is decoded."""

    options: DecodeOptions
    ports: dict[int, str]
    keys: TrustStore | None = None
    keyring: Keyring | None = None
    is_told: bool = False
    """Whether somebody asked for these options: without effect they are an error."""

    @property
    def fingerprint(self) -> str:
        """Stands for what decides how bytes are decoded."""
        return decode_settings.fingerprint(self.options, self.ports, self.keyring)


def work(
    spark: SparkSession | Callable[[], SparkSession],
    root: Path,
    kind: str,
    inputs: list[str],
    make_plan: Callable[[], Plan],
    decoding: Decoding,
    *,
    late_seconds: float | None = None,
    build: bool = True,
    strict: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Do what a plan says to a lake, as one run: finish what is unfinished, plan, decode, build, publish."""
    began = time.monotonic()
    with journal.locked(root), run_log.recorded(root, kind) as run, ExitStack() as stack:
        run.inputs = inputs
        settings.hold(root, late_seconds)
        with run.stage("recover"):
            progress(Progress("recover", "looking for unfinished work"))
            prepare(root)
            resumed = recover(root)
            gold_commit.finish(root)
        with run.stage("plan"):
            progress(Progress("plan", f"looking at {len(inputs)} files"))
            with plainly(root):
                plan = make_plan()
            differently = decode_settings.differently(root, plan.skipped, decoding.fingerprint) if decoding.is_told else []
            if differently and not plan.fresh and not plan.removal and decoding.keys is None:
                raise LakeError(
                    f"{root} has all {len(plan.skipped)} files already, {len(differently)} of them decoded with other ports, limits or "
                    "session keys. The options have no effect on them: read them again with --again, or leave the options out"
                )
        run.files, run.bytes = len(plan.fresh), sum(source.size - plan.read.get(source.id, 0) for source in plan.fresh)
        run.skipped = len(plan.skipped) + len(plan.changed)
        batch, counts = None, dict.fromkeys(("messages", "quarantine"), 0)
        unknown, failed = 0, dict[str, str]()
        session = None
        if plan.fresh or plan.removal or (build and gold_commit.stale(root, decoding.keys)):
            with run.stage("start"):
                session = stack.enter_context(_started(spark))
        if session is not None and (plan.fresh or plan.removal):
            with run.stage("decode"):
                if plan.fresh:
                    batch, counts, failed = _run(session, root, plan, decoding, progress, strict=strict)
                else:
                    batch, counts = remove(root, plan)
            run.added(batch, counts)
            run.quarantined = counts["quarantine"]
            unknown = decode_unrecognised.bytes_in(delta.files_of(root, unrecognised.TABLE, batch))
        if build and session is not None:
            with run.stage("build"):
                run.built = _build(session, root, decoding.keys, progress)
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
        differently=tuple(differently),
        changed=tuple(plan.changed),
        removed=tuple(sorted(plan.removal.paths)) if plan.removal else (),
        reread=tuple(plan.reread),
        likes=plan.likes,
        failed=failed,
        continued=tuple(plan.continued),
        built=tuple(run.built),
        resumed=resumed,
        seconds=time.monotonic() - began,
        unrecognised=unknown,
    )


@contextmanager
def _started(spark: SparkSession | Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """A session to work with, started now if it was not."""
    session: SparkSession = spark() if callable(spark) else spark
    with suited(session):
        yield session


def _build(spark: SparkSession, lake: Path, keys: TrustStore | None, progress: Callable[[Progress], None]) -> list[str]:
    """Bring gold tables up to date, telling each step; gives their names."""
    from wirelake.lake.gold.incremental import refresh  # noqa: PLC0415 - imports Spark: an ingest with nothing to do starts without

    total = 1 + len(gold_commit.stale(lake, keys))  # the index comes first
    steps = iter(range(total))
    with _cancelled(spark, uuid.uuid4().hex):
        return refresh.refresh(spark, lake, keys, lambda name: progress(Progress("build", f"building {name}", next(steps, total), total)))


def _next(lake: Path) -> int:
    """The number of the next batch."""
    return 1 + max(delta.batch(lake, table) or 0 for table in SILVER)


def _begin(lake: Path, batch: int, plan: Plan, attempt: str = "") -> journal.Pending:
    """Write down what a batch is going to do, and what is left of files from which rows are removed."""
    left = remainder(lake, plan.removal) if plan.removal else Remainder()
    removed, kept = left.removed, left.kept
    return journal.begin(lake, batch, plan.fresh, plan.read, attempt, removed=removed, kept=kept, following=plan.following)


def remove(lake: Path, plan: Plan) -> tuple[int, dict[str, int]]:
    """One batch that only removes; it needs neither the sources nor Spark."""
    batch = _next(lake)
    try:
        _begin(lake, batch, plan)
        with journal.fenced(lake):
            publish(lake, journal.prepare(lake, {}))
            journal.done(lake)
    except BaseException:
        recover(lake)
        raise
    return batch, {table.name: 0 for table in SILVER}


def _run(
    spark: SparkSession, lake: Path, todo: Plan, decoding: Decoding, progress: Callable[[Progress], None], *, strict: bool
) -> tuple[int, dict[str, int], dict[str, str]]:
    """One batch: begin, read, decode, write, publish, done. Gives its number, how many rows each table got, and files that failed."""
    from wirelake.lake.jobs import sink  # noqa: PLC0415 - only Spark work pays for importing Spark
    from wirelake.lake.sources import blocks as sources_blocks  # noqa: PLC0415

    batch, options, ports = _next(lake), decoding.options, decoding.ports
    spark.dataSource.register(sink.sink_with(decoding.keys, decoding.keyring))
    context = None if is_connect(spark) else spark.sparkContext

    def guesses(cuts: list[sources_plan.Cut]) -> list[Guess]:
        if context is None:  # a Connect client has no tasks of its own making: it looks itself
            return list(map(sources_plan.guess_here, cuts))
        return context.parallelize(cuts, len(cuts)).map(sources_plan.guess_here).collect()

    def attempt(name: str, spoilt: dict[bytes, str], *, deal_all: bool) -> None:
        _begin(lake, batch, todo, name)
        decode_settings.note(lake, batch, decoding.fingerprint)
        try:
            with plainly(lake), _cancelled(spark, name), _watched(spark, progress):
                cores = context.defaultParallelism if context else 1
                plan = sources_plan.plan(todo.fresh, guesses, cores, read=todo.read, deal_all=deal_all, spoilt=spoilt)
                told = {"lake": str(lake), "batch": str(batch), "attempt": name, "decode": _json(options), "ports": _json(ports)}
                activate(spark)  # planning may have gone through a connection that an interrupt closed
                place = failures.folder(lake, name)
                sources_blocks.blocks(spark, plan, ports, place).write.format(sink.FORMAT).options(**told).mode("append").save()
        except BaseException:
            recover(lake)
            raise

    failed = _repeat(lake, todo, attempt, strict=strict)
    published = journal.pending(lake)
    journal.done(lake)
    files = (published.files if published else None) or {}
    return batch, {table.name: sum(file.rows for file in files.get(table.name, ())) for table in SILVER}, failed


def _repeat(lake: Path, todo: Plan, attempt: Callable[..., None], *, strict: bool) -> dict[str, str]:
    """Attempt a batch until it is published, each time without the files whose decoding failed; gives their paths, and why."""
    spoilt: dict[bytes, str] = {}
    paths = {source.id: source.path for source in todo.fresh}
    deal_all = False
    while True:
        name = uuid.uuid4().hex
        try:
            attempt(name, spoilt, deal_all=deal_all)
        except LakeError as error:
            found = failures.take(lake, name)
            if not deal_all and any(one.code is failures.Code.NOT_ALONE for one in found):
                deal_all = True
                continue
            fresh = {one.id: failure.reason for failure in found for one in failure.sources if one.id in paths and one.id not in spoilt}
            if not fresh:
                raise
            if strict:
                raise LakeError(f"{error}; nothing was published") from error
            spoilt |= fresh
        else:
            failures.take(lake, name)
            return {paths[source_id]: reason for source_id, reason in spoilt.items()}


def _json(value: object) -> str:
    """What a data source's option can carry."""
    return msgspec.json.encode(value).decode()


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

"""Batch ingest: captures into a lake, exactly once.

Recovers a batch that an earlier ingest left half published, plans (new, known and changed files), runs one Spark job from source to sink,
and refreshes the gold tables. Bytes in the ledger are never read again, under any name, so an ingest is idempotent.
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
from pyspark.sql import SparkSession

from wirelake import protocols
from wirelake.errors import ErrorCode, LakeError
from wirelake.lake.decode import unrecognised as decode_unrecognised
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.gold.incremental import refresh
from wirelake.lake.jobs import sink
from wirelake.lake.session.errors import one_line_if_full, translated
from wirelake.lake.session.settings import is_local
from wirelake.lake.session.start import activate, is_connect, suited
from wirelake.lake.sources import failures, intake, warm_up
from wirelake.lake.sources import plan as sources_plan
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

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["Decoding", "IngestResult", "Progress", "ingest", "refresh_gold", "remove", "run_job"]

_POLL_SECONDS: Final = 0.25


class Progress(msgspec.Struct, frozen=True):
    """How far an ingest is."""

    stage: str
    """`recover`, `plan`, `decode` or `build`."""
    text: str
    done: int = 0
    total: int = 0
    """In Spark tasks for `decode`, in tables and their index for `build`; 0 while unknown."""


class IngestResult(msgspec.Struct, frozen=True):
    """The outcome of an ingest."""

    batch: int | None
    """The number of the committed batch; None if there was nothing new."""
    files: int
    bytes: int
    messages: int
    quarantined: int
    """Rows that were added to the table `quarantine`."""
    skipped: tuple[str, ...]
    """Files that the lake has already, perhaps under another path."""
    differently: tuple[str, ...]
    """Skipped files that were decoded with other options; the present options had no effect on them."""
    changed: tuple[str, ...]
    """Files that the lake has with other contents: not read. Ingest them with `again` to replace those."""
    removed: tuple[str, ...]
    """Sources whose rows were removed, whether or not they were read again."""
    reread: tuple[str, ...]
    """Removed sources that the caller did not name.

    They share connections with others, and were read again.
    """
    built: tuple[str, ...]
    """Gold tables that were refreshed."""
    resumed: bool
    """Whether the batch of an earlier ingest had to be recovered first."""
    seconds: float
    unrecognised: int = 0
    """Bytes that no protocol recognised: the table `unrecognised` has them by host and port."""
    unreadable: tuple[str, ...] = ()
    """Unreadable entries of input folders: path and reason."""
    likes: dict[str, Like] = {}
    """Path of a skipped file -> the source that it equals."""
    failed: dict[str, str] = {}
    """Path -> reason, of files that could not be decoded: all their bytes are in quarantine."""
    continued: tuple[str, ...] = ()
    """Files that ended in the middle of a record and have grown since: read again from their first byte."""


def ingest(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    paths: Iterable[str | PathLike[str]],
    options: DecodeOptions | None = None,
    *,
    ports: Mapping[int, str] | None = None,
    late_seconds: float | None = None,
    trust: str | None = None,
    freshness: bool | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    observer: str = "",
    gold: bool = True,
    again: bool = False,
    strict: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Add captures to a lake, which is created if there is none.

    Idempotent: running it again changes nothing.

    `spark` is a session, or a function that starts one. The function is called only if there is work for Spark.
    `observer` names who saw the files that are read now. A file that the lake has in part keeps the name that it has.
    `keys` verify the packets of the whole lake, earlier ones included. With such keys, `paths` may be empty. Their encryption keys open
    payloads in the files that are read now.
    `late_seconds` is the time after which an answer is late. `trust` is `store`, `in-band` or `first-use`: which public keys in packets of
    Event Mesh are trusted. `freshness` is whether its packets must be of about the time they were seen. All are fixed when the lake is
    created.
    `keyring` decrypts sessions in the files that are read now.
    Without `gold`, gold tables are not refreshed; `refresh_gold` or the next ingest with `gold` does that.
    `ports` maps ports to protocols, for captures that do not name them; the default is every protocol's default port.
    A file whose decoding fails goes to quarantine, and the others are committed. With `strict`, nothing is committed then.
    With `again`, files are read from their first byte and replace their rows in the lake.
    """
    root = lake_folder(lake)
    unreadable: list[str] = []
    files = expand(paths, unreadable)
    folder.claim(root)
    journal.initialise(root)
    is_explicit = not (options is None and ports is None and keyring is None and (keys is None or not keys.encryption))
    decoding = Decoding(options or DecodeOptions(), dict(ports or protocols.ports()), keys, keyring, is_explicit)

    def plan() -> Plan:
        return intake.named(root, (intake.again if again else intake.new)(root, files), observer)

    more = {"wanted": settings.Wanted(late_seconds, trust, freshness), "gold": gold or again, "strict": strict}
    result = run_job(spark, root, "ingest", files, plan, decoding, progress=progress, **more)  # type: ignore[arg-type]  # the same names
    return msgspec.structs.replace(result, unreadable=tuple(unreadable))


def refresh_gold(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    *,
    keys: TrustStore | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Refresh the gold tables of a lake, if they lack batches that were ingested without them.

    `keys` verify the packets of the whole lake.
    """
    root = lake_folder(lake)
    if not journal.check(root):
        raise LakeError(f"{lake} is not a lake: make one with `wirelake ingest`")
    folder.claim(root)
    decoding = Decoding(DecodeOptions(), protocols.ports(), keys)
    return run_job(spark, root, "gold", [], partial(intake.new, root, []), decoding, progress=progress)


class Decoding(NamedTuple):
    """Everything that decides how bytes are decoded."""

    options: DecodeOptions
    ports: dict[int, str]
    keys: TrustStore | None = None
    keyring: Keyring | None = None
    is_explicit: bool = False
    """Whether the caller gave any of them: without effect they are an error."""

    @property
    def verifying(self) -> TrustStore | None:
        """The keys, if they verify anything."""
        return None if self.keys is None or self.keys.only_opens else self.keys

    @property
    def fingerprint(self) -> str:
        """A hash of it, without keys of verification."""
        return decode_settings.fingerprint(self.options, self.ports, self.keyring, self.keys)


def run_job(
    spark: SparkSession | Callable[[], SparkSession],
    root: Path,
    kind: str,
    inputs: list[str],
    make_plan: Callable[[], Plan],
    decoding: Decoding,
    *,
    wanted: settings.Wanted = settings.NOTHING_WANTED,
    gold: bool = True,
    strict: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Run one job on a lake: recover, plan, decode, build, publish. It is one row of the table `runs`.

    `wanted` has settings for a new lake.
    """
    started = time.monotonic()
    with journal.locked(root), one_line_if_full(root), run_log.recorded(root, kind) as run, ExitStack() as stack:
        run.inputs = inputs
        held = settings.hold(root, wanted)
        with run.stage("recover"):
            progress(Progress("recover", "looking for an unfinished batch"))
            prepare(root)
            resumed = recover(root)
            gold_commit.finish(root)
        with run.stage("plan"):
            progress(Progress("plan", f"planning {len(inputs)} files"))
            with translated(root):
                plan = make_plan()
            differently = decode_settings.differently(root, plan.skipped, decoding.fingerprint) if decoding.is_explicit else []
            if differently and not plan.fresh and not plan.removal and decoding.verifying is None:
                raise LakeError(
                    f"{root} has all {len(plan.skipped)} files already, {len(differently)} of them decoded with other ports, limits or "
                    "session keys. The options have no effect on them: read them again with --again, or leave the options out"
                )
        run.files, run.bytes = len(plan.fresh), sum(source.size - plan.read.get(source.id, 0) for source in plan.fresh)
        run.skipped = len(plan.skipped) + len(plan.changed)
        batch, counts = None, dict.fromkeys(("messages", "quarantine"), 0)
        unknown, failed = 0, dict[str, str]()
        session, is_plain = None, False
        if plan.fresh or plan.removal or (gold and gold_commit.stale(root, decoding.verifying)):
            with run.stage("start"):
                # A session that runs already has tasks that compile: nothing happens meanwhile.
                warming = stack.enter_context(warm_up.while_starting(plan.fresh if callable(spark) else (), decoding.ports))
                session = stack.enter_context(_started(spark))
                is_plain = warming.is_plain(is_local=not is_connect(session) and is_local(session.sparkContext.master or ""))
        if session is not None and (plan.fresh or plan.removal):
            with run.stage("decode"):
                if plan.fresh:
                    how = decoding._replace(keys=held.keys(decoding.keys))
                    batch, counts, failed = _run(session, root, plan, how, progress, strict=strict, plain=is_plain)
                else:
                    batch, counts = remove(root, plan)
            run.added(batch, counts)
            run.quarantined = counts["quarantine"]
            unknown = decode_unrecognised.bytes_in(delta.files_of(root, unrecognised.TABLE, batch))
        if gold and session is not None:
            with run.stage("build"):
                run.built = _build(session, root, decoding.verifying, progress)
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
        seconds=time.monotonic() - started,
        unrecognised=unknown,
    )


@contextmanager
def _started(spark: SparkSession | Callable[[], SparkSession]) -> Iterator[SparkSession]:
    """Start the session if needed, and set what the job needs."""
    session: SparkSession = spark() if callable(spark) else spark
    with suited(session):
        yield session


def _build(spark: SparkSession, lake: Path, keys: TrustStore | None, progress: Callable[[Progress], None]) -> list[str]:
    """Refresh gold tables, reporting each step, and return their names."""
    total = 1 + len(gold_commit.stale(lake, keys))  # the index comes first
    steps = iter(range(total))
    with _cancelled(spark, uuid.uuid4().hex):
        return refresh.refresh(spark, lake, keys, lambda name: progress(Progress("build", f"building {name}", next(steps, total), total)))


def _next(lake: Path) -> int:
    """The number of the next batch."""
    return 1 + max(delta.batch(lake, table) or 0 for table in SILVER)


def _begin(lake: Path, batch: int, plan: Plan, attempt: str = "") -> journal.Pending:
    """Enter a batch into the journal, with the rewritten files if rows are removed."""
    left = remainder(lake, plan.removal) if plan.removal else Remainder()
    removed, kept = left.removed, left.kept
    return journal.begin(lake, batch, plan.fresh, plan.read, attempt, removed=removed, kept=kept, following=plan.following)


def remove(lake: Path, plan: Plan) -> tuple[int, dict[str, int]]:
    """Commit a batch that only removes rows; it needs neither the sources nor Spark."""
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
    spark: SparkSession, lake: Path, todo: Plan, decoding: Decoding, progress: Callable[[Progress], None], *, strict: bool, plain: bool
) -> tuple[int, dict[str, int], dict[str, str]]:
    """Run one batch with Spark; return its number, new rows by table, and failed files with reasons."""
    batch, options, ports = _next(lake), decoding.options, decoding.ports
    context = None if is_connect(spark) else spark.sparkContext
    guesses = partial(sources_plan.guess_in_tasks, spark, plain=plain)

    def attempt(name: str, quarantined: dict[bytes, str], *, shuffle_all: bool) -> None:
        _begin(lake, batch, todo, name)
        decode_settings.note(lake, batch, decoding.fingerprint)
        try:
            with translated(lake), _cancelled(spark, name), _watched(spark, progress):
                cores = context.defaultParallelism if context else 1
                plan = sources_plan.plan(todo.fresh, guesses, cores, read=todo.read, shuffle_all=shuffle_all, quarantined=quarantined)
                activate(spark)  # planning may have gone through a connection that an interrupt closed
                writer = sink.TableWriter(lake, batch, options, decoding.keys, ports, name, decoding.keyring)
                writer.commit(sink.run(spark, plan, ports, failures.folder(lake, name), writer, plain))
        except BaseException:
            recover(lake)
            raise

    failed = _retry(lake, todo, attempt, strict=strict)
    published = journal.pending(lake)
    journal.done(lake)
    files = (published.files if published else None) or {}
    return batch, {table.name: sum(file.rows for file in files.get(table.name, ())) for table in SILVER}, failed


def _retry(lake: Path, todo: Plan, attempt: Callable[..., None], *, strict: bool) -> dict[str, str]:
    """Attempt a batch until it commits; return the paths of files that went to quarantine, with reasons.

    Tasks note why they fail, by code. NEEDS_SHUFFLE: the plan's hint was wrong, and the next attempt shuffles everything. That happens
    once, because a second file may have the same surprise. DECODER_FAILED: the next attempt has the sources in quarantine.
    """
    quarantined: dict[bytes, str] = {}
    paths = {source.id: source.path for source in todo.fresh}
    shuffle_all = False
    while True:
        name = uuid.uuid4().hex
        try:
            attempt(name, quarantined, shuffle_all=shuffle_all)
        except LakeError as error:
            notes = failures.take(lake, name)
            if not shuffle_all and any(note.code is ErrorCode.NEEDS_SHUFFLE for note in notes):
                shuffle_all = True
                continue
            reasons = {source.id: note.reason for note in notes if note.code is ErrorCode.DECODER_FAILED for source in note.sources}
            new = {source_id: reason for source_id, reason in reasons.items() if source_id in paths and source_id not in quarantined}
            if not new:
                raise
            if strict:
                raise LakeError(f"{error}; nothing was published") from error
            quarantined |= new
        else:
            failures.take(lake, name)
            return {paths[source_id]: reason for source_id, reason in quarantined.items()}


@contextmanager
def _cancelled(spark: SparkSession, tag: str) -> Iterator[None]:
    """Cancel the Spark tasks of a block on Ctrl-C; Spark does not hear of it otherwise."""
    # A session knows tags by thread, and the interrupted one is gone; a context knows them all. A Connect client has only its session.
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
    """Report finished Spark tasks while a job runs; a Connect client cannot."""
    progress(Progress("decode", "reading and decoding"))
    if is_connect(spark):
        yield
        return
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        last = None
        while not over.wait(_POLL_SECONDS):
            for stage in filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())):
                now = Progress("decode", "reading and decoding", stage.numCompletedTasks, stage.numTasks)
                if now != last:
                    progress(now)
                    last = now

    watcher = threading.Thread(target=watch, name="wirelake-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()

"""Follow: a streaming ingest of a folder whose captures grow.

Spark's Structured Streaming asks `sources/follow.py` how far files go and cuts micro-batches; `micro_batch.py` decodes and commits them.
Offset and decoder state are committed with the rows, so rows are written exactly once. Spark's own checkpoint is temporary and thrown
away. A thread refreshes gold tables every few seconds.
"""

from __future__ import annotations

import logging
import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wirelake import protocols, scratch
from wirelake.capture.files.growing import Follower, Offset
from wirelake.errors import ErrorCode, LakeError
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.gold.incremental import index, refresh
from wirelake.lake.jobs.ingest import remove
from wirelake.lake.jobs.micro_batch import MicroBatch, read_micro_batch
from wirelake.lake.session.errors import coded, one_line_if_full, translated
from wirelake.lake.session.start import is_connect
from wirelake.lake.session.tasks import at_most
from wirelake.lake.sources import intake
from wirelake.lake.sources.follow import FORMAT, Begin, FollowSource
from wirelake.lake.sources.paths import captures
from wirelake.lake.store import decode_settings, delta, journal, run_log, settings, snapshot, state_file
from wirelake.lake.store import folder as store_folder
from wirelake.lake.store.commit import prepare, recover
from wirelake.lake.store.compaction import tidy
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.store.journal import Following
from wirelake.lake.store.progress import positions
from wirelake.lake.tables import ledger
from wirelake.lake.tables.catalog import GOLD, SILVER

if TYPE_CHECKING:
    from os import PathLike

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["CONF", "FollowOptions", "FollowResult", "follow", "pause"]

CONF: Final = {
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).parents[1].joinpath("session", "pools.xml").as_uri(),
}
"""Spark settings for a session that follows: refreshing gold tables must not delay micro-batches."""
AT_ONCE: Final = -math.inf
"""In place of `complete_after`: every file is complete now."""
_LOG: Final = logging.getLogger("wirelake.lake")
_POLL_SECONDS: Final = 0.1
_RETRIES: Final = 20
"""Restarts of the stream in a row after a file was removed or changed while it was read."""


class FollowOptions(msgspec.Struct, frozen=True):
    """Options of `follow`."""

    every: float = 1.0
    """Seconds between two micro-batches."""
    max_files: int = 0
    """Files of one micro-batch; 0 is no limit."""
    max_bytes: int = 0
    """Bytes of one micro-batch, about; 0 is no limit."""
    complete_after: float = 30.0
    """Seconds without a write after which a compressed file, or one without a packet, is complete."""
    gold_every: float = 10.0
    """Seconds between two refreshes of the gold tables; 0: only at the end."""
    gold_share: float = 0.25
    """The share of the time that refreshes take at most: after a long one, the next begins later than `gold_every` says."""
    once: bool = False
    """Treat every file as complete, read them, and stop."""


class FollowResult(msgspec.Struct):
    """Figures of a finished `follow`."""

    micro_batches: int = 0
    bytes: int = 0
    messages: int = 0
    quarantined: int = 0
    unrecognised: int = 0
    """Bytes that no protocol recognised: the table `unrecognised` has them by host and port."""
    built: int = 0
    """Refreshes of the gold tables."""
    resumed: bool = False
    """Whether an interrupted batch had to be recovered first."""
    lost: list[str] = []
    """Errors of files that were removed or changed before they were read."""
    unread: list[str] = []
    """Files that end inside a record, which waits for more bytes: one line for each."""


class _Run:
    """One run of `follow`: starts the stream, and handles its micro-batches."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Path,
        folder: Path,
        options: FollowOptions,
        decode: DecodeOptions,
        ports: dict[int, str],
        keys: TrustStore | None,
        keyring: Keyring | None,
        on_commit: Callable[[MicroBatch, float], None],
        observer: str = "",
    ) -> None:
        self._observer = observer
        self._spark, self.lake, self._folder, self._options = spark, lake, folder, options
        self._decode, self._ports, self._keys, self._keyring, self._on_commit = decode, ports, keys, keyring, on_commit
        self._held = ExitStack()
        self._scratch = self._held.enter_context(scratch.temporary("follow"))
        self._at = journal.following(lake) or Following(Offset(), max(1, spark.sparkContext.defaultParallelism))
        self._settled_before = self._at.offset.settled
        self._batch = max(delta.batch(lake, table) or 0 for table in SILVER)
        decode_settings.note(lake, self._batch + 1, decode_settings.fingerprint(decode, ports, keyring, keys))
        self.busy = threading.Lock()
        """Held while a micro-batch is read and committed."""
        self.is_stopping = False
        self.reads = 0
        """Micro-batches that were read and committed, or had nothing to read."""
        self._cut: set[str] = set()
        self._replaced: set[tuple[str, bytes]] = set()
        self.result = FollowResult()

    def start(self) -> StreamingQuery:
        """Start the stream from the offset that the lake has."""
        self._at = journal.following(self.lake) or self._at
        checkpoint = Path(tempfile.mkdtemp(dir=self._scratch))
        begin = checkpoint / "begin.json"
        begin.write_bytes(msgspec.json.encode(Begin(msgspec.structs.replace(self._at.offset, cut=()), positions(self.lake).all)))
        source_options = {
            "folder": str(self._folder),
            "begin": str(begin),
            "complete_after": str(AT_ONCE if self._options.once else self._options.complete_after),
            "buckets": str(self._at.buckets),
            "max_files": str(self._options.max_files),
            "max_bytes": str(self._options.max_bytes),
            "ports": msgspec.json.encode(self._ports).decode(),
            "observer": self._observer,
        }
        self._spark.dataSource.register(FollowSource)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "follow")
        self._checkpoint = checkpoint / "checkpoint"
        stream = self._spark.readStream.format(FORMAT).options(**source_options).load()
        interval = f"{max(0, round(self._options.every * 1000))} milliseconds"
        writer = stream.writeStream.foreachBatch(self._read).option("checkpointLocation", self._checkpoint.as_uri())
        return writer.trigger(processingTime=interval).start()

    def _read(self, transfers: DataFrame, number: int) -> None:
        """Decode and commit one micro-batch; Spark calls this in the driver."""
        with coded(), self.busy:
            if self.is_stopping:
                return
            # Spark writes the end offset into its checkpoint first: a version, its own metadata, then one line for each source.
            line = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
            end = msgspec.json.decode(line, type=Offset)
            self._tell(end)
            secrets = (self._keys, self._keyring)
            committed = read_micro_batch(transfers, self.lake, self._batch + 1, self._at, end, self._decode, self._ports, *secrets)
            self.reads += 1
            if committed is None:
                self._at = msgspec.structs.replace(self._at, offset=end)
                return
            micro_batch, self._at = committed
            self._batch = micro_batch.batch
            self.result.micro_batches += 1
            self.result.bytes += micro_batch.bytes
            self.result.messages += micro_batch.messages
            self.result.quarantined += micro_batch.quarantined
            self.result.unrecognised += micro_batch.unrecognised
            snapshot.publish(self.lake, SILVER)
            self._on_commit(micro_batch, time.time())

    def _tell(self, end: Offset) -> None:
        """Log which files were truncated or overwritten: each once."""
        before = {one.path: one for one in self._at.offset.files}
        ids = {one.id for one in end.files}
        for path in sorted(set(end.cut) - self._cut):
            _LOG.warning("%s: waits: it is shorter than what was read of it, with the same bytes so far", path)
        self._cut = set(end.cut)
        for one in end.files:
            old = before.get(one.path, one)
            if old.at and old.id not in ids and (one.path, one.id) not in self._replaced:
                self._replaced.add((one.path, one.id))
                _LOG.warning("%s: has other bytes than the %d that were read of it: it is read as another file", one.path, old.at)

    def record(self, run: run_log.Run) -> None:
        """Write the figures into the row of the table `runs`."""
        run.bytes, run.quarantined = self.result.bytes, self.result.quarantined
        if self.result.micro_batches:
            run.added(self._batch, {"messages": self.result.messages, "quarantine": self.result.quarantined})

    def has_more(self) -> bool:
        """Whether there is anything to read, or a record that waits for more bytes."""
        return Follower(positions(self.lake).all, settle=AT_ONCE).has_more(self._at.offset, captures(self._folder))

    def unread(self) -> list[str]:
        """One line for each file that ends inside a record."""
        waiting = Follower().unread(self._at.offset)
        shorter = self._cut - {path for path, _, _ in waiting}
        return [
            *(
                f"{path}: {size - at:,} bytes at byte {at:,} are no complete record yet"
                if size > at
                else f"{path}: {at:,} bytes were read of it, and it has {size:,} now"
                for path, at, size in waiting
            ),
            *(f"{path}: it is shorter than what was read of it" for path in sorted(shorter)),
        ]

    def lost(self) -> list[str]:
        """Errors of files that were not read since."""
        read = [f"{one.path}: " for one in self._at.offset.files if Path(one.path).exists() and Path(one.path).stat().st_size == one.at]
        return [text for text in self.result.lost if not text.startswith(tuple(read))]

    @property
    def is_complete(self) -> bool:
        """Whether everything was read since the start, and nothing waits for more bytes."""
        return self._at.offset.settled > self._settled_before

    def close(self) -> None:
        """Remove Spark's checkpoint."""
        self._held.close()


def _refuse_connect(spark: SparkSession) -> None:
    if is_connect(spark):
        raise LakeError("a folder cannot be followed through Spark Connect: use another master, or run `ingest` from time to time")


def follow(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    folder: str | PathLike[str],
    options: FollowOptions | None = None,
    *,
    decode: DecodeOptions | None = None,
    ports: Mapping[int, str] | None = None,
    late_seconds: float | None = None,
    trust: str | None = None,
    freshness: bool | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    observer: str = "",
    stop: threading.Event | None = None,
    on_commit: Callable[[MicroBatch, float], None] = lambda _micro_batch, _now: None,
    on_build: Callable[[str], None] = lambda _: None,
) -> FollowResult:
    """Read captures of a folder as they grow, until `stop` is set, or once.

    The lake is created if there is none.

    `spark` is a session, or a function that starts one; see `CONF` for its settings. `on_commit` is called with every committed micro-batch
    and the time, `on_build` with the name of every gold table that is refreshed at the end. The other parameters are those of `ingest`.
    """
    root, watched = lake_folder(lake), Path(folder).absolute()
    if not watched.is_dir():
        raise LakeError(f"{folder}: only a folder on this machine can be followed")
    if not callable(spark):
        _refuse_connect(spark)
    chosen, over = options or FollowOptions(), stop or threading.Event()
    store_folder.claim(root)
    journal.initialise(root)
    with journal.locked(root), one_line_if_full(root), run_log.recorded(root, "follow") as log:
        log.inputs = [str(watched)]
        held = settings.hold(root, settings.Wanted(late_seconds, trust, freshness))
        prepare(root)
        resumed = recover(root)
        with translated(root):
            grown = intake.continued(root, captures(watched))
        if grown.removal:
            remove(root, grown)
        snapshot.publish(root, SILVER)
        if (before := journal.following(root)) is not None:
            state_file.check(root, before.memories.values())
        session: SparkSession = spark() if callable(spark) else spark
        _refuse_connect(session)
        index.extend(session, root, delta.batch(root, ledger.TABLE) or 0)  # micro-batches only add to an index that has all before
        judging = held.keys(keys)
        known_ports = dict(ports or protocols.ports())
        run = _Run(session, root, watched, chosen, decode or DecodeOptions(), known_ports, judging, keyring, on_commit, observer)
        run.result.resumed = resumed
        gold = _GoldRefresher(session, root, None if keys is None or keys.only_opens else keys, chosen)
        try:
            with log.stage("follow"):
                _watch(run, gold, over, chosen)
        finally:
            gold.close()
            run.result.unread, run.result.lost = run.unread(), run.lost()
            run.close()
            run.record(log)
        with log.stage("build"):
            log.built = gold.build(on_build)
        run.result.built = gold.built
    return run.result


def _watch(run: _Run, gold: _GoldRefresher, over: threading.Event, options: FollowOptions) -> None:
    """Keep the stream running until `over` is set or something fails; the current micro-batch is finished."""
    if over.is_set() or (options.once and not run.has_more()):
        return
    failures, batches_before = 0, 0
    query = run.start()
    try:
        while not over.wait(_POLL_SECONDS):
            gold.raise_failure()
            if not query.isActive:
                failures = failures + 1 if run.result.micro_batches == batches_before else 1
                batches_before = run.result.micro_batches
                _raise_failure(run, query, failures)
                query = run.start()
            elif options.once and run.is_complete:
                break
        _finish(run, query)
    finally:
        query.stop()  # a micro-batch that is under way now is rolled back


def _finish(run: _Run, query: StreamingQuery) -> None:
    """Wait for the end of the micro-batch that is being planned, read or committed; none follows it."""
    before = run.reads
    while query.isActive and run.reads == before and (query.lastProgress is None or query.status["isTriggerActive"]):
        time.sleep(_POLL_SECONDS)
    with run.busy:
        run.is_stopping = True
    if not query.isActive:
        _raise_failure(run, query, 0)


def _raise_failure(run: _Run, query: StreamingQuery, failures: int) -> None:
    """Raise the error of a failed stream, unless a source changed while it was read."""
    try:
        with translated(run.lake):
            if failure := query.exception():
                raise failure
    except LakeError as error:
        if error.code is not ErrorCode.SOURCE_CHANGED or failures > _RETRIES:
            raise
        run.result.lost.append(str(error))
        return
    raise LakeError(f"{run.lake}: Spark ended the stream without an error: run the command again to continue")


def pause(options: FollowOptions, taken: float) -> float:
    """Return the seconds until the next refresh of gold tables begins, after one that took so many."""
    return max(options.gold_every, taken * (1 / options.gold_share - 1))


class _GoldRefresher:
    """Refreshes gold tables in a thread beside the stream.

    Spark does not interrupt a task. So a refresh takes half of the slots at most, and micro-batches find a free one.
    """

    def __init__(self, spark: SparkSession, lake: Path, keys: TrustStore | None, options: FollowOptions) -> None:
        self._spark, self._lake, self._keys, self._options = spark, lake, keys, options
        self._slots = max(1, spark.sparkContext.defaultParallelism // 2)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.built = 0
        self._thread: threading.Thread | None = None
        if options.gold_every > 0:
            self._thread = InheritableThread(target=self._keep, name="wirelake-gold", daemon=True)
            self._thread.start()

    def _keep(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "gold")
        taken = 0.0
        while not self._over.wait(pause(self._options, taken)):
            began = time.monotonic()
            try:
                with at_most(self._slots):
                    self._build(None, lambda _: None)
                tidy(self._lake, self._newest())
            except BaseException as error:
                self._failure = error
                return
            taken = time.monotonic() - began

    def _build(self, keys: TrustStore | None, on_build: Callable[[str], None]) -> list[str]:
        built = refresh.refresh(self._spark, self._lake, keys, on_build)
        if built:
            snapshot.publish(self._lake, GOLD)
            self.built += 1
        return built

    def _newest(self) -> int:
        """The newest batch that all gold tables include."""
        return min(delta.batch(self._lake, table) or 0 for table in GOLD)

    def raise_failure(self) -> None:
        """Raise the error that ended the thread, if there was one."""
        if self._failure is not None:
            raise LakeError(f"{self._lake}: gold tables cannot be built: {self._failure}") from self._failure

    def close(self) -> None:
        """Stop the thread; a refresh that is under way is finished."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def build(self, on_build: Callable[[str], None]) -> list[str]:
        """Refresh for the last time, with the keys, and return the names of the refreshed tables."""
        self.raise_failure()
        built = self._build(self._keys, on_build)
        tidy(self._lake, self._newest(), always=True)
        return built

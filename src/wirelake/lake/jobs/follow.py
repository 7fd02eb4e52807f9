"""Following: a folder whose captures grow, read into a lake as they do.

Spark's Structured Streaming asks `follow_source.py` how far files go, and hands over what lies between; `micro_batch.py` decodes and
publishes it. What following goes on with is in the lake, published with the rows: Spark's own record of the stream is thrown away. Gold
tables follow
in a thread of their own, every few seconds.

It refuses to know formats, protocols and tables.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake import protocols
from wirelake.capture.files.growing import Follower, Offset
from wirelake.errors import LakeError
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.gold.incremental import refresh
from wirelake.lake.jobs.ingest import remove
from wirelake.lake.jobs.micro_batch import MicroBatch, read_micro_batch
from wirelake.lake.session.start import is_connect
from wirelake.lake.sources import intake
from wirelake.lake.sources.failures import plainly
from wirelake.lake.sources.paths import captures
from wirelake.lake.store import decode_settings, delta, journal, run_log, settings, snapshot, state_file
from wirelake.lake.store import folder as store_folder
from wirelake.lake.store.commit import prepare, recover
from wirelake.lake.store.compaction import tidy
from wirelake.lake.store.folder import lake_folder
from wirelake.lake.store.journal import Following
from wirelake.lake.store.progress import positions
from wirelake.lake.tables.catalog import GOLD, SILVER

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["CONF", "FollowOptions", "FollowResult", "follow"]

CONF: Final = {
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).parents[1].joinpath("session", "pools.xml").as_uri(),
}
"""What a session for following is started with: building gold must not hold up what is followed."""
AT_ONCE: Final = -math.inf
"""In place of seconds to settle: every file ends where it ends now."""
_POLL_SECONDS: Final = 0.1
_LOST: Final = re.compile(r"cannot read|is shorter than|is not what it was")
"""What a task says when a file went away, or was cut, after it was looked at."""
_RETRIES: Final = 20
"""Times in a row that following goes on after that, from what is there now."""


class FollowOptions(msgspec.Struct, frozen=True):
    """How a folder is followed."""

    every: float = 1.0
    """Seconds between two looks at the folder."""
    max_files: int = 0
    """Files that are read together at most; 0 is no limit."""
    max_bytes: int = 0
    """Bytes that are read together, about, at most; 0 is no limit."""
    settle: float = 30.0
    """Seconds without a change after which a packed file, or one without a packet, is read."""
    gold_every: float = 10.0
    """Seconds between two times that gold tables are brought up to date; 0: not before the end."""
    once: bool = False
    """Read what is there, as if nothing more came, and stop."""


class FollowResult(msgspec.Struct):
    """What following did."""

    micro_batches: int = 0
    bytes: int = 0
    messages: int = 0
    quarantined: int = 0
    unrecognised: int = 0
    """Bytes that no protocol recognised: the table `unrecognised` has them by host and port."""
    built: int = 0
    """Times that gold tables were brought up to date."""
    resumed: bool = False
    """Whether a portion or batch had to be finished first that was interrupted before."""
    lost: list[str] = []
    """What was said of files that went away before they were read."""
    unread: list[str] = []
    """Files whose last bytes wait for more: what is known of each."""


class _Run:
    """One time that a folder is followed."""

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
        tell: Callable[[MicroBatch, float], None],
    ) -> None:
        self._spark, self.lake, self._folder, self._options = spark, lake, folder, options
        self._decode, self._ports, self._keys, self._keyring, self._tell = decode, ports, keys, keyring, tell
        self._scratch = Path(tempfile.mkdtemp(prefix="wirelake-follow-"))
        self._at = journal.following(lake) or Following(Offset(), max(1, spark.sparkContext.defaultParallelism))
        self._began = self._at.offset.settled
        self._batch = max(delta.batch(lake, table) or 0 for table in SILVER)
        decode_settings.note(lake, self._batch + 1, decode_settings.fingerprint(decode, ports, keyring))
        self.busy = threading.Lock()
        """Held while a portion is read."""
        self.is_stopping = False
        self.result = FollowResult()

    def start(self) -> StreamingQuery:
        """Begin, or begin again from what the lake has."""
        from wirelake.lake.sources.follow import FORMAT, Begin, FollowSource  # noqa: PLC0415 - only Spark work pays for importing Spark

        self._at = journal.following(self.lake) or self._at
        checkpoint = Path(tempfile.mkdtemp(dir=self._scratch))
        begin = checkpoint / "begin.json"
        begin.write_bytes(msgspec.json.encode(Begin(self._at.offset, positions(self.lake).all)))
        told = {
            "folder": str(self._folder),
            "begin": str(begin),
            "settle": str(AT_ONCE if self._options.once else self._options.settle),
            "buckets": str(self._at.buckets),
            "max_files": str(self._options.max_files),
            "max_bytes": str(self._options.max_bytes),
            "ports": msgspec.json.encode(self._ports).decode(),
        }
        self._spark.dataSource.register(FollowSource)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "follow")
        self._checkpoint = checkpoint / "checkpoint"
        stream = self._spark.readStream.format(FORMAT).options(**told).load()
        every = f"{max(0, round(self._options.every * 1000))} milliseconds"
        writing = stream.writeStream.foreachBatch(self._read).option("checkpointLocation", self._checkpoint.as_uri())
        return writing.trigger(processingTime=every).start()

    def _read(self, shipments: DataFrame, number: int) -> None:
        with self.busy:
            if self.is_stopping:
                return
            # Spark wrote down the offset before it handed over what leads to it: a version, its own notes, then one line for each source.
            told = (self._checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
            end = msgspec.json.decode(told, type=Offset)
            secrets = (self._keys, self._keyring)
            found = read_micro_batch(shipments, self.lake, self._batch + 1, self._at, end, self._decode, self._ports, *secrets)
            if found is None:
                self._at = msgspec.structs.replace(self._at, offset=end)
                return
            micro_batch, self._at = found
            self._batch = micro_batch.batch
            self.result.micro_batches += 1
            self.result.bytes += micro_batch.bytes
            self.result.messages += micro_batch.messages
            self.result.quarantined += micro_batch.quarantined
            self.result.unrecognised += micro_batch.unrecognised
            snapshot.publish(self.lake, SILVER)
            self._tell(micro_batch, time.time())

    def write_down(self, run: run_log.Run) -> None:
        """What was done, for the table of runs."""
        run.bytes, run.quarantined = self.result.bytes, self.result.quarantined
        if self.result.micro_batches:
            run.added(self._batch, {"messages": self.result.messages, "quarantine": self.result.quarantined})

    def has_more(self) -> bool:
        """Whether there is anything to read, or anything that waits, if nothing more came."""
        return Follower(positions(self.lake).all, settle=AT_ONCE).has_more(self._at.offset, captures(self._folder))

    def unread(self) -> list[str]:
        """What is known of each file whose last bytes wait for more."""
        waiting = Follower().unread(self._at.offset)
        return [f"{path}: {size - at:,} bytes at byte {at:,} are no whole record yet" for path, at, size in waiting]

    @property
    def is_settled(self) -> bool:
        """Whether everything was read since it began, and nothing waits."""
        return self._at.offset.settled > self._began

    def close(self) -> None:
        """Throw away what Spark kept."""
        shutil.rmtree(self._scratch, ignore_errors=True)


def _refuse_connect(spark: SparkSession) -> None:
    if is_connect(spark):
        raise LakeError("a folder cannot be followed through Spark Connect: name another master, or ingest now and then")


def follow(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    folder: str | PathLike[str],
    options: FollowOptions | None = None,
    *,
    decode: DecodeOptions | None = None,
    ports: Mapping[int, str] | None = None,
    late_seconds: float | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    stop: threading.Event | None = None,
    tell: Callable[[MicroBatch, float], None] = lambda _micro_batch, _now: None,
    building: Callable[[str], None] = lambda _: None,
) -> FollowResult:
    """Read captures of a folder as they grow, until `stop` is set, or once; the lake is made if there is none.

    `spark` is a session, or a function that starts one.
    `tell` hears of every portion when it is published, and at what time; `building` of every gold table that is built at the end.
    """
    root, watched = lake_folder(lake), Path(folder).absolute()
    if not watched.is_dir():
        raise LakeError(f"{folder}: only a folder on this machine can be followed")
    if not callable(spark):
        _refuse_connect(spark)
    chosen, over = options or FollowOptions(), stop or threading.Event()
    store_folder.claim(root)
    journal.initialise(root)
    with journal.locked(root), run_log.recorded(root, "follow") as written:
        written.inputs = [str(watched)]
        settings.hold(root, late_seconds)
        prepare(root)
        resumed = recover(root)
        with plainly(root):
            grown = intake.continued(root, captures(watched))
        if grown.removal:
            remove(root, grown)
        snapshot.publish(root, SILVER)
        if (before := journal.following(root)) is not None:
            state_file.check(root, before.memories.values())
        session: SparkSession = spark() if callable(spark) else spark
        _refuse_connect(session)
        run = _Run(session, root, watched, chosen, decode or DecodeOptions(), dict(ports or protocols.ports()), keys, keyring, tell)
        run.result.resumed = resumed
        golden = _Gold(session, root, keys, chosen.gold_every)
        try:
            with written.stage("follow"):
                _watch(run, golden, over, chosen)
        finally:
            golden.close()
            run.result.unread = run.unread()
            run.close()
            run.write_down(written)
        with written.stage("build"):
            written.built = golden.build(building)
        run.result.built = golden.built
    return run.result


def _watch(run: _Run, golden: _Gold, over: threading.Event, options: FollowOptions) -> None:
    """Go on until somebody says that it is over, or something fails; what is under way when it is over is finished."""
    if options.once and not run.has_more():
        return
    failures, seen = 0, 0
    query = run.start()
    try:
        while not over.wait(_POLL_SECONDS):
            golden.raise_failure()
            if not query.isActive:
                failures = failures + 1 if run.result.micro_batches == seen else 1
                seen = run.result.micro_batches
                query = _again(run, query, failures)
            elif options.once and run.is_settled:
                break
        with run.busy:
            run.is_stopping = True
    finally:
        query.stop()  # a portion that is under way now is given up whole


def _again(run: _Run, query: StreamingQuery, failures: int) -> StreamingQuery:
    """Following broke off: go on if a file went away under it, else say why."""
    try:
        with plainly(run.lake):
            if failure := query.exception():
                raise failure
    except LakeError as error:
        if not _LOST.search(str(error)) or failures > _RETRIES:
            raise
        run.result.lost.append(str(error))
        return run.start()
    raise LakeError(f"{run.lake}: Spark stopped following by itself")


class _Gold:
    """Keeps gold tables up to date beside what is followed."""

    def __init__(self, spark: SparkSession, lake: Path, keys: TrustStore | None, every: float) -> None:
        self._spark, self._lake, self._keys, self._every = spark, lake, keys, every
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.built = 0
        self._thread: threading.Thread | None = None
        if every > 0:
            from pyspark import InheritableThread  # noqa: PLC0415 - only Spark work pays for importing Spark

            self._thread = InheritableThread(target=self._keep, name="wirelake-gold", daemon=True)
            self._thread.start()

    def _keep(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "gold")
        while not self._over.wait(self._every):
            try:
                self._build(None, lambda _: None)
                tidy(self._lake, self._newest())
            except BaseException as error:
                self._failure = error
                return

    def _build(self, keys: TrustStore | None, tell: Callable[[str], None]) -> list[str]:
        built = refresh.refresh(self._spark, self._lake, keys, tell)
        if built:
            snapshot.publish(self._lake, GOLD)
            self.built += 1
        return built

    def _newest(self) -> int:
        """The newest batch that all gold tables were built from."""
        return min(delta.batch(self._lake, table) or 0 for table in GOLD)

    def raise_failure(self) -> None:
        """Say what went wrong in the thread."""
        if self._failure is not None:
            raise LakeError(f"{self._lake}: gold tables cannot be built: {self._failure}") from self._failure

    def close(self) -> None:
        """No more from now on; what is under way is finished."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def build(self, tell: Callable[[str], None]) -> list[str]:
        """The last time: with keys, what is judged by them is judged anew; says which tables were built."""
        self.raise_failure()
        built = self._build(self._keys, tell)
        tidy(self._lake, self._newest(), always=True)
        return built

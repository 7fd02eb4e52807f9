"""The run log: one row in `runs` for every job, written once, however the job ends.

What is known at the start is recorded beside the tables until the row is written. If a run is killed, the next one writes its row.
"""

from __future__ import annotations

import logging
import platform
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from wirelake.errors import LakeError
from wirelake.lake.store import delta, durable, journal, snapshot
from wirelake.lake.store.delta import File
from wirelake.lake.tables import runs
from wirelake.masking import mask
from wirelake.version import __version__

__all__ = ["Run", "recorded"]

_NAME: Final = "run.json"
_LOG: Final = logging.getLogger("wirelake.lake")
_AT: Final = re.compile(r"at byte (\d+)")
"""How errors name an offset in a file."""


class Run(msgspec.Struct):
    """A run in progress. The job fills it in."""

    run: int
    kind: str
    started: datetime
    batch: int | None = None
    inputs: list[str] = []
    files: int = 0
    bytes: int = 0
    skipped: int = 0
    quarantined: int = 0
    rows: dict[str, int] = {}
    built: list[str] = []
    stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure one stage of the run, and log one line."""
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.stages[name] = self.stages.get(name, 0.0) + took
            _LOG.info("run %d: %s took %.1f s", self.run, name, took)

    def added(self, batch: int, rows: Mapping[str, int]) -> None:
        """Note that a batch was committed."""
        self.batch = batch
        for name, count in rows.items():
            self.rows[name] = self.rows.get(name, 0) + count


@contextmanager
def recorded(lake: Path, kind: str) -> Iterator[Run]:
    """Run a job on a lake that is locked for writing, and record it in `runs`."""
    _finish_killed(lake)
    run = Run(1 + (delta.batch(lake, runs.TABLE) or 0), kind, datetime.now(UTC))
    journal.write(lake, _NAME, msgspec.json.encode(run))
    began = time.monotonic()
    _LOG.info("run %d: %s", run.run, kind)
    try:
        yield run
    except BaseException as error:
        _write(lake, run, "failed", time.monotonic() - began, error)
        raise
    _write(lake, run, "done", time.monotonic() - began)


def _finish_killed(lake: Path) -> None:
    """Write the row of a run that was killed, unless it did so itself."""
    content = journal.read(lake, _NAME)
    if content is None:
        return
    try:
        left = msgspec.json.decode(content, type=Run)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_NAME} cannot be read: {error}") from error
    _write(lake, left, "died", None)


def _write(lake: Path, run: Run, outcome: str, seconds: float | None, error: BaseException | None = None) -> None:
    """Add the row.

    Idempotent: a number that is there already belongs to a run that died right after its commit.
    """
    known = msgspec.structs.asdict(run)
    row: dict[str, Any] = known | {
        "inputs": [mask(path) for path in run.inputs],
        "outcome": outcome,
        "ended": None if seconds is None else datetime.now(UTC),
        "seconds": seconds,
        "rows": [{"table": name, "rows": count} for name, count in run.rows.items()],
        "stages": [{"stage": name, "seconds": took} for name, took in run.stages.items()],
        "wirelake": __version__,
        "pyspark": _installed("pyspark"),
        "python": platform.python_version(),
        "lake_format": journal.FORMAT,
        **_blame(run, error),
    }
    delta.create(lake, runs.TABLE)
    path = delta.folder(lake, runs.TABLE) / f"part-{run.run:08d}-{uuid.uuid4().hex}.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=runs.TABLE.schema), path)
    durable.sync([path])
    if not delta.append(lake, runs.TABLE, [File(path.name, path.stat().st_size, 1)], run.run):
        path.unlink()
    snapshot.publish(lake, [runs.TABLE])
    journal.remove(lake, _NAME)
    _LOG.info("run %d: %s%s", run.run, outcome, "" if seconds is None else f" after {seconds:.1f} s")


def _blame(run: Run, error: BaseException | None) -> dict[str, Any]:
    """Return the error columns: text, file and offset, if the error names them."""
    if error is None:
        return {}
    text = mask(" ".join(str(error).split())) or type(error).__name__
    source = next((path for path in map(mask, sorted(run.inputs, key=len, reverse=True)) if path in text), None)
    place = _AT.search(text)
    return {"error": text, "error_source": source, "error_offset": int(place[1]) if source and place else None}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

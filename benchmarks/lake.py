"""What a lake costs: recording to every table, by stage and by table; the same decoding done in other ways; and the cost by size.

Three tables are printed.

- *Ways*: messages a CPU-second of the decoding alone: ours (recording to committed silver tables), Spark copying the `messages` table
  that came out, and what most people would write: a Python UDF that unpacks one frame with `struct`, and `mapInArrow` with a `struct`
  loop over runs of frames. The two rivals are given more than they would have: their frames lie in Parquet already, cut and in order,
  and they write seven columns, check nothing and account for nothing.
- *Stages*: one ingest into an empty lake, each stage and each gold table by wall clock and CPU.
- *Sizes*: the same for more and more messages.

CPU is that of the virtual machine and all Python processes below. Everything is warmed up by one small turn first, which is not counted.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from figures import show, verdict
from ingest import CACHE, FILES, RUN, SIZE, copy, cpu, frames, record, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wirelake.lake.jobs.ingest import IngestResult, Progress

WARM_UP = 20_000
HEADER = ">IBBH"
REQUEST = ">B3sq"
DECODED = pa.schema(
    [
        ("size", pa.int64()),
        ("type", pa.int16()),
        ("flags", pa.int16()),
        ("extension", pa.int16()),
        ("request", pa.bool_()),
        ("request_id", pa.int64()),
        ("body", pa.binary()),
    ]
)


# The lake.


class Stages:
    """Takes the time whenever an ingest says that it does something else."""

    def __init__(self) -> None:
        self.spent: dict[str, tuple[float, float]] = {}
        self._doing = "start"
        self._since = (time.perf_counter(), cpu())

    def __call__(self, progress: Progress) -> None:
        name = progress.text.removeprefix("building ") if progress.stage == "build" else progress.stage
        if name != self._doing:
            self.turn(name)

    def turn(self, name: str) -> None:
        """What was being done is over."""
        now = (time.perf_counter(), cpu())
        wall, busy = self.spent.get(self._doing, (0.0, 0.0))
        self.spent[self._doing] = (wall + now[0] - self._since[0], busy + now[1] - self._since[1])
        self._doing, self._since = name, now


def fill(spark: SparkSession, lake: Path, paths: list[Path]) -> tuple[IngestResult, dict[str, tuple[float, float]]]:
    """One ingest, and what each of its stages took."""
    from wirelake.lake.jobs.ingest import ingest

    stages = Stages()
    result = ingest(spark, lake, paths, progress=stages)
    stages.turn("end")
    return result, stages.spent


# The rivals.


def prepare(folder: Path, count: int) -> tuple[Path, Path]:
    """Frames one a row, and runs of frames: what the rivals are given."""
    single, runs = folder / "frames.parquet", folder / "runs.parquet"
    made = b"".join(frames(1, count // 2, request, False).tobytes() for request in (True, False))
    for path, size in ((single, SIZE), (runs, RUN * SIZE)):
        rows = pa.array([made[at : at + size] for at in range(0, len(made), size)], pa.binary())
        pq.write_table(pa.table({"data": rows}), path, row_group_size=len(rows) // 8 + 1)
    return single, runs


def by_udf(single: DataFrame) -> DataFrame:
    """One frame at a time through a Python function."""
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    @sql.udf(returnType=from_arrow_schema(DECODED))
    def unpack(frame: bytes) -> tuple[object, ...]:
        size, kind, flags, _ = struct.unpack_from(HEADER, frame, 0)
        block, extension, _, _ = struct.unpack_from(HEADER, frame, 8)
        asks, _, identifier = struct.unpack_from(REQUEST, frame, 16)
        return size, kind, flags, extension, bool(asks >> 7), identifier, bytes(frame[8 + block :])

    return single.select(unpack("data").alias("one")).select("one.*")


def by_map(runs: DataFrame) -> DataFrame:
    """Arrow batches of runs through a Python loop."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            for data in batch.column(0).to_pylist():
                at = 0
                while at < len(data):
                    size, kind, flags, _ = struct.unpack_from(HEADER, data, at)
                    block, extension, _, _ = struct.unpack_from(HEADER, data, at + 8)
                    asks, _, identifier = struct.unpack_from(REQUEST, data, at + 16)
                    rows.append((size, kind, flags, extension, bool(asks >> 7), identifier, data[at + 8 + block : at + size]))
                    at += size
            columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), DECODED, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=DECODED)

    return runs.mapInArrow(unpack, from_arrow_schema(DECODED))


# What is printed.


def compare_ways(spark: SparkSession, paths: list[Path], count: int) -> None:
    """The same frames decoded in four ways."""
    from ingest import ingest as silver

    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        folder = Path(scratch)
        single, runs = prepare(folder, count)
        turn = iter(range(100))

        def written(rows: DataFrame) -> None:
            rows.write.parquet((folder / f"out-{next(turn)}").as_uri(), compression="zstd")

        ways: dict[str, Callable[[], object]] = {
            "recording to committed silver tables": lambda: silver(spark, folder / f"lake-{next(turn)}", paths),
            "Spark copies messages, Parquet to Parquet": lambda: copy(spark, folder / "lake-0", folder / f"out-{next(turn)}"),
            "mapInArrow with a struct loop, Parquet to Parquet": lambda: written(by_map(spark.read.parquet(runs.as_uri()))),
            "a Python UDF with struct, Parquet to Parquet": lambda: written(by_udf(spark.read.parquet(single.as_uri()))),
        }
        found = {}
        for name, work in ways.items():
            print(f"{name} …", file=sys.stderr)
            found[name] = min((timed(work) for _ in range(2)), key=lambda one: one[1])
    ours = found[next(iter(found))][1]
    lines = [
        [name, f"{wall:.1f}", f"{busy:.1f}", f"{count / busy:,.0f}", f"{1e9 * busy / count:,.0f}", f"{busy / ours:.2f} x"]
        for name, (wall, busy) in found.items()
    ]
    columns = ["way", "wall, s", "CPU, s", "messages/CPU-s", "CPU ns/message", "takes"]
    show(f"{count:,} EMP messages of {SIZE} bytes, best of 2", columns, lines)
    for name, (_, busy) in list(found.items())[1:]:
        verdict(f"cheaper than: {name}", ours <= busy, f"{busy / ours:.2f} x")


def show_stages(count: int, spent: dict[str, tuple[float, float]]) -> None:
    """Where the time of one ingest went."""
    whole = sum(busy for _, busy in spent.values())
    lines = [
        [name, f"{wall:.1f}", f"{busy:.1f}", f"{100 * busy / whole:.0f} %", f"{count / busy:,.0f}" if busy else "-"]
        for name, (wall, busy) in [*spent.items(), ("all", (sum(wall for wall, _ in spent.values()), whole))]
    ]
    show(f"One ingest of {count:,} messages, by stage", ["stage", "wall, s", "CPU, s", "share", "messages/CPU-s"], lines)


def recordings(count: int) -> list[Path]:
    """So many messages, in files of the same size."""
    each = count // FILES
    return [record(CACHE / f"text-{each}-{number}.pcapng", each) for number in range(FILES)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--messages", type=int, default=10_000_000, help="for the ways")
    options.add_argument("--sizes", default="100000,1000000,10000000", help="messages in each lake")
    options.add_argument("--master", default="local[*]")
    chosen = options.parse_args()

    from wirelake.lake.session.start import spark_session

    CACHE.mkdir(exist_ok=True)
    spark = spark_session(chosen.master)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        fill(spark, Path(scratch) / "lake", recordings(WARM_UP))
    if chosen.messages:
        compare_ways(spark, recordings(chosen.messages), chosen.messages)
    lines = []
    for size in map(int, filter(None, chosen.sizes.split(","))):
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            print(f"{size:,} messages …", file=sys.stderr)
            result, spent = fill(spark, Path(scratch) / "lake", recordings(size))
        show_stages(result.messages, spent)
        silver = sum(spent[name][1] for name in ("plan", "decode") if name in spent)
        whole, wall = sum(busy for _, busy in spent.values()), sum(wall for wall, _ in spent.values())
        each = 1e6 / result.messages
        lines.append(
            [
                f"{result.messages:,}",
                f"{wall:.1f}",
                f"{whole:.1f}",
                f"{silver * each:.2f}",
                f"{(whole - silver) * each:.2f}",
                f"{whole * each:.2f}",
            ]
        )
    if lines:
        columns = ["messages", "wall, s", "CPU, s", "silver, CPU µs each", "the rest, CPU µs each", "all, CPU µs each"]
        show("Cost by size: one ingest into an empty lake, all tables", columns, lines)
    spark.stop()


if __name__ == "__main__":
    main()

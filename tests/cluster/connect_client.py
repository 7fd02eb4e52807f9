"""A client of a Spark Connect server: `python connect_client.py ADDRESS CAPTURES LAKE` prints how much it read.

It also prints in how many byte ranges tasks found the same records as this process does."""

from __future__ import annotations

import sys
from pathlib import Path

from wirelake.capture.files.identity import identify
from wirelake.capture.files.split import divide
from wirelake.lake import build_table, decode_table, inputs_of, read_messages, read_packets, read_table, spark_session
from wirelake.lake.sources.plan import Cut, guess_here, guess_in_tasks


def main() -> None:
    """Read, build, read back."""
    address, captures, lake = sys.argv[1:]
    spark = spark_session(address)
    recording = Path(captures, "cases.pcapng")
    tables = {name: decode_table(spark, name, recording) for name in inputs_of("exchanges")}
    print(read_messages(spark, recording).count(), read_packets(spark, recording).count(), build_table(spark, "exchanges", tables).count())
    print(read_table(spark, lake, "sessions").count())
    source = identify(recording)
    cuts = [Cut(source, byte_range) for byte_range in divide(source, source.size // 3)]
    in_tasks = guess_in_tasks(spark, cuts, plain=False)
    print(sum(ours == theirs for ours, theirs in zip(map(guess_here, cuts), in_tasks, strict=True)))


if __name__ == "__main__":
    main()

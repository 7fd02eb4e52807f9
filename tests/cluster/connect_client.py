"""A client of a Spark Connect server: `python connect_client.py ADDRESS CAPTURES LAKE` prints how much it read."""

from __future__ import annotations

import sys
from pathlib import Path

from wirelake.lake import build_table, decode_table, inputs_of, read_messages, read_packets, read_table, spark_session


def main() -> None:
    """Read, build, read back."""
    address, captures, lake = sys.argv[1:]
    spark = spark_session(address)
    recording = Path(captures, "cases.pcapng")
    tables = {name: decode_table(spark, name, recording) for name in inputs_of("exchanges")}
    print(read_messages(spark, recording).count(), read_packets(spark, recording).count(), build_table(spark, "exchanges", tables).count())
    print(read_table(spark, lake, "sessions").count())


if __name__ == "__main__":
    main()

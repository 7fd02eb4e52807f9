"""Relink: what became of each message? A link delivers some and rolls back others; `exchanges` of a small lake tell which."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import Recorder, relink
from wirelake.lake import ingest, read_table, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MONEY = relink.Endpoint("money", 4, 4, connector_transactions=True)


async def take(link: relink.Link) -> None:
    """Consume whatever comes."""
    async for _ in link:
        pass


async def talk(path: Path) -> None:
    """Two transactions: one is committed, one is not."""
    with Recorder(path, protocol="relink") as recorder:
        async with (
            relink.serve("tcp://127.0.0.1:0", {MONEY: take}) as listener,
            relink.connect(listener.address, MONEY, options=relink.Options(recorder=recorder)) as link,
        ):
            channel = link.channel(b"bank")
            async with channel.transaction() as transfer:
                await transfer.post(b"debit 5")
                await transfer.post(b"credit 5")
            with contextlib.suppress(ArithmeticError):
                async with channel.transaction() as transfer:
                    await transfer.post(b"debit 1000")
                    raise ArithmeticError("there is not that much")


def main(spark: SparkSession) -> None:
    """Record, ingest, ask."""
    with tempfile.TemporaryDirectory() as folder:
        recording, lake = Path(folder, "relink.pcapng"), Path(folder, "lake")
        asyncio.run(talk(recording))
        ingest(spark, lake, [recording])
        exchanges = read_table(spark, lake, "exchanges")
        for row in exchanges.groupBy("outcome").count().orderBy("outcome").collect():
            print(row["outcome"], row["count"])


if __name__ == "__main__":
    main(spark_session())

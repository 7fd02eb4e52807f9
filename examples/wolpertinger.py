"""wolpertinger: what came of every call? Some are answered, some fail, and of void methods only the delivery is confirmed."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import Recorder, wolpertinger
from wirelake.errors import RequestFailed
from wirelake.lake import ingest, read_table, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stock:
    """A component: methods that anybody may call."""

    @wolpertinger.method(trust=0)
    def Price(self, item: str) -> int:  # noqa: N802 - as it is called on the wire
        """What something costs."""
        if item == "unicorn":
            raise RequestFailed(502)
        return len(item)

    @wolpertinger.method(trust=0)
    def Sold(self, item: str) -> None:  # noqa: N802
        """Something was sold: nothing is answered."""


async def talk(path: Path) -> None:
    """Two prices, something that nobody has, and something sold."""
    with Recorder(path, protocol="wolpertinger") as recorder:
        async with (
            wolpertinger.serve("tcp://127.0.0.1:0", Stock) as server,
            wolpertinger.connect(server.address, options=wolpertinger.Options(recorder=recorder)) as peer,
        ):
            for item in ("tea", "coffee", "unicorn"):
                with contextlib.suppress(RequestFailed):
                    await peer.Stock.Price(item)
            await peer.Stock.Sold.tell("tea")


def main(spark: SparkSession) -> None:
    """Record, ingest, ask."""
    with tempfile.TemporaryDirectory() as folder:
        recording, lake = Path(folder, "wolpertinger.pcapng"), Path(folder, "lake")
        asyncio.run(talk(recording))
        ingest(spark, lake, [recording])
        found = read_table(spark, lake, "exchanges").groupBy("subject", "outcome").count()
        for row in found.orderBy("subject", "outcome").collect():
            print(row["subject"], row["outcome"], row["count"])


if __name__ == "__main__":
    main(spark_session())

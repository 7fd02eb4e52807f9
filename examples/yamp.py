"""YAMP: what is in the bodies? Peers agree on a serializer, and SQL reaches into what they say; a table of it is kept."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import Recorder, yamp
from wirelake.lake import build_table, decode_table, inputs_of, read_messages, read_table, spark_session, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

service = yamp.Service()


@service.request("sum", of=list[int])
async def add(_: yamp.Peer, call: yamp.Call) -> int:
    """Tell every partial sum, then the whole."""
    total = 0
    for number in call.body:
        total += number
        await call.progress(total)
    return total


async def talk(path: Path) -> None:
    """Weather, and two sums."""
    with Recorder(path, protocol="yamp") as recorder:
        async with (
            yamp.serve("tcp://127.0.0.1:0", service) as server,
            yamp.connect(server.address, options=yamp.Options(recorder=recorder)) as peer,
        ):
            for degrees in (18, 21, 24):
                await peer.send("weather.today", {"degrees": degrees})
            for numbers in ([1, 2, 3], [20, 22]):
                ask = await peer.ask("sum", numbers)
                async for _ in ask:
                    pass
                await ask.answer()


def main(spark: SparkSession) -> None:
    """Record, read, ask; build, write, ask again."""
    with tempfile.TemporaryDirectory() as folder:
        recording, mine = Path(folder, "yamp.pcapng"), Path(folder, "mine")
        asyncio.run(talk(recording))
        weather = read_messages(spark, recording, protocol="yamp").where("subject = 'weather.today'")
        (warmest,) = weather.selectExpr("max(variant_get(parse_json(body_json), '$.degrees', 'int')) AS degrees").collect()
        print("warmest", warmest["degrees"])
        tables = {name: decode_table(spark, name, recording) for name in inputs_of("exchanges")}
        print("exchanges", write_table(build_table(spark, "exchanges", tables), mine, "exchanges"))
        for row in read_table(spark, mine, "exchanges").orderBy("requested").collect():
            print(row["subject"], row["status"], "after", row["progress"], "steps")


if __name__ == "__main__":
    main(spark_session())

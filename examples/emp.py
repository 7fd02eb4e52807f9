"""EMP: which requests were answered, which were not? Peers talk and are recorded; an ingest pairs requests with answers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import Recorder, emp
from wirelake.errors import RequestTimeout
from wirelake.lake import ingest, read_table, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def answer(_: emp.Peer, request: emp.RequestReceived) -> bytes:
    """Shout back; or think for ever."""
    if request.body == b"why?":
        await asyncio.Event().wait()
    return request.body.upper()


async def talk(path: Path) -> None:
    """A client asks nine times, asks once too much, and goes."""
    with Recorder(path, protocol="emp") as recorder:
        async with (
            emp.serve("tcp://127.0.0.1:0", options=emp.Options(on_request=answer)) as server,
            emp.connect(server.address, options=emp.Options(recorder=recorder)) as peer,
        ):
            for word in (b"tea", b"coffee", b"cocoa") * 3:
                await peer.request(word, timeout=60)
            with contextlib.suppress(RequestTimeout):
                await peer.request(b"why?", timeout=0.1)


def main(spark: SparkSession) -> None:
    """Record, ingest, ask."""
    with tempfile.TemporaryDirectory() as folder:
        recording, lake = Path(folder, "emp.pcapng"), Path(folder, "lake")
        asyncio.run(talk(recording))
        ingest(spark, lake, [recording])
        exchanges = read_table(spark, lake, "exchanges")
        for row in exchanges.groupBy("status").count().orderBy("status").collect():
            print(row["status"], row["count"])


if __name__ == "__main__":
    main(spark_session())

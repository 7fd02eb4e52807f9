"""Event Mesh: who said what, and can it be believed? One node is known, one is a stranger; `security` tells them apart."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake import Recorder, event_mesh
from wirelake.lake import build_table, decode_table, inputs_of, read_messages, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOILER = event_mesh.Credentials(secrets.token_bytes(16), b"\0\0\0\1", secret=secrets.token_bytes(32))
STRANGER = event_mesh.Credentials(secrets.token_bytes(16), b"\0\0\0\2", secret=secrets.token_bytes(32))
KNOWN = event_mesh.TrustStore([event_mesh.Key(BOILER.node_id, BOILER.auth_key_id, secret=BOILER.secret)])


async def talk(path: Path) -> None:
    """A panel hears a boiler it knows, and a stranger it does not."""
    with Recorder(path, protocol="event_mesh") as recorder:
        async with (
            event_mesh.node("udp://127.0.0.1:0", options=event_mesh.Options(trust=KNOWN, recorder=recorder)) as panel,
            event_mesh.node("udp://127.0.0.1:0", credentials=STRANGER, peers=[panel.address]) as stranger,
            event_mesh.node("udp://127.0.0.1:0", credentials=BOILER, peers=[panel.address]) as boiler,
        ):
            heard = panel.subscribe("plant.>")
            await stranger.publish("plant.boiler.temperature", 20.0)
            for degrees in (81.5, 82.0, 84.5):
                await boiler.publish("plant.boiler.temperature", degrees)
                await anext(heard)


def main(spark: SparkSession) -> None:
    """Record, read, build, ask."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder, "mesh.pcapng")
        asyncio.run(talk(recording))
        events = read_messages(spark, recording, protocol="event_mesh").where("kind = 'event'").select("message_id", "subject")
        print("events", events.count())
        tables = {name: decode_table(spark, name, recording) for name in inputs_of("security")}
        believed = build_table(spark, "security", tables, keys=KNOWN).join(events, "message_id")
        for row in believed.groupBy("accepted").count().orderBy("accepted", ascending=False).collect():
            print("accepted" if row["accepted"] else "not accepted", row["count"])


if __name__ == "__main__":
    main(spark_session())

"""Which sessions were seen whole: only they can be judged by what was not said."""

from datetime import UTC, datetime

from wirelake.lake.gold.incremental import connection_index
from wirelake.lake.gold.steps import session_facts
from wirelake.lake.sources.tables import spark_schema
from wirelake.lake.tables.catalog import table

NOW = datetime(2024, 1, 1, tzinfo=UTC)
PLACE = {"source": "s", "offset": 0}


def frame(spark, name, rows):
    kind = table(name)
    return spark.createDataFrame([tuple(row.get(column) for column in kind.schema.names) for row in rows], spark_schema(kind))


def test_a_session_is_whole_if_its_beginning_was_seen_and_no_byte_was_lost(spark):
    connections, messages, quarantine = [], [], []

    def session(name, *, opened=False, first="event", clause="none"):
        session_id = name.encode()
        seen = {"connection_id": session_id, "ts": NOW, "protocol": "emp", "by": "", **PLACE}
        connections.append({**seen, "what": "seen"})
        if opened:
            connections.append({**seen, "what": "opened"})
        said = {
            "session_id": session_id,
            "connection_id": session_id,
            "protocol": "emp",
            "direction": "to_server",
            "name": "data",
            "size": 8,
            **PLACE,
        }
        messages.append({**said, "message_id": session_id + b"1", "ts": NOW, "kind": first})
        messages.append({**said, "message_id": session_id + b"2", "ts": NOW.replace(second=1), "kind": "event"})
        if clause != "none":
            quarantine.append({"session_id": session_id, "layer": "tcp", "reason": "gap", "clause": clause, "length": 1, **PLACE})

    session("opened", opened=True)
    session("greeted", first="handshake")
    session("middle")
    session("opened, but a gap", opened=True, clause=None)
    session("opened, and a fault of its own", opened=True, clause="EMP-1")

    happened, said, unread = (
        frame(spark, name, rows) for name, rows in {"connections": connections, "messages": messages, "quarantine": quarantine}.items()
    )
    index = connection_index.build(*(rows.selectExpr("*", "1 AS batch") for rows in (said, happened, unread)))
    built = session_facts.build(happened, index.where("direction IS NOT NULL"), said, unread)
    whole = {bytes(row.session_id).decode(): row.is_whole for row in built.select("session_id", "is_whole").collect()}
    assert whole == {
        "opened": True,
        "greeted": True,
        "middle": False,
        "opened, but a gap": False,
        "opened, and a fault of its own": True,
    }

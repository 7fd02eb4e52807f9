"""Views in DataFrames: sessions of connections, and rows of views that are not primary, for tables that Spark builds."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from wirelake.lake.tables.index import CONNECTION_INDEX
from wirelake.lake.tables.protocols import LINKS
from wirelake.lake.views import USED, Views, views

__all__ = ["apart_frame", "counted_messages", "link_frame", "resolved_frame", "view_frame", "views_of"]


def views_of(connection_index: DataFrame) -> Views:
    """Decide what the rows of a connection index are views of; they come to the driver."""
    rows = connection_index.select(*USED).toArrow()
    return views(rows.cast(pa.schema([CONNECTION_INDEX.schema.field(name) for name in USED])))


def _frame(like: DataFrame, columns: dict[str, pa.Array]) -> DataFrame:
    return sql.broadcast(like.sparkSession.createDataFrame(pa.table(columns)))


def link_frame(like: DataFrame, known: Views) -> DataFrame:
    """Connection -> the session that it is part of, where that is a link."""
    return _frame(like, {"connection_id": pa.array(known.sessions, pa.binary()), "link": pa.array(known.sessions.values(), pa.binary())})


def view_frame(like: DataFrame, known: Views) -> DataFrame:
    """Session -> what it is, if several observers saw the same."""
    seen = known.of_session
    return _frame(
        like,
        {
            "key": pa.array(seen, pa.binary()),
            "view_link": pa.array([one.link for one in seen.values()], pa.binary()),
            "is_counted": pa.array([one.is_primary for one in seen.values()], pa.bool_()),
        },
    )


def apart_frame(rows: DataFrame, known: Views) -> DataFrame:
    """Rows with the ids that each observer's connections have; see `Views.apart`."""
    if not known.apart:
        return rows
    columns = {
        "connection_id": pa.array([connection_id for connection_id, _ in known.apart], pa.binary()),
        "observer": pa.array([observer for _, observer in known.apart], pa.string()),
        "other": pa.array(known.apart.values(), pa.binary()),
    }
    rows = rows.join(_frame(rows, columns), ["connection_id", "observer"], "left")
    if "session_id" in rows.columns:
        is_its = sql.col("session_id") == sql.col("connection_id")
        rows = rows.withColumn("session_id", sql.when(is_its, sql.coalesce("other", "session_id")).otherwise(sql.col("session_id")))
    return rows.withColumn("connection_id", sql.coalesce("other", "connection_id")).drop("other")


def resolved_frame(rows: DataFrame, known: Views) -> DataFrame:
    """Rows with the sessions that their connections are part of."""
    rows = apart_frame(rows, known)
    if not known.sessions:
        return rows
    rows = rows.join(link_frame(rows, known), "connection_id", "left")
    session = sql.when(sql.col("protocol").isin(*LINKS), sql.coalesce("link", "session_id")).otherwise(sql.col("session_id"))
    return rows.withColumn("session_id", session).drop("link")


def counted_messages(rows: DataFrame, known: Views) -> DataFrame:
    """Rows with a session and a connection, without those of views that are not primary."""
    rows = resolved_frame(rows, known)
    if all(view.is_primary for view in known.of_session.values()):
        return rows
    seen = view_frame(rows, known).where("NOT is_counted").select(sql.col("key").alias("session_id"))
    return rows.join(seen, "session_id", "left_anti")

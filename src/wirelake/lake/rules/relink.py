"""Relink over history: rules that depend on fields, and what both sides said of themselves.

Who may say what when is judged connection by connection; what a link knows of its channels (how far acknowledgements may go, what was
closed) is the live session's to judge.

It refuses to know the rules' clauses and gravity: the room's faults do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.lake.audit import breaches, odd
from wirelake.lake.threats import Threat
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.messages import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ODDITIES", "THREATS", "by_fields", "greetings", "guards"]

ODDITIES: Final = (Fault.UNUSED_BITS_SET, Fault.NOT_MINIMAL, Fault.MULTICAST_EMPTY)
"""What the bits of the column `oddities` mean, lowest first."""

THREATS: Final = dict.fromkeys(
    (Fault.MULTICAST_OVER_LIMIT, Fault.PARTS_OVER_LIMIT, Fault.PART_OVER_LIMIT, Fault.MESSAGE_OVER_LIMIT), Threat.BOMB
)
"""RELINK-24: what endangers a receiver."""


def by_fields(relink: DataFrame) -> DataFrame:
    """§1: a listener's version that does not exist; what is tolerated but should not have been sent; a link that was refused."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    is_other_version = sql.expr(f"type_name = 'version' AND direction = 'to_client' AND fault IS NULL AND version != {VERSION}")
    return breaches(relink, "relink", {Fault.VERSION_UNSUPPORTED: is_other_version} | odd(ODDITIES))


def guards(messages: DataFrame, paired: DataFrame, facts: DataFrame) -> list[DataFrame]:
    """Nothing that is not the conversation's or a link's own affair: a connection may be cut at any time, and the link goes on."""
    del messages, paired, facts
    return []


def greetings(relink: DataFrame) -> DataFrame:
    """Per link what both sides said of themselves, and whether the listener gave a link: for `sessions`."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - only Spark work pays for importing Spark

    said_by_client = sql.col("direction") == "to_server"
    return (
        relink.where("type_name IN ('version', 'reply')")
        .groupBy("session_id")
        .agg(
            sql.min(sql.when(said_by_client, sql.col("version"))).alias("client_version"),
            sql.min(sql.when(~said_by_client, sql.col("version"))).alias("server_version"),
            sql.coalesce(sql.max(sql.expr("type_name = 'reply' AND link_id != 0")), sql.lit(False)).alias("accepted"),
            sql.lit(None).cast("smallint").alias("error_code"),
        )
    )

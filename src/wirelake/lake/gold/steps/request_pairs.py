"""Pair requests with responses: the one place where messages of an exchange are joined.

Within one session, messages with the same correlation id that belong to requests of the same side take turns: a request opens, a
response closes, and the id is free again. A request that is followed by a response is answered by it. A request while one is open is a
repetition; a response while none is open matches nothing. Messages that break a rule by themselves are left out: a receiver stops there.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

__all__ = ["INPUTS", "OPENS", "REPEATS", "UNMATCHED", "build"]

INPUTS: Final = ("messages",)

OPENS: Final = "opens"
REPEATS: Final = "repeats"
UNMATCHED: Final = "unmatched"

_BUCKETS: Final = 64
"""Parts that the ids of one session are divided into.

A window per id costs more than its rows, and one per session does not spread.
"""

_ORDER: Final = "PARTITION BY session_id, requested_by, bucket ORDER BY correlation_id, ts, message_id"
"""Windows order rows by id first: an earlier row belongs to the same exchange only with the same id.

message_id is source and offset in one value that compares the same way.
"""
_NEAREST: Final = f"IGNORE NULLS OVER ({_ORDER})"
_SO_FAR: Final = f"OVER ({_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"


def build(messages: DataFrame) -> DataFrame:
    """Every request with its `answer` (ts, message_id, size), and every response that matches none.

    `place` says which it is.
    """
    parts = messages.where(
        "kind IN ('request', 'response', 'progress', 'cancel') AND correlation_id IS NOT NULL AND fault IS NULL"
    ).selectExpr(
        *("session_id", "protocol", "direction", "correlation_id", "subject", "message_id", "ts", "size", "source", "offset", "length"),
        "IF((kind IN ('request', 'cancel')) = (direction = 'to_server'), 'client', 'server') AS requested_by",
        f"pmod(hash(correlation_id), {_BUCKETS}) AS bucket",
        "kind",
        "kind IN ('request', 'response') AS is_turn",
    )
    turn = "struct(correlation_id, kind, ts, message_id, size, reports)"
    # Two passes over sorted rows: what depends on the rows before, then what depends on those after.
    looked_back = parts.withColumns(
        {
            "before": sql.expr(f"lag(IF(is_turn, struct(correlation_id, kind), NULL)) {_NEAREST}"),
            "reports": sql.expr(f"count_if(kind = 'progress') {_SO_FAR}"),
        }
    )
    looked_ahead = looked_back.withColumns(
        {
            "next": sql.expr(f"lead(IF(is_turn, {turn}, NULL)) {_NEAREST}"),
            "word": sql.expr(f"lead(IF(kind != 'progress', struct(correlation_id, kind), NULL)) {_NEAREST}"),
        }
    )
    is_open = "coalesce(before.correlation_id = correlation_id AND before.kind = 'request', false)"
    is_answered = "coalesce(next.correlation_id = correlation_id AND next.kind = 'response', false)"
    is_taken_back = "coalesce(word.correlation_id = correlation_id AND word.kind = 'cancel', false)"
    return looked_ahead.where(f"kind = 'request' OR (kind = 'response' AND NOT {is_open})").selectExpr(
        *("session_id", "protocol", "direction", "requested_by", "correlation_id", "subject", "message_id", "ts", "size"),
        *("source", "offset", "length"),
        f"CASE WHEN kind = 'response' THEN '{UNMATCHED}' WHEN {is_open} THEN '{REPEATS}' ELSE '{OPENS}' END AS place",
        f"IF(kind = 'request' AND {is_answered}, struct(next.ts, next.message_id, next.size), NULL) AS answer",
        f"IF(kind = 'request' AND {is_answered}, CAST(next.reports - reports AS INT), NULL) AS progress",
        f"kind = 'request' AND {is_taken_back} AS cancelled",
    )

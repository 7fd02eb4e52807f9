"""`exchanges`: every request with its answer, every answer nobody asked for, and every message on a channel with its acknowledgement.

It refuses to know protocols: `kind` and `correlation_id` say what belongs together.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import SESSION, TIME, Table, column

__all__ = ["LATE_SECONDS", "TABLE"]

LATE_SECONDS: Final = 30.0
"""An answer that takes longer than this is late, unless the lake was told otherwise when it was made."""

TABLE: Final = Table(
    "exchanges",
    ("request_message_id", "response_message_id", "correlation_id"),
    pa.schema(
        [
            SESSION,
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("kind", pa.string(), "`request`: somebody is asked something; `delivery`: a message on a channel is acknowledged."),
            column("requested_by", pa.string(), "`client` or `server`."),
            column("correlation_id", pa.string(), "What ties the response to the request; free to be used again once answered."),
            column("subject", pa.string(), "What was requested, where the protocol says so."),
            column("request_message_id", pa.binary(), "The request in `messages`; null if nobody was seen asking."),
            column("response_message_id", pa.binary(), "The response in `messages`; null if there was none."),
            column("requested", TIME, "When the request was seen; null if it was not."),
            column("answered", TIME, "When the response was seen; null if there was none."),
            column("latency_us", pa.int64(), "Microseconds from request to response; null if one of them is missing."),
            column(
                "status",
                pa.string(),
                "`answered`, `late` (answered, but not in time), `confirmed` (delivered, all that a void method says), `unanswered` or"
                " `unasked` (a response without request).",
            ),
            column(
                "late",
                pa.bool_(),
                "Whether the answer took longer than the lake allows: 30 s, unless it was told otherwise when it was made.",
            ),
            column("request_size", pa.int64(), "Bytes of the request, envelope included; null if it was not seen."),
            column("response_size", pa.int64(), "Bytes of the response, envelope included; null if there was none."),
            column("progress", pa.int32(), "How many reports of progress came before the response; null if there was none."),
            column("cancelled", pa.bool_(), "Whether the requester took it back before it was answered."),
            column("attempts", pa.int32(), "How often it was sent: more than once after a link was resumed; 0 if that was not seen."),
            column(
                "outcome",
                pa.string(),
                "What came of a request: `returned`, `failed` (answered with an error), `cancelled` (answered so), `killed` (its sender"
                " waits no more), `confirmed` (a result of wolpertinger, and no more), `refused` (a result that is not success). Of a"
                " delivery: `consumed`, `committed`, `uncommitted`, `rolled back`. Null if nothing was seen to come of it.",
            ),
        ]
    ),
    "One row per request, per response that matches none, and per message on a channel.",
)

"""`exchanges`: requests with answers, and channel messages with acknowledgements.

Told by the protocols' analyzers (`gold/fold`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import OBSERVER, SESSION, TIME, Table, column

__all__ = ["LATE_SECONDS", "TABLE"]

LATE_SECONDS: Final = 30.0
"""An answer that takes longer than this is late, unless the lake was created with another value."""

TABLE: Final = Table(
    "exchanges",
    ("request_message_id", "response_message_id", "correlation_id"),
    pa.schema(
        [
            SESSION,
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("kind", pa.string(), "`request`: a request and its answer; `delivery`: a message on a channel and its acknowledgement."),
            column("requested_by", pa.string(), "The side that sent the request: `client` or `server`."),
            column("correlation_id", pa.string(), "Id that ties the response to the request; may be used again after the answer."),
            column("subject", pa.string(), "Method, uri or event name of the request; null where the protocol has none."),
            column("request_message_id", pa.binary(), "The request in `messages`; null if it was not captured."),
            column("response_message_id", pa.binary(), "The response in `messages`; null if there is none."),
            column("requested", TIME, "Time of the request; null if it was not captured."),
            column("answered", TIME, "Time of the response; null if there is none."),
            column("latency_us", pa.int64(), "Microseconds from request to response; null without one of them."),
            column(
                "status",
                pa.string(),
                "`answered`, `late` (answered, but not in time), `confirmed` (delivered; a void method has no answer), `unanswered` or"
                " `unasked` (a response without a request).",
            ),
            column(
                "late",
                pa.bool_(),
                "Whether the answer took longer than the lake's limit: 30 s, unless the lake was created with another one.",
            ),
            column("request_size", pa.int64(), "Bytes of the request, envelope included; null if it was not captured."),
            column("response_size", pa.int64(), "Bytes of the response, envelope included; null if there is none."),
            column("progress", pa.int32(), "Progress messages before the response; null if there is no response, or for deliveries."),
            column("cancelled", pa.bool_(), "Whether the requester cancelled it before the answer."),
            column("attempts", pa.int32(), "How often it was sent: more than once after a link was resumed; 0 if it was not captured."),
            column(
                "outcome",
                pa.string(),
                "Result of a request: `returned`, `failed` (answered with an error), `cancelled` (answered so), `killed` (its sender"
                " stopped waiting), `confirmed` (only a result of wolpertinger), `refused` (a result that is not success). Of a"
                " delivery: `consumed`, `committed`, `uncommitted`, `rolled back`. Null if no result was captured.",
            ),
            OBSERVER,
            column("is_primary", pa.bool_(), "Whether it counts in sums: `is_primary` of its session."),
        ]
    ),
    "One row per request, per response that matches none, and per message on a channel.",
)

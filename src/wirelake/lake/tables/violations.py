"""`violations`: every broken rule: which, by whom, where, and whether it ended the session.

Told by the protocols' analyzers (`gold/fold`).

A finding is a violation only if the specification forbids it. What the specification recommends otherwise has severity `warning`. What
only a ruling or a limit of this implementation forbids has severity `info`. No count of violations includes these two.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import OBSERVER, SESSION, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "violations",
    ("source", "offset", "rule"),
    pa.schema(
        [
            SESSION,
            column(
                "message_id",
                pa.binary(),
                "The message in `messages`; null for bytes that are not a message, and for messages that are missing.",
            ),
            column("ts", TIME, "Time of the message; for a timeout, when the time was up."),
            column("protocol", pa.string(), "Protocol: `emp`, `event_mesh`, `relink`, `yamp` or `wolpertinger`."),
            column("direction", pa.string(), "Side at fault: `to_server` the client, `to_client` the server; null if unknown."),
            column("rule", pa.string(), "Name of the fault in its protocol."),
            column("clause", pa.string(), "Clause or ruling of the rule; `wirelake explain CLAUSE` and docs/rules/ explain it."),
            column(
                "severity",
                pa.string(),
                "`error`: a session ends on it; `tolerated`: peers read on. These are no violations:"
                " `warning`, the specification recommends otherwise; `info`, the specification allows it.",
            ),
            column(
                "origin",
                pa.string(),
                "Origin of the rule: `text`, the specification; or only this implementation: `ruling`, `limit` or `local` state.",
            ),
            column("text", pa.string(), "The rule as one sentence."),
            column("detail", pa.string(), "What was measured, such as how long an answer took; null for most rules."),
            column(
                "ended_session", pa.bool_(), "Whether the session ended on it: only close, error or confirmation messages came after it."
            ),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Offset of the message, the bytes or the event in the source."),
            column("length", pa.int64(), "Bytes in the source from the first to the last byte; 0 for an event."),
            OBSERVER,
            column("is_primary", pa.bool_(), "Whether it counts in sums: `is_primary` of its session."),
        ]
    ),
    "One row per rule and place. Severities `warning` and `info` mark findings that the specification does not forbid.",
)

"""`violations`: every finding: which rule, by whom, where, and whether it was the end. Built from the silver tables.

Findings come from five places: messages that break a rule by themselves; bytes in quarantine that break one; messages the protocol's
state machine does not have; its rules over history; and what is tolerated but should not have been sent. A finding is a violation only if
the specification forbids it: what only a ruling or a limit of ours forbids has severity `info`, and no count includes it.

Sessions that were not seen from their beginning, or with gaps, are not judged by what was said before: what was not seen may well have
been said.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from wirelake.lake.tables.schema import SESSION, TIME, Table, column

__all__ = ["TABLE"]

TABLE: Final = Table(
    "violations",
    ("source", "offset", "rule"),
    pa.schema(
        [
            SESSION,
            column("message_id", pa.binary(), "The message in `messages`; null for bytes that are none, and for what was not said."),
            column("ts", TIME, "When it was seen; of something that did not happen in time, when the time was up."),
            column("protocol", pa.string(), "The room: `emp`, …"),
            column("direction", pa.string(), "Whose fault: `to_server` the client's, `to_client` the server's; null if that is not known."),
            column("rule", pa.string(), "The name of the fault in its room."),
            column("clause", pa.string(), "The clause or ruling it is about."),
            column(
                "severity",
                pa.string(),
                "`error`, if a session ends on it; `tolerated`, if peers read on; `info`, no violation: the specification allows it.",
            ),
            column(
                "origin",
                pa.string(),
                "Who forbids it: `text`, the specification; else only this side: a `ruling`, a `limit`, or its `local` state.",
            ),
            column("text", pa.string(), "The rule as one plain sentence."),
            column("ended_session", pa.bool_(), "Whether nothing but a parting, or confirmations, came after it, and the session ended."),
            column("source", pa.string(), "The file the bytes came from."),
            column("offset", pa.int64(), "Where in the source the message, the bytes or the event begins."),
            column("length", pa.int64(), "Bytes in the source from the first to the last byte; 0 for an event."),
        ]
    ),
    "One row per rule and place: broken rules, and with severity `info` what only this side minds.",
)

"""`--watch` of live commands: says on stderr which rules a peer breaks, as soon as it does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from wirelake.peers.notices import NOTICE

if TYPE_CHECKING:
    from wirelake.explore.reading.records import Record
    from wirelake.explore.reading.watch import Watcher

__all__ = ["watching"]

log = logging.getLogger("wirelake.watch")


def watching() -> Watcher:
    """The `watch` of a recorder. Its process loads what it needs: no client waits."""
    from wirelake.explore.reading.watch import Watcher  # noqa: PLC0415 - few commands watch

    return Watcher(_tell)


def _tell(record: Record) -> None:
    from wirelake.explore.reading.records import Violation  # noqa: PLC0415 - see watching

    if isinstance(record, Violation):
        # The text is part of the log message, not a value of it: `--max-notices` counts each rule by itself.
        rule = " ".join(filter(None, (record.protocol, record.clause, record.rule, f"({record.severity}):", record.text)))
        log.log(NOTICE, f"watch: %s broke {rule.replace('%', '%%')}", record.culprit or "a side")

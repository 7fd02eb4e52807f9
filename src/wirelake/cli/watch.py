"""`--watch` of live commands: says on stderr which rules a peer breaks, as soon as it does."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from wirelake.capture.record.recorder import Recorder
from wirelake.cli.own_process import without_pandas
from wirelake.peers.notices import NOTICE

if TYPE_CHECKING:
    from wirelake.explore.reading.records import Record

__all__ = ["watching"]

log = logging.getLogger("wirelake.watch")


@contextlib.contextmanager
def watching(protocol: str) -> Iterator[Callable[[bytes], None]]:
    """The `watch` of a recorder. It is warmed up first: no client waits until scanners are loaded."""
    without_pandas()
    from wirelake.explore.reading.watch import Watcher  # noqa: PLC0415 - needs the lake extra

    with Watcher(lambda _record: None) as scratch, Recorder(os.devnull, protocol=protocol, watch=scratch) as recorder:
        recorder.connection(role="server", local=("127.0.0.1", 1), remote=("127.0.0.1", 2)).received(b"\n" * 128)
    with Watcher(_tell) as watcher:
        yield watcher


def _tell(record: Record) -> None:
    from wirelake.explore.reading.records import Violation  # noqa: PLC0415 - see watching

    if isinstance(record, Violation):
        # The text is part of the log message, not a value of it: `--max-notices` counts each rule by itself.
        rule = " ".join(filter(None, (record.protocol, record.clause, record.rule, f"({record.severity}):", record.text)))
        log.log(NOTICE, f"watch: %s broke {rule.replace('%', '%%')}", record.culprit or "a side")

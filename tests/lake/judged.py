"""What captures accuse sides of, as `wirelake read` says it and as the lake's fold does, without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.lake.test_histories import decoded, folded, one_window

from wirelake.explore.reading.inputs import Reading
from wirelake.explore.reading.records import Message, Violation


def read(path: Path) -> tuple[list[Message], list[Violation]]:
    """The messages and the broken rules that reading a capture gives."""
    found = list(Reading().read([str(path)]))
    return [one for one in found if isinstance(one, Message)], [one for one in found if isinstance(one, Violation)]


def in_lake(path: Path, protocol: str) -> tuple[int, list[dict[str, Any]]]:
    """The number of messages, and the rows of `violations`, that a lake has of a capture."""
    tables = decoded([path], protocol)
    return tables[protocol].num_rows, folded(tables, protocol, one_window(tables, protocol))["violations"]


def accused(path: Path, protocol: str) -> Counter[tuple[str, str]]:
    """The rules broken, with their severities; both ways of reading must agree about those that no sender is free to break."""
    by_reading = Counter((one.rule, one.severity) for one in read(path)[1])
    by_lake = Counter((one["rule"], one["severity"]) for one in in_lake(path, protocol)[1])
    assert grave(by_reading) == grave(by_lake)
    return by_reading | by_lake


def grave(found: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Those that say a side did what the specification forbids."""
    return Counter({one: count for one, count in found.items() if one[1] in ("error", "tolerated", "warning")})

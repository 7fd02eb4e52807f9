"""Filter pushdown: comparisons of time and port become an interest in packets.

Filters on the time are applied to rows as well, so Spark need not apply them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual

from wirelake.capture.packets.filter import PacketFilter

__all__ = ["PORTS", "TIME", "interest"]

TIME: Final = "ts"
PORTS: Final = ("client_port", "server_port", "source_port", "destination_port")


def _microseconds(value: Any) -> int | None:
    """A time of Spark in microseconds; None for any other value."""
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo else value.astimezone()
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def interest(filters: Iterable[Filter]) -> tuple[PacketFilter, list[Filter]]:
    """Split filters into a packet filter and those that Spark must still apply.

    Spark need not apply comparisons of the time. A filter on a port limits reading to packets with that port at either end. Spark then
    checks which end it is.
    """
    since: int | None = None
    until: int | None = None
    ports: set[int] | None = None
    left = []
    for condition in filters:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        moment = _microseconds(getattr(condition, "value", None))
        if (
            name == TIME
            and moment is not None
            and isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual)
        ):
            if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
                low = moment + isinstance(condition, GreaterThan)
                since = low if since is None else max(since, low)
            if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
                high = moment - isinstance(condition, LessThan)
                until = high if until is None else min(until, high)
            continue
        if name == TIME and isinstance(condition, IsNotNull):
            continue
        if name in PORTS and isinstance(condition, EqualTo | In):
            values = {condition.value} if isinstance(condition, EqualTo) else set(condition.value)
            ports = values if ports is None else ports & values
        left.append(condition)
    return PacketFilter(None if ports is None else tuple(sorted(ports)), since, until), left

"""Requests, confirmations and deliveries by protocol, with latencies: values and SQL.

The three are counted separately. A request is answered or not. A wolpertinger call that was only confirmed is not an answered request: the
method may be void. A delivery is a message on a channel, and its acknowledgement is not an answer.

Times are microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.explore.rows import rows_of

if TYPE_CHECKING:
    import duckdb

__all__ = ["CONFIRMATION", "COUNTS", "DELIVERY", "REQUEST", "Bin", "Exchanges", "Latency", "exchanges"]

REQUEST: Final = "request"
CONFIRMATION: Final = "confirmation"
DELIVERY: Final = "delivery"

_BINS_PER_DECADE: Final = 8

_IS_DELIVERY: Final = f"coalesce(kind = '{DELIVERY}', false)"
_IS_CONFIRMED: Final = f"(NOT {_IS_DELIVERY} AND coalesce(status = 'confirmed', false))"
_WHAT: Final = f"CASE WHEN {_IS_DELIVERY} THEN '{DELIVERY}' WHEN {_IS_CONFIRMED} THEN '{CONFIRMATION}' ELSE '{REQUEST}' END"
"""Which of the three an exchange is."""


COUNTS: Final = f"""
    count(*) FILTER (NOT {_IS_DELIVERY}) AS requests,
    count(response_message_id) FILTER (NOT {_IS_DELIVERY} AND NOT {_IS_CONFIRMED}) AS answered,
    count(*) FILTER ({_IS_CONFIRMED}) AS confirmed,
    count(*) FILTER ({_IS_DELIVERY}) AS deliveries,
    count(response_message_id) FILTER ({_IS_DELIVERY}) AS acknowledged
"""
"""Columns that count the three and their results, over rows of `exchanges`."""


class Bin(msgspec.Struct, frozen=True):
    low: float
    high: float
    count: int


class Latency(msgspec.Struct, frozen=True):
    """Latencies, in microseconds."""

    p50: float
    p95: float
    p99: float
    most: float
    bins: list[Bin]
    """Of equal width on a logarithmic axis; latencies under a microsecond are in the first."""


class Exchanges(msgspec.Struct, frozen=True):
    """The exchanges of one protocol and one of the three kinds."""

    protocol: str
    what: str
    count: int
    answered: int
    """Requests with an answer, late ones included.

    Of deliveries, those with an acknowledgement; of confirmations, all.
    """
    failed: int
    """Answered with an error, refused, or not committed."""
    withdrawn: int
    """Requests that were cancelled or killed, and messages that were rolled back."""
    late: int
    missing: int
    """Without any result, and not withdrawn."""
    latency: Latency | None = None


class _Group(msgspec.Struct, frozen=True):
    protocol: str
    what: str
    count: int
    answered: int
    failed: int
    withdrawn: int
    late: int
    missing: int
    p50: float | None
    p95: float | None
    p99: float | None
    most: float | None


_SENT: Final = f"(SELECT *, coalesce(protocol, 'unknown') AS spoken, {_WHAT} AS what FROM exchanges WHERE requested IS NOT NULL)"  # noqa: S608

_GROUPS: Final = f"""
    SELECT spoken AS protocol, what, count(*) AS count, count(response_message_id) AS answered,
        count(*) FILTER (outcome IN ('failed', 'refused', 'uncommitted')) AS failed,
        count(*) FILTER (outcome IN ('cancelled', 'killed', 'rolled back')) AS withdrawn, count(*) FILTER (late) AS late,
        count(*) FILTER (response_message_id IS NULL AND outcome IS NULL) AS missing,
        quantile_cont(latency_us, 0.5)::DOUBLE AS p50, quantile_cont(latency_us, 0.95)::DOUBLE AS p95,
        quantile_cont(latency_us, 0.99)::DOUBLE AS p99, max(latency_us)::DOUBLE AS most
    FROM {_SENT} GROUP BY spoken, what ORDER BY what = '{DELIVERY}', what = '{CONFIRMATION}', count DESC, spoken
"""  # noqa: S608 - our own text

_BINS: Final = f"""
    SELECT spoken, what, list({{'low': pow(10, bin / {_BINS_PER_DECADE}), 'high': pow(10, (bin + 1) / {_BINS_PER_DECADE}), 'count': n}}
        ORDER BY bin) AS bins
    FROM (
        SELECT spoken, what, floor(log10(greatest(latency_us, 1)) * {_BINS_PER_DECADE} + 1e-9) AS bin, count(*) AS n
        FROM {_SENT} WHERE latency_us IS NOT NULL GROUP BY ALL
    )
    GROUP BY spoken, what
"""  # noqa: S608 - our own text


def exchanges(connection: duckdb.DuckDBPyConnection) -> list[Exchanges]:
    """Query requests, then confirmations, then deliveries of every protocol; the most frequent first."""
    bins = {(protocol, what): msgspec.convert(some, list[Bin]) for protocol, what, some in connection.execute(_BINS).fetchall()}
    groups = []
    for one in rows_of(connection, _GROUPS, _Group):
        latency = None
        if one.p50 is not None and one.p95 is not None and one.p99 is not None and one.most is not None:
            latency = Latency(one.p50, one.p95, one.p99, one.most, bins.get((one.protocol, one.what), []))
        groups.append(Exchanges(one.protocol, one.what, one.count, one.answered, one.failed, one.withdrawn, one.late, one.missing, latency))
    return groups

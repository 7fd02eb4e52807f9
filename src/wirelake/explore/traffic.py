"""Rates by protocol, pairs of peers, and unrecognised servers: values and SQL.

Rates are over active time: the time between messages, without pauses longer than `PAUSE_SECONDS`, such as the days between two captures.
Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["ACTIVE", "PAIRS", "PAUSE_SECONDS", "RATES", "UNRECOGNISED", "Pair", "Rate", "UnrecognisedServer"]

_TOP: Final = 20
PAUSE_SECONDS: Final = 60
"""A pause between two messages that is longer than this is not active time."""

ACTIVE: Final = f"""
    SELECT grouped, sum(until - since + if(pause <= {PAUSE_SECONDS} * 1000000, pause, 0))::BIGINT AS active
    FROM (
        SELECT *, coalesce(since - lag(until) OVER (PARTITION BY grouped ORDER BY second), 0) AS pause
        FROM (
            SELECT {{by}} AS grouped, epoch_us(ts) // 1000000 AS second, min(epoch_us(ts)) AS since, max(epoch_us(ts)) AS until
            FROM messages WHERE ts IS NOT NULL GROUP BY ALL
        )
    )
    GROUP BY grouped
"""  # noqa: S608 - our own text
"""Active time, grouped by the column that replaces `by`.

Pauses within one second are short, so each second is one interval.
"""


class Rate(msgspec.Struct, frozen=True):
    """One protocol, over all its minutes."""

    protocol: str
    active: int
    """Active time of the protocol."""
    messages: int
    bytes: int
    peak: int
    """Messages in its busiest minute."""
    errors: int


RATES: Final = f"""
    SELECT protocol, coalesce(any_value(active), 0) AS active, sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes,
        max(messages)::BIGINT AS peak, sum(errors)::BIGINT AS errors
    FROM (
        SELECT protocol, minute, sum(messages) AS messages, sum(bytes) AS bytes, sum(errors) AS errors
        FROM metrics WHERE protocol IS NOT NULL GROUP BY protocol, minute
    ) LEFT JOIN ({ACTIVE.format(by="protocol")}) ON protocol = grouped
    GROUP BY protocol ORDER BY messages DESC, protocol
"""  # noqa: S608 - our own text


class Pair(msgspec.Struct, frozen=True):
    """Two peers."""

    protocol: str
    client: str
    server: str
    sessions: int
    to_server: int
    to_client: int
    bytes: int
    errors: int
    first: int | None
    last: int | None
    total: int
    """How many pairs there are."""


PAIRS: Final = f"""
    SELECT protocol, client, server, sessions, messages_to_server AS to_server, messages_to_client AS to_client,
        bytes_to_server + bytes_to_client AS bytes, errors, epoch_us(first_seen) AS first, epoch_us(last_seen) AS last,
        count(*) OVER () AS total
    FROM topology ORDER BY to_server + to_client DESC, protocol, client, server LIMIT {_TOP}
"""  # noqa: S608 - a number of our own


class UnrecognisedServer(msgspec.Struct, frozen=True):
    """A server whose traffic no protocol recognised."""

    server: str | None
    """Address, port and transport; null for all that are not listed by name."""
    reason: str
    clients: int
    packets: int
    bytes: int
    last: int | None
    total: int
    """How many there are."""


UNRECOGNISED: Final = f"""
    SELECT server_address || ':' || server_port || ' (' || transport || ')' AS server, reason, count(DISTINCT client_address) AS clients,
        sum(packets)::BIGINT AS packets, sum(bytes)::BIGINT AS bytes, epoch_us(max(last_seen)) AS last, count(*) OVER () AS total
    FROM unrecognised GROUP BY ALL ORDER BY bytes DESC, server, reason LIMIT {_TOP}
"""  # noqa: S608 - a number of our own

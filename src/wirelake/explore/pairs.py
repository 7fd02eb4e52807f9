"""How much and how fast by protocol, and who talks to whom, as values and the questions that give them.

It refuses to know HTML. Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["PACES", "PAIRS", "STRANGERS", "Pace", "Pair", "Stranger"]

_TOP: Final = 20


class Pace(msgspec.Struct, frozen=True):
    """One protocol, over all its minutes."""

    protocol: str
    minutes: int
    messages: int
    bytes: int
    peak: float
    """Messages a second in its busiest minute."""
    errors: int
    requests: int
    answered: int
    worst: int | None
    """The highest of the minutes' 95th percentiles, in microseconds; null without answers."""


PACES: Final = """
    SELECT protocol, count(*) AS minutes, sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes, max(rate) AS peak,
        sum(errors)::BIGINT AS errors, sum(requests)::BIGINT AS requests, sum(answered)::BIGINT AS answered, max(worst) AS worst
    FROM (
        SELECT protocol, minute, sum(messages) AS messages, sum(bytes) AS bytes, sum(rate) AS rate, sum(errors) AS errors,
            sum(requests) AS requests, sum(answered) AS answered, max(latency_p95_us) AS worst
        FROM metrics WHERE protocol IS NOT NULL GROUP BY protocol, minute
    )
    GROUP BY protocol ORDER BY messages DESC, protocol
"""


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


class Stranger(msgspec.Struct, frozen=True):
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


STRANGERS: Final = f"""
    SELECT server_address || ':' || server_port || ' (' || transport || ')' AS server, reason, count(DISTINCT client_address) AS clients,
        sum(packets)::BIGINT AS packets, sum(bytes)::BIGINT AS bytes, epoch_us(max(last_seen)) AS last, count(*) OVER () AS total
    FROM unrecognised GROUP BY ALL ORDER BY bytes DESC, server, reason LIMIT {_TOP}
"""  # noqa: S608 - a number of our own

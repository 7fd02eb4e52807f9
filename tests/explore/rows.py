"""Rows of a lake, written down: builders that leave out what a test does not care about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Table -> rows; columns that are left out are null."""

START = datetime(2025, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def message(seconds: float, kind: str = "event", **columns: Any) -> dict[str, Any]:
    return {"message_id": b"m%f" % seconds, "session_id": b"s", "ts": at(seconds), "kind": kind, "source": "a.pcapng", **columns}


def exchange(latency_us: int | None, **columns: Any) -> dict[str, Any]:
    """A request of EMP, answered if it has a latency."""
    answer = None if latency_us is None else b"r"
    said = {"protocol": "emp", "kind": "request", "session_id": b"s", "requested": at(0), "late": False, "cancelled": False}
    return {"latency_us": latency_us, "response_message_id": answer, "status": "answered" if answer else "unanswered", **said, **columns}


def delivery(latency_us: int | None, **columns: Any) -> dict[str, Any]:
    """A message on a channel of Relink, consumed if it has a latency."""
    said = {"protocol": "relink", "kind": "delivery", "outcome": "consumed" if latency_us is not None else None}
    return exchange(latency_us, **said, **columns)


def session(name: bytes = b"s", **columns: Any) -> dict[str, Any]:
    ends = {"client_address": "10.0.0.1", "client_port": 4000, "server_address": "10.0.0.2", "server_port": 5040}
    counts = dict.fromkeys(("messages_to_server", "messages_to_client", "requests", "answered", "violations"), 0)
    how = {"ended_how": "bye", "ended_by": "client", "handshake": "complete", "opened": at(0), "duration_us": 1_000_000}
    place = {"source": "/data/a.pcapng", "offset": 100}
    return {"session_id": name, "protocol": "emp", "transport": "tcp", **ends, **counts, **how, **place, **columns}


def violation(rule: str, **columns: Any) -> dict[str, Any]:
    said = {"clause": "EMP-25", "text": "a second hello", "severity": "error", "ended_session": False, "direction": "to_server"}
    place = {"session_id": b"s", "ts": at(1), "source": "/data/a.pcapng", "offset": 396, "length": 12}
    return {"rule": rule, "protocol": "emp", "origin": "text", **place, **said, **columns}


def account(source: str, size: int, parts: Mapping[str, int]) -> list[dict[str, Any]]:
    named = {"source": source, "source_id": source.encode(), "source_size": size, "offset": 0, "length": size, "items": 1}
    return [{**named, "category": category, "reason": "", "bytes": part} for category, part in parts.items()]


SPOKEN: Rows = {
    "messages": [message(0, "request", protocol="emp"), message(0.5, "response", protocol="emp"), message(60, "error", protocol="emp")],
    "exchanges": [exchange(500_000), exchange(2_000), exchange(None)],
    "sessions": [session(messages_to_server=2, messages_to_client=1, requests=3, answered=2)],
    "violations": [
        violation("HELLO_REPEATED"),
        violation("HELLO_REPEATED", offset=20, ts=at(0), direction="to_client", ended_session=True),
        violation("PONG_UNSOLICITED", severity="tolerated", clause="EMP-30", text="a pong nobody asked for"),
        violation("UNUSED_BITS_SET", severity="info", origin="ruling", clause="EMP-5", text="unused bits are sent as zero"),
    ],
    "quarantine": [
        {
            "session_id": b"s",
            "protocol": "emp",
            "ts": at(2),
            "layer": "emp",
            "reason": "SIZE_OVER_LIMIT",
            "clause": "EMP-35",
            "text": "an envelope's size is over the limit",
            "raw": bytes(range(0x30, 0x70)),
            "source": "/data/a.pcapng",
            "offset": 7300,
            "length": 64,
        }
    ],
    "metrics": [
        {"minute": at(0), "protocol": "emp", "messages": 2, "bytes": 60, "rate": 2 / 60, "errors": 0, "requests": 3, "answered": 2}
        | {"latency_p95_us": 500_000},
        {"minute": at(60), "protocol": "emp", "messages": 1, "bytes": 20, "rate": 1 / 60, "errors": 1, "requests": 0, "answered": 0},
    ],
    "topology": [
        {
            "protocol": "emp",
            "client": "10.0.0.1",
            "server": "10.0.0.2:5040",
            "sessions": 1,
            "messages_to_server": 2,
            "messages_to_client": 1,
        }
        | {"bytes_to_server": 50, "bytes_to_client": 30, "errors": 1, "first_seen": at(0), "last_seen": at(60)},
    ],
    "unrecognised": [
        {
            "transport": "tcp",
            "client_address": f"10.0.0.{last}",
            "server_address": "10.0.0.9",
            "server_port": 443,
            "packets": 3,
            "bytes": 900,
        }
        | {"reason": "no protocol begins like this", "last_seen": at(60)}
        for last in (1, 2)
    ],
    "ledger": [*account("/data/a.pcapng", 1000, {"container": 100, "headers": 336, "message": 500, "quarantine": 64})],
}
"""A little of everything, and a ledger that adds up."""

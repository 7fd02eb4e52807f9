"""Small lakes made of recordings and captures in this process: decoded by the decoder, judged by `wirelake read`, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.explore.rows import Rows
from tests.lake.test_gaps import decoded

from wirelake.explore.reading.inputs import Reading
from wirelake.explore.reading.records import Message, Unanswered, Violation

__all__ = ["lake_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lake_of(fill: Callable[..., Path], folder: Path, captures: Iterable[Path]) -> Path:
    """A lake of these files: silver tables from the decoder; exchanges, violations and sessions from the records of a reading."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in captures:
        for table, some in decoded(path).items():
            if some:
                rows.setdefault(table, []).extend(some)
        for record in Reading().read([str(path)]):
            if isinstance(record, Message):
                rows.setdefault("exchanges", []).extend(_answers(record))
            elif isinstance(record, Unanswered):
                rows.setdefault("exchanges", []).append(_unanswered(record))
            elif isinstance(record, Violation):
                rows.setdefault("violations", []).append(_violation(record))
    rows["sessions"] = list(_sessions(rows))
    return fill(folder, rows)


def _time(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def _answers(message: Message) -> Iterable[dict[str, Any]]:
    for one in message.answers:
        request = one.request
        yield {
            "session_id": message.session_id,
            "protocol": message.protocol,
            "kind": one.kind,
            "correlation_id": one.correlation_id,
            "request_message_id": None if request is None else request.message_id,
            "response_message_id": message.message_id,
            "requested": None if request is None else _time(request.ts),
            "answered": _time(message.ts),
            "latency_us": one.latency,
            "status": one.status,
        }


def _unanswered(record: Unanswered) -> dict[str, Any]:
    named = {"session_id": record.session_id, "protocol": record.protocol, "kind": record.kind, "correlation_id": record.correlation_id}
    return named | {"request_message_id": record.request.message_id, "requested": _time(record.request.ts), "status": "unanswered"}


def _violation(record: Violation) -> dict[str, Any]:
    named = {"session_id": record.session_id, "protocol": record.protocol, "rule": record.rule, "clause": record.clause}
    place = {"source": record.source, "offset": record.offset, "length": record.length, "ts": _time(record.ts)}
    message = None if record.message is None else record.message.message_id
    return named | place | {"severity": record.severity, "text": record.text, "message_id": message}


def _sessions(rows: Rows) -> Iterable[dict[str, Any]]:
    connections = {row["connection_id"]: row for row in rows["connections"]}
    grouped: dict[bytes, list[Any]] = {}
    for row in rows["messages"]:
        grouped.setdefault(row["session_id"], []).append(row)
    for session_id, mine in grouped.items():
        ends = connections[mine[0]["connection_id"]]
        sides = ("protocol", "transport", "client_address", "client_port", "server_address", "server_port", "observer_kind")
        broken = [row for row in rows.get("violations", ()) if row["session_id"] == session_id]
        yield {name: ends[name] for name in sides} | {
            "session_id": session_id,
            "opened": min(row["ts"] for row in mine),
            "duration_us": (max(row["ts"] for row in mine) - min(row["ts"] for row in mine)) // timedelta(microseconds=1),
            "messages_to_server": sum(row["direction"] == "to_server" for row in mine),
            "messages_to_client": sum(row["direction"] == "to_client" for row in mine),
            "requests": sum(row["kind"] == "request" for row in mine),
            "answered": sum(row["kind"] == "response" for row in mine),
            "violations": len(broken),
            "source": mine[0]["source"],
            "offset": mine[0]["offset"],
        }

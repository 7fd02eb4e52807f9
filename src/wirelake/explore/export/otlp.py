"""OTLP: exchanges as spans, in the JSON form of OpenTelemetry's protocol (one `TracesData` object).

Each exchange is one span in a trace of its own, as the side that asked would report it. Ids are hashes of the exchange, so exporting
twice gives the same. Attributes have the names of the semantic conventions where these have one; others begin with `wirelake.`.

OTLP/JSON has its own rules: ids are hex digits, numbers of 64 bits are text, enumerations are numbers, names are in lower camel case.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from wirelake import __version__
from wirelake.explore.export.selection import SLICE_ROWS
from wirelake.explore.model.conditions import Condition
from wirelake.explore.model.exchanges import COLUMNS, ExchangeFacts

if TYPE_CHECKING:
    import duckdb

__all__ = ["write_otlp"]

KIND_CLIENT: Final = 3
KIND_PRODUCER: Final = 4
STATUS_ERROR: Final = 2
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
_FAILED: Final = frozenset(("failed", "refused", "uncommitted", "rolled back"))
"""Outcomes that are errors."""
_TRANSPORTS: Final = {
    "tcp": "tcp",
    "tls": "tcp",
    "websocket": "tcp",
    "xmpp": "tcp",
    "udp": "udp",
    "dtls": "udp",
    "quic": "quic",
    "unix": "unix",
}
"""Transport -> the value that the convention for `network.transport` has."""


class _Exchange(ExchangeFacts):
    late: bool | None
    cancelled: bool | None
    progress: int | None
    attempts: int | None
    request_size: int | None
    response_size: int | None
    session: bytes | None
    request: bytes | None
    response: bytes | None
    transport: str | None
    client_host: str | None
    client_port: int | None
    server_host: str | None
    server_port: int | None


_SQL: Final = """
SELECT {columns}, e.late, e.cancelled, e.progress, e.attempts, e.request_size, e.response_size,
    e.session_id, e.request_message_id, e.response_message_id,
    s.transport, s.client_address, s.client_port, s.server_address, s.server_port
FROM exchanges e LEFT JOIN sessions s USING (session_id)
WHERE {where} ORDER BY {key} LIMIT {limit:d}
"""
_KEY: Final = (
    "coalesce(epoch_us(e.requested), epoch_us(e.answered), -1)",
    "coalesce(e.request_message_id, ''::BLOB)",
    "coalesce(e.response_message_id, ''::BLOB)",
    "coalesce(e.correlation_id, '')",
)
"""The order of spans: no two exchanges have the same."""


def write_otlp(connection: duckdb.DuckDBPyConnection, where: Condition, out: BinaryIO) -> int:
    """Write the exchanges of which the request or the answer is a message of a condition. Returns their number."""
    encode = msgspec.json.Encoder().encode
    out.write(b'{"resourceSpans":[')
    count, is_first = 0, True
    for some in _pages(connection, where):
        grouped: dict[str, list[dict[str, Any]]] = {}
        for one in some:
            grouped.setdefault(_sides(one)[0][0] or "unknown", []).append(_span(one))
        for service, spans in grouped.items():
            shown = {
                "resource": {"attributes": _attributes({"service.name": service})},
                "scopeSpans": [{"scope": {"name": "wirelake", "version": __version__}, "spans": spans}],
            }
            out.write(b"\n" if is_first else b",\n")
            out.write(encode(shown))
            is_first = False
        count += len(some)
    out.write(b"\n]}\n")
    return count


def _pages(connection: duckdb.DuckDBPyConnection, where: Condition, *, rows: int = SLICE_ROWS) -> Iterator[list[_Exchange]]:
    passing = f"SELECT m.message_id FROM messages m WHERE {where.sql}"
    chosen = f"(e.request_message_id IN ({passing}) OR e.response_message_id IN ({passing}))"
    values = [*where.values, *where.values]
    key = ", ".join(_KEY)
    after: tuple[object, ...] = ()
    while True:
        behind = f" AND ({key}) > (?, ?, ?, ?)" if after else ""
        sql = _SQL.format(columns=COLUMNS, where=chosen + behind, key=key, limit=rows)
        found = [_Exchange(*row) for row in connection.execute(sql, [*values, *after]).fetchall()]
        if found:
            yield found
        if len(found) < rows:
            return
        last = found[-1]
        when = next((one for one in (last.requested, last.answered) if one is not None), -1)
        after = (when, last.request or b"", last.response or b"", last.correlation or "")


def _sides(one: _Exchange) -> tuple[tuple[str | None, int | None], tuple[str | None, int | None]]:
    """The side that asked, and the one that was asked."""
    sides = ((one.client_host, one.client_port), (one.server_host, one.server_port))
    return sides[::-1] if one.requested_by == "server" else sides


def _span(one: _Exchange) -> dict[str, Any]:
    """An exchange as a span. One that was never answered, or never asked, has no duration."""
    start = one.requested if one.requested is not None else one.answered or 0
    end = max(start, one.answered if one.answered is not None else start)
    named = b"\0".join((one.request or b"", one.response or b"", (one.correlation or "").encode()))
    error = _error(one)
    is_call = one.kind == "request"
    span: dict[str, Any] = {
        "traceId": blake2b(named, digest_size=_TRACE_BYTES, person=b"trace").hexdigest(),
        "spanId": blake2b(named, digest_size=_SPAN_BYTES, person=b"span").hexdigest(),
        "name": (one.subject or one.protocol) if is_call else f"send {one.subject or one.protocol}",
        "kind": KIND_CLIENT if is_call else KIND_PRODUCER,
        "startTimeUnixNano": str(start * 1000),
        "endTimeUnixNano": str(end * 1000),
        "attributes": _attributes(_described(one, error, is_call=is_call)),
        "status": {} if error is None else {"code": STATUS_ERROR, "message": _MEANINGS.get(error, error)},
    }
    return span


_MEANINGS: Final = {"unanswered": "no answer was captured", "unasked": "an answer to no request that was captured"}


def _error(one: _Exchange) -> str | None:
    """The class of error that an exchange ended with; None if it succeeded."""
    if one.status in ("unanswered", "unasked"):
        return one.status
    return one.outcome if one.outcome in _FAILED else None


def _described(one: _Exchange, error: str | None, *, is_call: bool) -> dict[str, Any]:
    """Attributes by the conventions for calls or for messaging, and our own."""
    asking, asked = _sides(one)
    conventions: dict[str, Any] = {
        "network.protocol.name": one.protocol,
        "network.transport": _TRANSPORTS.get(one.transport or ""),
        "client.address": asking[0],
        "client.port": asking[1],
        "server.address": asked[0],
        "server.port": asked[1],
        "error.type": error,
        "session.id": None if one.session is None else one.session.hex(),
    }
    if is_call:
        conventions |= {"rpc.system.name": one.protocol, "rpc.method": one.subject}
    else:
        conventions |= {
            "messaging.system": one.protocol,
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": one.subject,
            "messaging.message.id": one.correlation,
            "messaging.message.envelope.size": one.request_size,
        }
    return conventions | {
        "wirelake.status": one.status,
        "wirelake.outcome": one.outcome,
        "wirelake.correlation_id": one.correlation,
        "wirelake.request_message_id": None if one.request is None else one.request.hex(),
        "wirelake.response_message_id": None if one.response is None else one.response.hex(),
        "wirelake.request_size": one.request_size,
        "wirelake.response_size": one.response_size,
        "wirelake.late": one.late,
        "wirelake.cancelled": one.cancelled,
        "wirelake.progress": one.progress,
        "wirelake.attempts": one.attempts,
    }


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes that have a value, as OTLP/JSON writes them."""
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}

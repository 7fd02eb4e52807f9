"""How records are printed: text for people, JSON objects, or fields with tabs or commas."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from wirelake import protocols
from wirelake.errors import UsageError
from wirelake.explore.formatting import duration, hex_dump, many, size
from wirelake.explore.reading.records import Answer, Message, Record, Unanswered, Unreadable, Unrecognised, Violation, address
from wirelake.protocols.analyzer import NO_TIME
from wirelake.text import ACTING, visible

__all__ = [
    "DEFAULT_FIELDS",
    "FIELDS",
    "check_fields",
    "csv_line",
    "field_line",
    "field_of",
    "json_line",
    "needs_own",
    "text_lines",
    "timestamp",
]

_EXCERPT: Final = 72
"""Characters of a body on a line of text."""
_INDENT: Final = "      "
_FORMULA: Final = ("=", "+", "-", "@")
_MOST_ANSWERS: Final = 3
"""Answers that one line of text names."""


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def timestamp(ts: int) -> str | None:
    """`2026-01-31T12:00:00.000001Z`; None for no time."""
    if ts == NO_TIME:
        return None
    seconds, micros = divmod(ts, 1_000_000)
    try:
        return f"{_second(seconds)}.{micros:06d}Z"
    except (OverflowError, ValueError, OSError):  # a year that no calendar here has
        return f"{seconds}.{micros:06d}"


# Text.


def text_lines(record: Record, *, whole: bool = False) -> str:
    """One line for a record; with `whole`, every field and the bytes of a message follow it."""
    if isinstance(record, Message):
        line = _message_text(record)
        return f"{line}\n{_whole_text(record)}" if whole else line
    if isinstance(record, Violation):
        return _violation_text(record)
    if isinstance(record, Unanswered):
        return _unanswered_text(record)
    if isinstance(record, Unreadable):
        return _unreadable_text(record)
    return _unrecognised_text(record)


def _message_text(message: Message) -> str:
    ends = f"{message.sender} → {message.receiver}"
    parts = [f"{message.number:>5} {timestamp(message.ts) or '-'} {ends} {message.protocol} {message.kind} {message.name}"]
    if message.subject is not None:
        parts.append(message.subject)
    if message.correlation_id is not None:
        parts.append(f"id={message.correlation_id}")
    parts.append(f"{message.size} B")
    if message.status == "faulty":
        parts.append(f"faulty: {message.fault}")
    if message.is_unconfirmed:
        parts.append("unconfirmed: it had not left when the connection broke")
    if message.verified is not None:
        parts.append("verified" if message.verified else "not verified")
    if message.answers:
        parts += map(_answer_text, message.answers[:_MOST_ANSWERS])
        if len(message.answers) > _MOST_ANSWERS:
            parts.append(f"and {len(message.answers) - _MOST_ANSWERS} more")
    if shown := _body_text(message):
        parts.append(shown)
    return visible("  ".join(parts))


def _answer_text(answer: Answer) -> str:
    verb = "answers" if answer.kind == "request" else "acknowledges"
    if answer.request is None:
        return f"{verb} no request that was seen"
    named = str(answer.request.number) if answer.request.number is not None else f"one of {timestamp(answer.request.ts) or 'before'}"
    took = "" if answer.latency is None else f" after {duration(answer.latency)}"
    late = " (late)" if answer.status == "late" else ""
    if answer.status == "confirmed" and answer.latency is None:
        return f"confirms {named}"
    if answer.by is not None:
        return f"{named} was answered by {answer.by}{took}{late}"
    return f"{verb} {named}{took}{late}"


def _body_text(message: Message) -> str:
    if message.body_json:
        text = message.body_json
    elif message.body:
        try:
            text = message.body[: 4 * _EXCERPT].decode()
        except UnicodeDecodeError:
            return message.body[: _EXCERPT // 3].hex(" ") + (" …" if len(message.body) > _EXCERPT // 3 else "")
    else:
        return ""
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def _whole_text(message: Message) -> str:
    fields: dict[str, object] = {name: find(message) for name, find in FIELDS.items() if name not in ("hex", "body", "body_json")}
    fields |= {f"{message.protocol}.{name}": value for name, value in (message.own or {}).items()}
    lines = [f"{_INDENT}{name}: {visible(_cell(value))}" for name, value in fields.items() if value not in (None, "", [])]
    for name in ("body_json", "body"):
        if value := getattr(message, name):
            lines.append(f"{_INDENT}{name}: {visible(_cell(value))}")
            break
    if message.raw is not None:
        lines.append(f"{_INDENT}hex:")
        lines += [f"{_INDENT}  {line}" for line in hex_dump(message.raw).split("\n")]
    return "\n".join(lines)


def _violation_text(broken: Violation) -> str:
    word = {"info": "note", "warning": "warning"}.get(broken.severity, "violation")
    clause = f" {broken.clause}" if broken.clause else ""
    where = f"at {broken.number}" if broken.number is not None else f"at byte {broken.offset:,} of {broken.source}"
    by = f" by {broken.culprit}" if broken.by is not None else ""
    when = "" if broken.message is not None else f" {timestamp(broken.ts) or '-'}"
    said = f"{broken.text}; {broken.detail}" if broken.detail else broken.text
    return visible(f"{_INDENT}!{when} {word}: {broken.protocol}{clause} {broken.rule} ({broken.severity}){by} {where}: {said}")


def _unanswered_text(waits: Unanswered) -> str:
    named = f"request {waits.request.number}" if waits.request.number is not None else f"a request of {timestamp(waits.request.ts) or '-'}"
    if waits.kind != "request":
        named = named.replace("request", "message")
    what = "was never answered" if waits.kind == "request" else "was never acknowledged"
    subject = f" {waits.subject}" if waits.subject else ""
    cancelled = ", cancelled" if waits.cancelled else ""
    return visible(
        f"{_INDENT}? unanswered: {waits.protocol} {named} of {waits.sender} to {waits.receiver}"
        f" (id={waits.correlation_id}{subject}{cancelled}) {what}"
    )


def _unreadable_text(lost: Unreadable) -> str:
    why = lost.reason if lost.text in ("", lost.reason) else f"{lost.reason}: {lost.text}"
    protocol = f" {lost.protocol}" if lost.protocol else ""
    return visible(
        f"{_INDENT}~ unreadable:{protocol} {many(lost.length, 'byte')} at byte {lost.offset:,} of {lost.source} ({lost.layer}): {why}"
    )


def _unrecognised_text(other: Unrecognised) -> str:
    packets = f"{many(other.packets, 'packet')}, {size(other.bytes)}"
    if other.server is None:
        return visible(f"{_INDENT}~ not recognised: {packets} of further hosts in {other.source}: {other.reason}")
    ends = f"{other.client} → {address(other.server, other.port)}"
    return visible(f"{_INDENT}~ not recognised: {other.transport} {ends}: {packets}: {other.reason}")


# JSON.

_encoder: Final = msgspec.json.Encoder(enc_hook=lambda value: value.hex() if isinstance(value, bytes) else str(value))


def _plain(value: Any) -> Any:
    """A value that JSON has: bytes become hex digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def _json(value: Any) -> str:
    try:
        text = _encoder.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate
        text = json.dumps(value, separators=(",", ":"), default=str)
    return text if text.isprintable() else ACTING.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def json_line(record: Record, fields: Iterable[str] = (), *, whole: bool = False) -> str:
    """One object; with `fields`, those of a message only."""
    if isinstance(record, Message):
        if fields:
            return _json({name: _plain(value) for name in fields if (value := field_of(record, name)) is not None})
        shown = _message_json(record)
        if whole:
            shown["fields"] = _plain(record.own or {})
            shown["hex"] = (record.raw or b"").hex()
        return _json(shown)
    return _json({name: value for name, value in _other_json(record).items() if value is not None})


def _message_json(message: Message) -> dict[str, object]:
    """The fields of a message that it has, as `FIELDS` names them; written out, because it is done for each of many."""
    ends = message.ends
    sender, receiver = (ends.client, ends.server) if message.to_server else (ends.server, ends.client)
    shown: dict[str, object] = {
        "type": "message",
        "number": message.number,
        "ts": timestamp(message.ts),
        "protocol": message.protocol,
        "from": sender,
        "to": receiver,
        "direction": "to_server" if message.to_server else "to_client",
        "transport": ends.transport,
        "kind": message.kind,
        "name": message.name,
        "subject": message.subject,
        "correlation_id": message.correlation_id,
        "size": message.size,
        "status": message.status,
        "fault": message.fault,
        "verified": message.verified,
    }
    if message.is_unconfirmed:
        shown["unconfirmed"] = True
    if message.violations:
        shown["rules"] = [broken.rule for broken in message.violations]
        shown["clauses"] = [broken.clause for broken in message.violations]
    if message.answers:
        shown["answers"] = _numbers(message) or None
        shown["latency_us"] = _latency(message)
    if message.body is not None:
        shown["body"] = message.body.hex()
    shown |= {
        "body_json": message.body_json,
        "session_id": message.session_id.hex(),
        "connection_id": message.connection_id.hex(),
        "message_id": message.message_id.hex(),
        "source": message.source,
        "offset": message.offset,
        "length": message.length,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _other_json(record: Violation | Unanswered | Unreadable | Unrecognised) -> Mapping[str, object]:
    if isinstance(record, Violation):
        return {
            "type": "violation",
            "number": record.number,
            "ts": timestamp(record.ts),
            "protocol": record.protocol,
            "rule": record.rule,
            "clause": record.clause,
            "severity": record.severity,
            "text": record.text,
            "detail": record.detail,
            "by": record.by,
            "client": record.ends.client,
            "server": record.ends.server,
            "session": record.session_id.hex(),
            "source": record.source,
            "offset": record.offset,
            "length": record.length,
        }
    if isinstance(record, Unanswered):
        return {
            "type": "unanswered",
            "number": record.request.number,
            "ts": timestamp(record.request.ts),
            "protocol": record.protocol,
            "kind": record.kind,
            "correlation_id": record.correlation_id,
            "subject": record.subject,
            "cancelled": record.cancelled,
            "from": record.sender,
            "to": record.receiver,
            "session": record.session_id.hex(),
        }
    if isinstance(record, Unreadable):
        own = {name: getattr(record, name) for name in ("protocol", "layer", "reason", "text", "source", "offset", "length")}
        return {"type": "unreadable", "ts": timestamp(record.ts), **own}
    names = ("transport", "client", "server", "port", "packets", "bytes", "reason", "source")
    return {"type": "unrecognised", "ts": timestamp(record.ts), **{name: getattr(record, name) for name in names}}


# Fields.


def _latency(message: Message) -> int | None:
    return next((answer.latency for answer in message.answers if answer.latency is not None), None)


def _numbers(message: Message) -> list[int]:
    return [answer.request.number for answer in message.answers if answer.request is not None and answer.request.number is not None]


FIELDS: Final[dict[str, Callable[[Message], object]]] = {
    "number": lambda message: message.number,
    "ts": lambda message: timestamp(message.ts),
    "protocol": lambda message: message.protocol,
    "from": lambda message: message.sender,
    "to": lambda message: message.receiver,
    "direction": lambda message: "to_server" if message.to_server else "to_client",
    "transport": lambda message: message.ends.transport,
    "kind": lambda message: message.kind,
    "name": lambda message: message.name,
    "subject": lambda message: message.subject,
    "correlation_id": lambda message: message.correlation_id,
    "size": lambda message: message.size,
    "status": lambda message: message.status,
    "fault": lambda message: message.fault,
    "verified": lambda message: message.verified,
    "unconfirmed": lambda message: message.is_unconfirmed or None,
    "rules": lambda message: [broken.rule for broken in message.violations],
    "clauses": lambda message: [broken.clause for broken in message.violations],
    "answers": _numbers,
    "latency_us": _latency,
    "body": lambda message: message.body,
    "body_json": lambda message: message.body_json,
    "session_id": lambda message: message.session_id,
    "connection_id": lambda message: message.connection_id,
    "message_id": lambda message: message.message_id,
    "source": lambda message: message.source,
    "offset": lambda message: message.offset,
    "length": lambda message: message.length,
    "hex": lambda message: message.raw,
}
"""Field of a message -> its value. Further ones are `protocol.column`, of the protocol's own table."""

DEFAULT_FIELDS: Final = (
    "number",
    "ts",
    "protocol",
    "from",
    "to",
    "kind",
    "name",
    "subject",
    "correlation_id",
    "size",
    "status",
    "rules",
    "latency_us",
)
"""What `fields` and `csv` print unless fields are named."""


def check_fields(names: Iterable[str]) -> None:
    """Raise UsageError if there is no such field."""
    for name in names:
        protocol, dot, column = name.partition(".")
        if name in FIELDS:
            continue
        if not dot or protocol.replace("-", "_") not in protocols.names():
            raise UsageError(
                f"-e {name}: there is no such field; choose one of {', '.join(FIELDS)}, or PROTOCOL.COLUMN such as emp.request_id"
            )
        known = protocols.get(protocol).columns().SCHEMA.names
        if column not in known:
            raise UsageError(f"-e {name}: {protocol} has no such column; choose one of {', '.join(known)}")


def needs_own(names: Iterable[str]) -> bool:
    """Whether a field is of a protocol's own table."""
    return any(name not in FIELDS for name in names)


def field_of(message: Message, name: str) -> object:
    """The value of a field; None if the message has none."""
    find = FIELDS.get(name)
    if find is not None:
        return find(message)
    protocol, _, column = name.partition(".")
    return (message.own or {}).get(column) if protocol.replace("-", "_") == message.protocol else None


def field_line(message: Message, fields: Iterable[str]) -> str:
    """The fields with tabs between them."""
    return "\t".join(visible(_cell(field_of(message, name))) for name in fields)


def csv_line(values: Iterable[object]) -> str:
    """Values with commas between them (RFC 4180); what a spreadsheet would run as a formula gets an apostrophe."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([_harmless(visible(_cell(value))) for value in values])
    return out.getvalue()


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) and not text.lstrip("+-").replace(".", "", 1).isdigit() else text


def _cell(value: object) -> str:
    """A value as one cell; nothing for None, several values with commas."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(one, (str, int)) for one in value):
        return ",".join(map(str, value))
    return _json(_plain(value)) if isinstance(value, (dict, list)) else str(value)

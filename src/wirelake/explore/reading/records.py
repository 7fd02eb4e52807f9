"""What reading a capture gives: messages, broken rules, unanswered requests, unreadable and unrecognised bytes."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from wirelake.explore.reading.matching import Held, Values
from wirelake.filters import FIELDS, Kind, field_of
from wirelake.protocols.analyzer import NO_TIME

__all__ = [
    "LATE_MICROS",
    "SHOWN_BYTES",
    "Answer",
    "Broken",
    "Ends",
    "Message",
    "Record",
    "Request",
    "Unanswered",
    "Unreadable",
    "Unrecognised",
    "Violation",
    "address",
]

SHOWN_BYTES: Final = 64 << 10
"""Bytes of a field that are kept."""
LATE_MICROS: Final = 30_000_000
"""An answer that takes longer than this is late, as in a lake."""


def address(host: str | None, port: int | None) -> str:
    """`host:port`; a host alone if there is no port."""
    shown = f"[{host}]" if host and ":" in host else host or ""
    return f"{shown}:{port}" if port else shown


class Ends(NamedTuple):
    """Both sides of a connection."""

    transport: str
    client: str
    """As `host:port`."""
    server: str
    hosts: tuple[str, str]
    ports: tuple[int, int]


NOWHERE: Final = Ends("", "", "", ("", ""), (0, 0))
"""The sides of a connection that is not known."""


class Request(NamedTuple):
    """A request, as its answer names it."""

    number: int | None
    """The number of its message; None if it was too long ago, or not captured."""
    ts: int
    message_id: bytes


class Answer(NamedTuple):
    """A request and its answer, as far as they were captured."""

    kind: str
    """`request` or `delivery`."""
    request: Request | None
    status: str
    """As in the table `exchanges`: `answered`, `late`, `confirmed` or `unasked`."""
    latency: int | None
    """Microseconds; None without a request, or without times."""
    outcome: str | None
    correlation_id: str
    by: int | None = None
    """The number of the answer, if it is not the message that shows this."""


class Broken(NamedTuple):
    """A rule that a message breaks."""

    rule: str
    clause: str | None
    severity: str


class Message(msgspec.Struct, gc=False):
    """One message."""

    message_id: bytes
    session_id: bytes
    connection_id: bytes
    ts: int
    protocol: str
    to_server: bool
    kind: str
    name: str
    subject: str | None
    correlation_id: str | None
    size: int
    status: str
    fault: str | None
    body: bytes | None
    body_json: str | None
    verified: bool | None
    source: str
    offset: int
    length: int
    number: int = 0
    ends: Ends = NOWHERE
    answers: tuple[Answer, ...] = ()
    violations: tuple[Broken, ...] = ()
    is_unconfirmed: bool = False
    """It had not left its sender when the connection broke, as far as was known when it was read."""
    own: dict[str, object] | None = None
    """Every field of the protocol's own table, if it was asked for."""
    raw: bytes | None = None
    """Its bytes, if they were asked for."""

    @property
    def sender(self) -> str:
        """The side that sent it, as `host:port`."""
        return self.ends.client if self.to_server else self.ends.server

    @property
    def receiver(self) -> str:
        """The other side."""
        return self.ends.server if self.to_server else self.ends.client

    def values(self, names: Iterable[str] = FIELDS) -> Values:
        """The fields of these names, as filters see them."""
        return {name: _VALUES[name](self) if name in _VALUES else self._own(name) for name in names}

    def _own(self, name: str) -> Held:
        """A column of the protocol's own table, as `protocol.column`: bytes as hex digits, truth values as words."""
        protocol, _, column = name.partition(".")
        held: object = None if self.own is None or protocol != self.protocol else self.own.get(column)
        if held is None:
            return None
        about = field_of(name)
        is_number = about is not None and about.kind is Kind.NUMBER
        return [_plain(one, is_number=is_number) for one in (held if isinstance(held, list) else [held]) if one is not None]


def _plain(value: object, *, is_number: bool) -> str | float:
    if is_number:
        return value if isinstance(value, (int, float)) else int(str(value))  # a decimal comes as text
    if isinstance(value, bytes):
        return value.hex()
    return str(value).lower() if isinstance(value, bool) else str(value)


_SHOWN: Final = bytes(byte if 32 <= byte < 127 and byte != 92 else 127 for byte in range(256))
"""Byte -> the byte that filters see in a body that is not UTF-8, as in `explore/model/conditions.py`."""


def _bodies(message: Message) -> list[str] | None:
    """The body as text, and as JSON. A body that was cut may end inside a character."""
    if message.body is None:
        return None if message.body_json is None else [message.body_json]
    try:
        text = utf_8_decode(message.body, "strict", len(message.body) < SHOWN_BYTES)[0]
    except UnicodeDecodeError:
        text = message.body.translate(_SHOWN).decode("ascii")
    return [text] if message.body_json is None else [text, message.body_json]


def _latency(message: Message) -> float | None:
    latencies = [answer.latency for answer in message.answers if answer.latency is not None]
    return min(latencies) / 1e6 if latencies else None


def _statuses(message: Message) -> str | list[str]:
    if message.is_unconfirmed:
        return [message.status, "unconfirmed"]
    return [message.status, *(answer.status for answer in message.answers)] if message.answers else message.status


def _rules(message: Message) -> list[str] | None:
    return [word for one in message.violations for word in (one.rule, one.clause or "")] or None


_VALUES: Final[dict[str, Callable[[Message], Held]]] = {
    "type": lambda message: "message",  # noqa: ARG005 - a function like the others
    "protocol": lambda message: message.protocol,
    "kind": lambda message: message.kind,
    "name": lambda message: message.name,
    "subject": lambda message: message.subject,
    "body": _bodies,
    "id": lambda message: message.correlation_id,
    "status": _statuses,
    "rule": _rules,
    "severity": lambda message: [one.severity for one in message.violations] or None,
    "host": lambda message: message.ends.hosts,
    "port": lambda message: message.ends.ports,
    "from": lambda message: message.sender,
    "to": lambda message: message.receiver,
    "transport": lambda message: message.ends.transport,
    "session": lambda message: message.session_id.hex(),
    "connection": lambda message: message.connection_id.hex(),
    "source": lambda message: message.source,
    "number": lambda message: message.number,
    "size": lambda message: message.size,
    "latency": _latency,
    "ts": lambda message: None if message.ts == NO_TIME else message.ts,
}
"""Field of a filter -> its value of a message."""


class Violation(msgspec.Struct, gc=False):
    """A broken rule, where it was broken."""

    rule: str
    clause: str | None
    severity: str
    """See `Severity`: `warning` and `info` are no violations."""
    text: str
    ts: int
    protocol: str
    by: str | None
    """`client`, `server`, or None if it is not known which side is at fault."""
    session_id: bytes
    source: str
    offset: int
    length: int
    ends: Ends = NOWHERE
    message: Message | None = None
    """The message that broke it, if that is the one just read."""
    detail: str | None = None
    """What was measured, such as how long an answer took."""
    number: int | None = None
    """The number of the message that broke it; None for bytes that are no message, and for what is missing."""

    @property
    def culprit(self) -> str:
        """The side at fault, as `client host:port`; empty if it is not known."""
        if self.by is None:
            return ""
        return f"{self.by} {self.ends.client if self.by == 'client' else self.ends.server}".rstrip()

    def values(self, names: Iterable[str] = FIELDS) -> Values:
        """The fields that filters see: those of its message, too."""
        own: dict[str, Held] = {
            "type": "violation",
            "protocol": self.protocol,
            "rule": (self.rule, self.clause or ""),
            "severity": self.severity,
            "host": self.ends.hosts,
            "port": self.ends.ports,
            "transport": self.ends.transport,
            "session": self.session_id.hex(),
            "source": self.source,
            "number": self.number,
            "ts": None if self.ts == NO_TIME else self.ts,
        }
        return {**(self.message.values(names) if self.message is not None else {}), **own}


class Unanswered(msgspec.Struct, gc=False):
    """A request that was never answered, or a message on a channel that was never acknowledged."""

    kind: str
    """`request` or `delivery`."""
    request: Request
    protocol: str
    correlation_id: str
    subject: str | None
    by_client: bool
    cancelled: bool
    session_id: bytes
    ends: Ends = NOWHERE

    @property
    def sender(self) -> str:
        """The side that waits."""
        return self.ends.client if self.by_client else self.ends.server

    @property
    def receiver(self) -> str:
        """The side that owes the answer."""
        return self.ends.server if self.by_client else self.ends.client

    def values(self, names: Iterable[str] = FIELDS) -> Values:
        """The fields that filters see."""
        del names  # it has few
        return {
            "type": "unanswered",
            "status": "unanswered",
            "protocol": self.protocol,
            "kind": "request" if self.kind == "request" else "event",
            "subject": self.subject,
            "id": self.correlation_id,
            "host": self.ends.hosts,
            "port": self.ends.ports,
            "from": self.sender,
            "to": self.receiver,
            "transport": self.ends.transport,
            "session": self.session_id.hex(),
            "number": self.request.number,
            "ts": None if self.request.ts == NO_TIME else self.request.ts,
        }


class Unreadable(msgspec.Struct, gc=False):
    """Bytes that are no message and break no rule: a gap in the capture, or damage of the file."""

    layer: str
    reason: str
    text: str
    source: str
    offset: int
    length: int
    ts: int
    protocol: str | None
    ends: Ends = NOWHERE

    def values(self, names: Iterable[str] = FIELDS) -> Values:
        """The fields that filters see."""
        del names  # it has few
        return {
            "type": "unreadable",
            "protocol": self.protocol,
            "rule": (self.reason,),
            "host": self.ends.hosts,
            "port": self.ends.ports,
            "source": self.source,
            "ts": None if self.ts == NO_TIME else self.ts,
        }


class Unrecognised(msgspec.Struct, gc=False):
    """Traffic of no known protocol, by host and port."""

    source: str
    transport: str | None
    client: str | None
    server: str | None
    port: int | None
    reason: str
    packets: int
    bytes: int
    ts: int = NO_TIME

    def values(self, names: Iterable[str] = FIELDS) -> Values:
        """The fields that filters see."""
        del names  # it has few
        return {
            "type": "unrecognised",
            "host": tuple(host for host in (self.client, self.server) if host),
            "port": self.port,
            "transport": self.transport,
            "source": self.source,
            "ts": None if self.ts == NO_TIME else self.ts,
        }


Record = Message | Violation | Unanswered | Unreadable | Unrecognised

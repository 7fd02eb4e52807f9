"""Requests and responses of one session, paired as an observer sees them.

Neither EMP nor YAMP limits the requests in flight, and a request may never be answered. So memory needs a limit here: a side's oldest
requests are told as unanswered once `MAX_WAITING` later ones wait, and are forgotten. The answer to one of them matches nothing then, and
breaks no rule: an observer that has forgotten requests of a side cannot know what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from wirelake.protocols.analyzer import NO_TIME, Exchange, Part, SeenMessage, SessionAnalyzer
from wirelake.protocols.connections import UNCONFIRMED, ConnectionEvent
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.used_ids import UsedKeys, UsedNumbers

if TYPE_CHECKING:
    from wirelake.protocols.bulk_pairs import Stretch

__all__ = ["ANSWER", "MAX_WAITING", "OTHER", "REQUEST", "Correlated", "PairColumns", "PairingAnalyzer", "Pending", "RequestPairs"]

MAX_WAITING: Final = 32_768
"""Requests of one side that may wait for an answer; twice as many at most, so that forgetting costs little."""


REQUEST: Final = 1
"""Kind of a message in bulk: a request that breaks no rule, unless its id is in flight."""
ANSWER: Final = 2
"""The last answer to a request, without a fault."""
OTHER: Final = 3
"""About a request in another way: progress, a cancel, a large message."""


class Correlated(NamedTuple):
    """What many messages say about requests, as arrays with an entry for each."""

    kind: Any
    """`REQUEST`, `ANSWER`, `OTHER`, or 0: not about a request."""
    by_client: Any
    """Whether the request is the client's."""
    ids: Any
    """Correlation ids as numbers from 0."""
    find: Callable[[Iterable[str]], Any]
    """The numbers of those of these correlation ids that are there."""
    alone: Any = None
    """Messages after which it must be asked again whether pairs can be told; None: there are none."""
    has_own: Any = None
    """Messages with an identifier that no other message of the same side may have; None: there are none."""
    own: Callable[[Any], Any] | None = None
    """These identifiers of messages at some places, as numbers of 64 bits or keys of 16 bytes."""
    used: Callable[[bool], UsedNumbers | UsedKeys] | None = None
    """Those that the client used, or the server."""


class PairColumns(NamedTuple):
    """Columns that have what is to be told of a request and its answer."""

    correlation_id: str
    """Of the request."""
    subject: str | None = None
    """Of the request; None: there is no subject."""
    outcome: str | None = None
    """Of the answer; None: it is always `returned`."""
    outcomes: Mapping[Any, str] = {}
    """Value of that column -> outcome."""


class Pending(msgspec.Struct, gc=False, array_like=True):
    """A request that waits for its answer."""

    sent: Part
    subject: str | None
    progress: int = 0
    cancelled: bool = False
    note: str | None = None
    """What the protocol wants to remember of it."""
    progressive: bool = True
    """Whether it asked for progress, in protocols where a request says so."""
    killed: int = NO_TIME
    """When its side lost interest in an answer, in protocols where it says so."""


class RequestPairs(msgspec.Struct):
    """Pairs requests with responses.

    Messages with the same correlation id that belong to requests of the same side take turns: a request opens, a response closes, and the
    id is free again. A request while one is open is a repetition, and the earlier one stays unanswered. A response while none is open
    matches nothing. Messages that break a rule by themselves must be left out: a receiver stops there.
    """

    of_client: dict[str, Pending] = msgspec.field(default_factory=dict)
    """Correlation id -> request, oldest first; a stored state keeps the order."""
    of_server: dict[str, Pending] = msgspec.field(default_factory=dict)
    client_forgotten: bool = False
    """Whether the client had too many requests: a response that matches nothing may have had one."""
    server_forgotten: bool = False

    def ask(self, message: SeenMessage, correlation_id: str, subject: str | None, progressive: bool = True) -> Exchange | None:
        """A request. Returns the exchange of an earlier one with the same id that was never answered.

        A repetition does not change whether progress was asked for: a receiver keeps the first request (YAMP-15).
        """
        pending = self.of_client if message.to_server else self.of_server
        before = pending.pop(correlation_id, None)
        if before is not None:
            progressive = before.progressive
        pending[correlation_id] = Pending(Part(message.ts, message.message_id, message.size), subject, 0, False, None, progressive)
        return None if before is None else _unanswered(message.to_server, correlation_id, before)

    def waiting(self, by_client: bool, correlation_id: str) -> Pending | None:
        """The request of that side that waits for an answer with this id."""
        return (self.of_client if by_client else self.of_server).get(correlation_id)

    def answer(self, message: SeenMessage, correlation_id: str, subject: str | None, outcome: str | None = "returned") -> Exchange:
        """A response; without a waiting request `sent` is None, the subject is its own, and nothing is known of an outcome."""
        asked = (self.of_server if message.to_server else self.of_client).pop(correlation_id, None)
        part = Part(message.ts, message.message_id, message.size)
        if asked is None:
            return Exchange(not message.to_server, correlation_id, subject, None, part, None, False, 0, None)
        return Exchange(
            not message.to_server,
            correlation_id,
            asked.subject,
            asked.sent,
            part,
            asked.progress,
            asked.cancelled,
            1,
            asked.note or outcome,
        )

    def forget(self, by_client: bool) -> list[Exchange]:
        """The exchanges of requests that no longer wait, because too many of that side do: the oldest, in order."""
        pending = self.of_client if by_client else self.of_server
        if len(pending) <= 2 * MAX_WAITING:
            return []
        oldest, kept = split_oldest(pending, MAX_WAITING)
        if by_client:
            self.of_client, self.client_forgotten = kept, True
        else:
            self.of_server, self.server_forgotten = kept, True
        return [_unanswered(by_client, correlation_id, request) for correlation_id, request in oldest]

    def drop(self, since: int, *, by_client: bool) -> None:
        """Forget requests of that side that were sent later: they had not left."""
        pending = {word: one for word, one in (self.of_client if by_client else self.of_server).items() if one.sent.ts <= since}
        if by_client:
            self.of_client = pending
        else:
            self.of_server = pending

    def unanswered(self) -> list[Exchange]:
        """The exchanges of all requests that still wait; none waits afterwards."""
        found = [
            _unanswered(by_client, correlation_id, pending)
            for by_client, waiting in ((True, self.of_client), (False, self.of_server))
            for correlation_id, pending in waiting.items()
        ]
        self.of_client.clear()
        self.of_server.clear()
        return found


class PairingAnalyzer(SessionAnalyzer):
    """An analyzer of a protocol with requests and responses."""

    PAIRS: ClassVar[PairColumns | None] = None
    """Where pairs are told from, for protocols whose messages can be paired in bulk (`bulk_pairs.py`); None: they cannot."""

    pairs: RequestPairs = msgspec.field(default_factory=RequestPairs)
    is_used: bool | None = None
    """In bulk: whether the identifier of the next message was used before; None: `message` finds out."""

    def event(self, event: ConnectionEvent) -> None:
        """See `SessionAnalyzer`. An event that comes after its messages is about those that wait."""
        SessionAnalyzer.event(self, event)
        if event.what == UNCONFIRMED:
            lost = self.unconfirmed[event.connection_id]
            self.pairs.drop(lost.since if lost.confirmed else lost.since - 1, by_client=lost.to_server)

    def end(self) -> None:
        """See `SessionAnalyzer`."""
        for exchange in self.pairs.unanswered():
            self._exchanged(exchange)
        SessionAnalyzer.end(self)

    # What pairing in bulk asks.

    @property
    def may_pair(self) -> bool:
        """Whether requests and answers that only pairing is about can be told without `message`, as things stand."""
        return True

    def correlated(self, stretch: Stretch) -> Correlated:
        """What messages say about requests."""
        raise NotImplementedError

    def names_of(self, stretch: Stretch) -> tuple[Any, list[str]]:
        """The names of messages, as numbers from 0, and the name of each number."""
        raise NotImplementedError

    def paired(self, by_client: Any, delays: Any) -> None:
        """Pairs were told in bulk: whether the client asked, and how long the answer took."""

    def _ask(self, message: SeenMessage, correlation_id: str, subject: str | None, progressive: bool = True) -> bool:
        """A request. Returns whether one with the same id was in flight."""
        pairs, by_client = self.pairs, message.to_server
        before = pairs.ask(message, correlation_id, subject, progressive)
        if before is not None:
            self._exchanged(before)
            return True
        if len(pairs.of_client if by_client else pairs.of_server) > 2 * MAX_WAITING:
            for exchange in pairs.forget(by_client):
                self._exchanged(exchange)
        return False

    def _answer(self, message: SeenMessage, correlation_id: str, subject: str | None, outcome: str | None = "returned") -> bool:
        """A response. Returns whether a request waited for it, or may have."""
        pairs = self.pairs
        exchange = pairs.answer(message, correlation_id, subject, outcome)
        self._exchanged(exchange)
        return exchange.sent is not None or (pairs.server_forgotten if message.to_server else pairs.client_forgotten)


def _unanswered(by_client: bool, correlation_id: str, pending: Pending) -> Exchange:
    return Exchange(by_client, correlation_id, pending.subject, pending.sent, None, None, pending.cancelled, 1, pending.note)

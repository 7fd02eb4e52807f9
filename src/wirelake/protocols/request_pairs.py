"""Requests and responses of one session, paired as an observer sees them."""

from __future__ import annotations

import msgspec

from wirelake.protocols.analyzer import Exchange, Part, SeenMessage

__all__ = ["Pending", "RequestPairs"]


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


class RequestPairs(msgspec.Struct):
    """Pairs requests with responses.

    Messages with the same correlation id that belong to requests of the same side take turns: a request opens, a response closes, and the
    id is free again. A request while one is open is a repetition, and the earlier one stays unanswered. A response while none is open
    matches nothing. Messages that break a rule by themselves must be left out: a receiver stops there.
    """

    of_client: dict[str, Pending] = msgspec.field(default_factory=dict)
    of_server: dict[str, Pending] = msgspec.field(default_factory=dict)

    def ask(self, message: SeenMessage, correlation_id: str, subject: str | None, progressive: bool = True) -> Exchange | None:
        """A request. Returns the exchange of an earlier one with the same id that was never answered.

        A repetition does not change whether progress was asked for: a receiver keeps the first request (YAMP-15).
        """
        pending = self.of_client if message.to_server else self.of_server
        before = pending.get(correlation_id)
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


def _unanswered(by_client: bool, correlation_id: str, pending: Pending) -> Exchange:
    return Exchange(by_client, correlation_id, pending.subject, pending.sent, None, None, pending.cancelled, 1, pending.note)

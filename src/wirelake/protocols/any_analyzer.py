"""The analyzer of protocols that bring none: it reads the table `messages`."""

from __future__ import annotations

from typing import ClassVar

from wirelake.protocols.analyzer import SeenMessage
from wirelake.protocols.request_pairs import PairingAnalyzer

__all__ = ["AnyAnalyzer", "MessageOfAnyProtocol"]


class MessageOfAnyProtocol(SeenMessage, gc=False):
    """A message as the table `messages` has it."""

    kind: str
    name: str
    subject: str | None
    correlation_id: str | None


class AnyAnalyzer(PairingAnalyzer):
    """The analyzer of a protocol that brings none.

    Requests are paired by `kind` and `correlation_id`, and messages are held to the state machine.
    """

    MESSAGE: ClassVar[type[SeenMessage]] = MessageOfAnyProtocol

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, MessageOfAnyProtocol)  # noqa: S101 - see MESSAGE
        kind = message.kind
        self._said(message.ts)
        if self.unproven:
            self._prove(message.connection_id, message.to_server)
        if kind == "handshake":
            self._greeted(message)
        if kind in ("error", "close"):
            self._parted(message, "error" if kind == "error" else "bye")
        elif kind != "ack":
            self.last_word = message.ts
        if message.fault is not None:
            self._found(message.fault, message, needs_whole=False)
        self._step(message, message.name)
        correlation_id = message.correlation_id
        if correlation_id is None or message.fault is not None:
            return
        if kind == "request":
            self._ask(message, correlation_id, message.subject)
        elif kind == "response":
            self._answer(message, correlation_id, message.subject)
        elif kind in ("progress", "cancel"):
            asked = self.pairs.waiting(message.to_server == (kind == "cancel"), correlation_id)
            if asked is not None:
                asked.progress += kind == "progress"
                asked.cancelled |= kind == "cancel"

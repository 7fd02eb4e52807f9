"""A link: what two peers have of each other's messages, whatever becomes of the connections between them.

Sessions come and go; the link stays until both sides shut it down or one has lost it. It refuses to know sockets, handshakes and clocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from wirelake.errors import LocalProtocolError
from wirelake.protocols.relink.events import LinkLost, LinkShutdown, MessageReceived, Noticed, PeerShutdown, SessionEvent
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.inbox import Inbox
from wirelake.protocols.relink.link.outbox import Outbox
from wirelake.protocols.relink.link.state import LinkState
from wirelake.protocols.relink.messages import Kind, Resume, Shutdown
from wirelake.protocols.relink.options import DEFAULT_OPTIONS, Endpoint, Options
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.relink.wire import encode

__all__ = ["LinkCore"]

_RESUME = encode(Resume())
_SHUTDOWN = encode(Shutdown())


class LinkCore:
    """One side of a link. After every call: drain `events()`, and let the session that is attached send its output."""

    def __init__(self, speaker: Speaker, endpoint: Endpoint, options: Options = DEFAULT_OPTIONS) -> None:
        self.speaker = speaker
        self.endpoint = endpoint
        self.options = options
        self.epoch = 0
        self.id = 0
        """§1: zero while there is no link."""
        self.owner: object | None = None
        """The session that is attached."""
        self.is_over = False
        """There is nothing to reconnect to: both sides shut down, or the link was lost and must not be replaced."""
        self.has_said_shutdown = False
        self.remote = ""
        """RELINK-33: whom it belongs to, as far as a listener knows."""
        self.expires: float | None = None
        """RELINK-24: when a listener gives it up, while no session is attached."""
        self.state = LinkState()
        self._start_anew(is_shutting=False)

    def _start_anew(self, *, is_shutting: bool) -> None:
        speaker, sizes = self.speaker, self.endpoint.id_sizes
        self.outbox = Outbox(self.state, self.options, id_size=sizes[speaker], transactional=self.endpoint.transactional(speaker))
        self.inbox = Inbox(self.state, self.options, transactional=self.endpoint.transactional(speaker.other))
        self.outbox.is_shutting = is_shutting
        self.epoch = self.id = 0
        self.state.strikes = 0

    @property
    def is_connected(self) -> bool:
        """A session is attached and its handshake is done."""
        return self.state.is_connected

    def events(self) -> list[SessionEvent]:
        """Take the events since the last call."""
        events, self.state.events = self.state.events, []
        return events

    def set_time(self, now: float) -> None:
        """Say what time it is, before packets of the peer are taken."""
        self.state.now = now

    def tick(self, now: float) -> None:
        """RELINK-18: send the acknowledgements that have waited long enough."""
        self.state.now = now
        self.inbox.tick()

    def packets(self) -> list[bytes]:
        """Take the packets to send now, with the acknowledgements that are due at once."""
        self.inbox.flush()
        packets, self.state.output = self.state.output, []
        return packets

    # What the application does.

    def send(self, channel: bytes, parts: tuple[bytes, ...]) -> int:
        """§3.1: a message on a channel of ours, opened by its first message; says its number."""
        if self.is_over:
            self._require_link()
        return self.outbox.send(channel, parts)

    def multicast(self, ids: Sequence[bytes], parts: tuple[bytes, ...]) -> list[int]:
        """§2.3: one message on many channels; says its number on each."""
        self._require_link()
        return self.outbox.multicast(ids, parts)

    def commit(self, channel: bytes, last: int | None = None) -> None:
        """§3.2: the peer is to process the undecided messages, all of them or up to a number."""
        self.outbox.decide(channel, last, commit=True)

    def rollback(self, channel: bytes, last: int | None = None) -> None:
        """§3.2: the peer is to ignore the undecided messages, all of them or up to a number."""
        self.outbox.decide(channel, last, commit=False)
        self._shut_if_drained()

    def close(self, channel: bytes) -> None:
        """§3.3: no more messages on a channel of ours."""
        self.outbox.close(channel)

    def consume(self, message: MessageReceived, now: float) -> None:
        """§3.1: a message of the peer was taken; it will be acknowledged (RELINK-18)."""
        self.state.now = now
        self.inbox.consume(message)

    def settle(self, message: MessageReceived, now: float, *, success: bool) -> None:
        """§3.2: a committed message of the peer was processed, or could not be."""
        self.state.now = now
        self.inbox.settle(message, success=success)

    def shutdown(self) -> None:
        """§3.6: close all channels of ours and, when they are, say that no more will be opened."""
        self.outbox.shut()
        self._shut_if_drained()

    # What a session does.

    def attach(self, owner: object, epoch: int, link_id: int, now: float, *, resumed: bool) -> None:
        """§1: a handshake agreed on this link."""
        self.owner, self.epoch, self.id, self.expires = owner, epoch, link_id, None
        self.state.now, self.state.is_connected, self.state.may_send = now, True, False
        self.state.output.clear()
        if resumed:
            self.state.output += self.inbox.restate()
            self.state.output.append(_RESUME)
            self.outbox.expect_resume()
        self.state.has_progressed = False  # only now: what is restated depends on the connection before
        if self.has_said_shutdown:  # RELINK-23: said again on every connection
            self.state.output.append(_SHUTDOWN)
        if not resumed:
            self.outbox.start()
            self._shut_if_drained()

    def detach(self, owner: object, now: float) -> None:
        """The connection is gone; the link is not."""
        if self.owner is owner:
            self.owner = None
            self.state.is_connected = self.state.may_send = False
            self.state.output.clear()
            self.inbox.forget_connection()
            lifetime = self.options.link_lifetime
            self.expires = None if lifetime is None else now + lifetime

    def take(self, kind: int, ids: tuple[bytes, ...], sequence: int | None, parts: tuple[bytes, ...]) -> None:
        """A packet of the peer; raises Breach."""
        if kind == Kind.MESSAGE:
            self.inbox.take_message(ids, parts)
        elif kind >= Kind.RECEIVED:
            self.outbox.take(kind, ids, sequence)
            if self.outbox.is_shutting:
                self._shut_if_drained()
        elif kind == Kind.CLOSE:
            self.inbox.take_close(ids)
        elif kind >= Kind.COMMIT:
            self.inbox.take_decision(ids, sequence, commit=kind == Kind.COMMIT)
        elif kind == Kind.RESUME:
            self._take_resume()
        elif kind == Kind.SHUTDOWN and not self.inbox.is_shut:
            self.inbox.is_shut = True
            self.state.events.append(PeerShutdown())

    def finish(self) -> bool:
        """§3.6: whether both sides shut down and nothing is left to consume; the link is over then."""
        if not (self.has_said_shutdown and self.inbox.is_shut) or self.inbox.waiting or self.is_over:
            return False
        self.inbox.acknowledge()
        self.is_over = True
        self.state.events.append(LinkShutdown())
        return True

    def lose(self, fault: Fault, *, replaced: bool = False) -> None:
        """RELINK-10, RELINK-32: the link is gone; what is unresolved is told. RELINK-23: nothing is lost if we had shut it down."""
        if self.has_said_shutdown and self.outbox.is_drained:
            self.is_over = True
            self.state.events.append(LinkShutdown())
        else:
            self.state.events.append(LinkLost(self.epoch, self.id, fault, self.outbox.unresolved(), replaced))
        self._start_anew(is_shutting=self.outbox.is_shutting)

    def strike(self) -> None:
        """RELINK-12: the peer broke a rule; too often without progress, and the link is lost."""
        self.state.strikes += 1
        if self.id and self.state.strikes >= self.options.max_strikes:
            self.lose(Fault.GIVEN_UP)

    # Inside.

    def _take_resume(self) -> None:
        if not self.outbox.is_resuming:  # RELINK-20
            self.state.events.append(Noticed(Fault.RESUME_UNEXPECTED))
            return
        self.outbox.resume()
        self._shut_if_drained()

    def _shut_if_drained(self) -> None:
        if self.outbox.is_shutting and not self.has_said_shutdown and self.outbox.is_drained:
            self.has_said_shutdown = True
            if self.state.is_connected:
                self.state.output.append(_SHUTDOWN)

    def _require_link(self) -> None:
        if self.is_over:
            raise LocalProtocolError(Fault.SHUTTING_DOWN, "the link is over")

"""A link: channels, messages and acknowledgements of two peers, across connections.

A session is attached while there is a connection. The link stays until both sides shut it down or one has lost it. Its sending half is
`outbox.py`, its receiving half `inbox.py`.
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
    """One side of a link. After every call: take `events()`, and let the attached session send its output."""

    def __init__(self, speaker: Speaker, endpoint: Endpoint, options: Options = DEFAULT_OPTIONS) -> None:
        self.speaker = speaker
        self.endpoint = endpoint
        self.options = options
        self.epoch = 0
        self.id = 0
        """§1: zero while there is no link."""
        self.owner: object | None = None
        """The attached session."""
        self.is_over = False
        """No reconnection is possible: both sides shut down, or the link was lost and must not be replaced."""
        self.has_said_shutdown = False
        self.remote = ""
        """RELINK-33: the address of the connector, as far as a listener knows."""
        self.expires: float | None = None
        """RELINK-24: when a listener gives the link up, while no session is attached."""
        self.state = LinkState()
        self._start_over(is_shutting=False)

    def _start_over(self, *, is_shutting: bool) -> None:
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

    @property
    def has_progressed(self) -> bool:
        """The connection, or the last one, was of use: the next may come soon.

        RELINK-22: not if it ended before the peer accepted the announcement of closed channels, whatever it said until then.
        """
        return self.state.has_progressed and not self.inbox.is_announcing

    def events(self) -> list[SessionEvent]:
        """Take the events since the last call."""
        events, self.state.events = self.state.events, []
        return events

    def set_time(self, now: float) -> None:
        """Set the time of the packets that follow."""
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

    # Calls of the application.

    def send(self, channel: bytes, parts: tuple[bytes, ...]) -> int:
        """§3.1: send a message on a channel of ours, which its first message opens; return its number."""
        if self.is_over:
            self._require_link()
        return self.outbox.send(channel, parts)

    def send_many(self, channel: bytes, bodies: Sequence[bytes]) -> int:
        """§3.1: send messages of one part each on a channel; return the number of the last."""
        self._require_link()
        return self.outbox.send_many(channel, bodies)

    def multicast(self, ids: Sequence[bytes], parts: tuple[bytes, ...]) -> list[int]:
        """§2.3: send one message on many channels; return its number on each."""
        self._require_link()
        return self.outbox.multicast(ids, parts)

    def commit(self, channel: bytes, last: int | None = None) -> None:
        """§3.2: let the peer process the undecided messages, all of them or up to a number."""
        self.outbox.decide(channel, last, commit=True)

    def rollback(self, channel: bytes, last: int | None = None) -> None:
        """§3.2: let the peer ignore the undecided messages, all of them or up to a number."""
        self.outbox.decide(channel, last, commit=False)
        self._shut_if_drained()

    def close(self, channel: bytes) -> None:
        """§3.3: send no more messages on a channel of ours."""
        self.outbox.close(channel)

    def consume(self, message: MessageReceived, now: float) -> None:
        """§3.1: the application consumed a message; acknowledge it (RELINK-18)."""
        self.state.now = now
        self.inbox.consume(message)

    def settle(self, message: MessageReceived, now: float, *, success: bool) -> None:
        """§3.2: the application processed a committed message, or could not."""
        self.state.now = now
        self.inbox.settle(message, success=success)

    def shutdown(self) -> None:
        """§3.6: close all channels of ours, then send shutdown: no more will be opened."""
        self.outbox.shut()
        self._shut_if_drained()

    # Calls of the session.

    def attach(self, owner: object, epoch: int, link_id: int, now: float, *, resumed: bool) -> None:
        """§1: a handshake agreed on this link."""
        self.owner, self.epoch, self.id, self.expires = owner, epoch, link_id, None
        self.state.now, self.state.is_connected, self.state.may_send = now, True, False
        self.state.has_progressed = False
        self.state.output.clear()
        if resumed:
            self.state.output += self.inbox.restate()
            self.state.output.append(_RESUME)
            self.outbox.expect_resume()
        if self.has_said_shutdown:  # RELINK-23: sent again on every connection
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

    def refuse(self) -> None:
        """RELINK-22: the peer itself closed the connection that was just detached; it was not reset."""
        if not self.state.is_connected:
            self.inbox.refuse()

    def take(self, kind: int, ids: tuple[bytes, ...], sequence: int | None, parts: tuple[bytes, ...]) -> None:
        """Take a packet of the peer; raise Violation if it breaks a rule."""
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
        """§3.6: end the link if both sides shut down and everything was consumed; return whether it ended."""
        if not (self.has_said_shutdown and self.inbox.is_shut) or self.inbox.waiting or self.is_over:
            return False
        self.inbox.acknowledge()
        self.is_over = True
        self.state.events.append(LinkShutdown())
        return True

    def lose(self, fault: Fault, *, replaced: bool = False) -> None:
        """RELINK-10, RELINK-32: the link is gone; report unresolved messages.

        RELINK-23: nothing is lost if we had shut it down.
        """
        if self.has_said_shutdown and self.outbox.is_drained:
            self.is_over = True
            self.state.events.append(LinkShutdown())
        else:
            self.state.events.append(LinkLost(self.epoch, self.id, fault, self.outbox.unresolved(), replaced))
        self._start_over(is_shutting=self.outbox.is_shutting)

    def strike(self) -> None:
        """RELINK-12: count a broken rule of the peer; too many without progress lose the link."""
        self.state.strikes += 1
        if self.id and self.state.strikes >= self.options.max_strikes:
            self.lose(Fault.GIVEN_UP)

    # Internal.

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

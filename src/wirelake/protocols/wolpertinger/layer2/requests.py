"""Calls in flight: ours that wait for a response, and the peer's being handled (WOLP-21)."""

from __future__ import annotations

import msgspec

from wirelake.protocols.expiries import Expiries
from wirelake.protocols.wolpertinger.events import Step

__all__ = ["IncomingCalls", "OutgoingCalls", "Pending"]


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A call of ours."""

    call_id: str
    method: str
    returns: bool
    timeout: float
    step: Step | None = None
    """It belongs to a step of authentication, not to the application."""


class OutgoingCalls:
    """The calls of ours without an outcome."""

    def __init__(self) -> None:
        self.pending: dict[str, Pending] = {}
        """By their id."""
        self._message_of: dict[str, int] = {}
        self._call_of: dict[int, str] = {}
        self.due: Expiries[str] = Expiries()
        """When to look for calls that waited too long; there may be none, if the peer showed a sign of life."""
        self._alive_at = float("-inf")

    def __len__(self) -> int:
        return len(self.pending)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self.pending

    def sent(self, call_id: str, message_id: int) -> None:
        """It was sent with this message; a call that was given up meanwhile is ignored."""
        if call_id in self.pending:
            self._message_of[call_id] = message_id
            self._call_of[message_id] = call_id

    def confirmed(self, message_id: int, now: float) -> Pending | None:
        """WOLP-21: its message arrived: the time for the response begins now.

        Returns a call without a response: it is done.
        """
        call_id = self._call_of.get(message_id)
        if call_id is None:
            return None
        pending = self.pending[call_id]
        if not pending.returns:
            return self.take(call_id)
        self.due.set(call_id, now + pending.timeout)
        return None

    def undelivered(self, message_id: int) -> Pending | None:
        """Its message did not arrive."""
        call_id = self._call_of.get(message_id)
        return None if call_id is None else self.take(call_id)

    def answered(self, call_id: str) -> tuple[int | None, Pending | None]:
        """A response or an error came: the message that carried the call, and the call; it is gone from here."""
        self.due.drop(call_id)
        message_id = self._message_of.pop(call_id, None)
        if message_id is not None:
            del self._call_of[message_id]
        return message_id, self.pending.pop(call_id, None)

    def take(self, call_id: str) -> Pending | None:
        """A call has an outcome, or is given up."""
        return self.answered(call_id)[1]

    def alive(self, now: float) -> None:
        """WOLP-21: the peer showed that it is alive: all calls have their time again."""
        self._alive_at = now

    def expire(self, now: float) -> list[Pending]:
        """Calls that waited too long."""
        expired = []
        for call_id in self.due.take(now):
            pending = self.pending[call_id]
            if self._alive_at + pending.timeout > now:
                self.due.set(call_id, self._alive_at + pending.timeout)
            else:
                self.take(call_id)
                expired.append(pending)
        return expired

    def clear(self) -> list[Pending]:
        """WOLP-28: all of them are given up."""
        gone = list(self.pending.values())
        self.pending.clear()
        self._message_of.clear()
        self._call_of.clear()
        self.due.clear()
        return gone


class IncomingCalls:
    """The calls of the peer that are being handled here."""

    def __init__(self, interval: float, max_void: int) -> None:
        self._interval = interval
        self._max_void = max_void
        self.awaited: dict[str, str] = {}
        """Calls that wait for a response -> their component."""
        self.void: dict[str, str] = {}
        """The latest calls without a response -> their component: they may still fail."""
        self.next_heartbeat: float | None = None
        """WOLP-21: when to send a heartbeat, because a call is still being handled."""

    def __len__(self) -> int:
        return len(self.awaited)

    def take(self, call_id: str, component: str, returns: bool, now: float) -> None:
        """The peer calls. Of calls without a response the latest are kept, because they may still fail."""
        if returns:
            self.awaited[call_id] = component
            if self.next_heartbeat is None:
                self.next_heartbeat = now + self._interval
            return
        self.void[call_id] = component
        if len(self.void) > self._max_void:
            del self.void[next(iter(self.void))]

    def component_of(self, call_id: str) -> str | None:
        """The component that handles a call; None: it is not open."""
        component = self.awaited.get(call_id)
        return self.void.get(call_id) if component is None else component

    def finish(self, call_id: str) -> None:
        """A call was answered, or needs no answer."""
        if self.awaited.pop(call_id, None) is None:
            self.void.pop(call_id, None)
        if not self.awaited:
            self.next_heartbeat = None

    def beat(self, now: float) -> bool:
        """Whether a heartbeat is due; the next one is then later."""
        if self.next_heartbeat is None or now < self.next_heartbeat:
            return False
        self.next_heartbeat = now + self._interval
        return True

    def clear(self) -> None:
        """WOLP-28: none of them needs an answer any more."""
        self.awaited.clear()
        self.void.clear()
        self.next_heartbeat = None

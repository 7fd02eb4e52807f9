"""The sending half of a wolpertinger session: calls, responses, errors, and output.

`BaseSession` holds the state that sending and receiving share. `session.py` derives `Session` from it, which adds the receiving half,
authentication and reset. Use `Session`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirelake.errors import LocalProtocolError, SessionClosed
from wirelake.protocols.buffer import LARGE
from wirelake.protocols.stream_session import StreamSession
from wirelake.protocols.wolpertinger.events import Ended, SessionEvent, Step
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.endpoint import Layer1
from wirelake.protocols.wolpertinger.layer1.lines import Lines
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.requests import IncomingCalls, OutgoingCalls, Pending
from wirelake.protocols.wolpertinger.layer2.values import Value
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.wolpertinger.state_machine import CORE, INITIAL, TRANSITIONS, Speaker, State, message_kind, refusal
from wirelake.protocols.wolpertinger.trust.authentication import Authentication, Draw
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState
from wirelake.protocols.wolpertinger.wire import buffer

__all__ = ["BaseSession"]


class BaseSession(StreamSession[SessionEvent]):
    """State of a session, and everything that it sends on behalf of its owner."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, *, draw: Draw, trust_state: TrustState = STRANGER) -> None:
        self.speaker = speaker
        self.peer = speaker.other
        self.options = options
        self.trust_state = trust_state
        self.state = INITIAL if trust_state.keys is None else State.ENCRYPTED
        self.ended: Ended | None = None
        self.available = True
        """WOLP-10: whether the peer confirms messages, as far as we know."""
        self._document_limits = options.documents
        self._dotnet = options.dotnet
        self._max_calls = options.max_calls
        self._draw = draw
        self._layer1 = Layer1(options, trust_state.keys)
        self._buffer: Lines = buffer(options.limits)
        self._authentication = Authentication(options, draw)
        self._requests: OutgoingCalls = OutgoingCalls()
        self._peer_requests: IncomingCalls = IncomingCalls(options.heartbeat_interval, options.max_calls)
        self._waiting: list[tuple[Call | Response | Error, bytes]] = []
        self._events: list[SessionEvent] = []

    # Output.

    def output(self) -> bytes:
        """WOLP-11: take the lines to send now."""
        if not (messages := self._layer1.messages()):
            return b""
        data = b"\n".join(messages) + b"\n"
        if len(data) > LARGE:
            self.sent_sizes = [len(message) + 1 for message in messages]
        elif self.sent_sizes:
            self.sent_sizes = ()
        return data

    def messages(self) -> list[bytes]:
        """Take the texts to send now, for transports that keep them apart."""
        return self._layer1.messages()

    @property
    def deadline(self) -> float | None:
        """When to call `tick` next."""
        if self.ended is not None:
            return None
        layer1, first = self._layer1, self._requests.due.first
        timers = [layer1.unconfirmed.due.first, self._peer_requests.next_heartbeat]
        if layer1.assembly.sets or self._authentication.goal is not None:
            timers += (layer1.assembly.deadline, self._authentication.deadline)
        for timer in timers:
            if timer is not None and (first is None or timer < first):
                first = timer
        return first

    @property
    def inflated(self) -> int:
        """See Drivable."""
        return self._layer1.inflated

    # Calls of the owner.

    def call(
        self,
        component: str,
        method: str,
        parameters: Sequence[Value] = (),
        now: float = 0.0,
        *,
        returns: bool = True,
        timeout: float | None = None,
    ) -> str:
        """RemoteMethodCall: call a method of the peer.

        Return the call_id, which the event of its outcome has, too.
        """
        if self.ended is not None:
            self._require_open()
        return self._call(component, method, tuple(parameters), now, returns=returns, timeout=timeout)

    def cancel(self, call_id: str) -> None:
        """Give a call up; its answer will be ignored. The protocol has no message to tell the peer."""
        self._requests.take(call_id)

    def respond(self, call_id: str, value: Value | None, now: float) -> bool:
        """RemoteMethodResponse: answer a call of the peer; return whether it is open.

        A void method has no answer (WOLP-19).
        """
        requests = self._peer_requests
        if self.ended is not None:
            return False
        if (component := requests.awaited.get(call_id)) is not None:
            self._send(Response(component, call_id, value), now)
        elif call_id not in requests.void:
            return False
        requests.finish(call_id)
        return True

    def fail(self, call_id: str, code: int, now: float) -> bool:
        """RemoteError: fail a call of the peer; return whether it is open.

        Only codes of the schema are sent (WOLP-15).
        """
        component = self._peer_requests.component_of(call_id)
        if component is None or self.ended is not None:
            return False
        self._send(Error(component, code, call_id), now)
        self._peer_requests.finish(call_id)
        return True

    def done(self, call_id: str) -> None:
        """Forget a call of the peer that has no response; this saves memory, nothing else."""
        self._peer_requests.finish(call_id)

    def send_error(self, component: str, code: int, now: float) -> None:
        """RemoteError: send an error that no call of the peer caused."""
        self._require_open()
        self._send(Error(component, code), now)

    # Internal: sending.

    def _advance(self, speaker: Speaker, kind: type[Any]) -> bool:
        """Change the state, here and nowhere else; return whether the table allows the message."""
        after = TRANSITIONS.get((self.state, speaker, kind))
        if after is None:
            return False
        self.state = after
        return True

    def _call_id(self) -> str:
        """WOLP-14: a fresh guid in lower case."""
        digits = self._draw(16).hex()
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"

    def _call(
        self,
        component: str,
        method: str,
        parameters: tuple[Value, ...],
        now: float,
        *,
        returns: bool,
        timeout: float | None,
        step: Step | None = None,
    ) -> str:
        if len(self._requests.pending) >= self._max_calls and step is None:  # WOLP-29
            raise LocalProtocolError(Fault.CALLS_OVER_LIMIT, f"{len(self._requests)} calls")
        call_id = self._call_id()
        pending = Pending(call_id, method, returns, self.options.call_timeout if timeout is None else timeout, step)
        self._requests.pending[call_id] = pending
        try:
            self._send(Call(component, method, call_id, parameters), now, at_once=step is Step.KEYS)
        except LocalProtocolError:
            self._requests.take(call_id)
            raise
        return call_id

    def _send(self, message: Call | Response | Error, now: float, *, at_once: bool = False) -> None:
        """Send a message; while a KeyExchange of ours is not answered, keep it until then."""
        document = documents.encode(message, dotnet=self._dotnet)
        if self._authentication.offer is not None and not at_once:
            self._waiting.append((message, document))
        else:
            self._send_now(message, document, now)

    def _send_now(self, message: Call | Response | Error, document: bytes, now: float) -> None:
        kind = message_kind(message, self._layer1.keys is not None)
        if not self._advance(self.speaker, kind):
            raise LocalProtocolError(refusal(self.state, self.speaker, kind))
        message_id = self._layer1.send(document, now)
        if isinstance(message, Call):
            self._requests.sent(message.call_id, message_id)

    def _send_waiting(self, now: float) -> None:
        """Send the messages that waited for keys."""
        waiting, self._waiting = self._waiting, []
        for message, document in waiting:
            self._send_now(message, document, now)

    def _notice(self) -> Call:
        return Call(CORE, "SendResetNotice", self._call_id())

    def _require_open(self) -> None:
        if self.ended is not None:
            raise SessionClosed(str(self.ended.reason()))

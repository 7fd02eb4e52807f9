"""What one side of a wolpertinger session says: calls and their answers, each a document that is delivered; and what is still awaited.

It refuses to know what the peer says: `session.py` does. See there for how it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wirelake.errors import LocalProtocolError, SessionClosed
from wirelake.protocols.stream_session import StreamSession
from wirelake.protocols.wolpertinger.events import Ended, SessionEvent, Step
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.endpoint import Layer1
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.layer2.requests import IncomingCalls, OutgoingCalls, Pending
from wirelake.protocols.wolpertinger.layer2.values import Value
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.wolpertinger.state_machine import CORE, INITIAL, TRANSITIONS, Speaker, State, refusal, utterance
from wirelake.protocols.wolpertinger.trust.authentication import Authentication, Draw
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState
from wirelake.protocols.wolpertinger.wire import buffer

__all__ = ["OutgoingSide"]


class OutgoingSide(StreamSession[SessionEvent]):
    """What a session does whatever it hears."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, *, draw: Draw, trust_state: TrustState = STRANGER) -> None:
        self.speaker = speaker
        self.peer = speaker.other
        self.options = options
        self.trust_state = trust_state
        self.state = INITIAL if trust_state.keys is None else State.ENCRYPTED
        self.ended: Ended | None = None
        self.available = True
        """WOLP-10: whether the peer confirms what it is sent, as far as we know."""
        self._draw = draw
        self._link = Layer1(options, trust_state.keys)
        self._buffer = buffer(options.limits)
        self._trust = Authentication(options, draw)
        self._requests: OutgoingCalls = OutgoingCalls()
        self._peer_requests: IncomingCalls = IncomingCalls(options.heartbeat_interval, options.max_calls)
        self._held: list[tuple[Call | Response | Error, bytes]] = []
        self._events: list[SessionEvent] = []

    # What comes out.

    def output(self) -> bytes:
        """WOLP-11: the lines to send now; they are gone from here."""
        return self._join([b"%b\n" % message for message in self._link.messages()])

    def messages(self) -> list[bytes]:
        """The same, text by text, for transports that keep them apart."""
        return self._link.messages()

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next, whatever else happens."""
        if self.ended is not None:
            return None
        first = self._link.deadline
        for timer in (self._requests.deadline, self._peer_requests.next_heartbeat, self._trust.deadline):
            if timer is not None and (first is None or timer < first):
                first = timer
        return first

    # What the caller does.

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
        """RemoteMethodCall: call a method of the peer; the identifier is in the event that says what came of it."""
        self._require_open()
        return self._call(component, method, tuple(parameters), now, returns=returns, timeout=timeout)

    def cancel(self, call_id: str) -> None:
        """Give a call up; what still comes of it is ignored. The peer does not hear of it: there is no word for that."""
        self._requests.take(call_id)

    def respond(self, call_id: str, value: Value | None, now: float) -> bool:
        """RemoteMethodResponse: answer a call of the peer; says whether it still waits. A void method has no answer (WOLP-19)."""
        component = self._peer_requests.component_of(call_id)
        if component is None or self.ended is not None:
            return False
        if self._peer_requests.is_awaited(call_id):
            self._post(Response(component, call_id, value), now)
        self._peer_requests.finish(call_id)
        return True

    def fail(self, call_id: str, code: int, now: float) -> bool:
        """RemoteError: a call of the peer failed; says whether there is such a call. Only codes of the schema are sent (WOLP-15)."""
        component = self._peer_requests.component_of(call_id)
        if component is None or self.ended is not None:
            return False
        self._post(Error(component, code, call_id), now)
        self._peer_requests.finish(call_id)
        return True

    def done(self, call_id: str) -> None:
        """A call of the peer without a response is over; saying so saves memory, nothing else."""
        self._peer_requests.finish(call_id)

    def send_error(self, component: str, code: int, now: float) -> None:
        """RemoteError: tell the peer of an error that no call of it caused."""
        self._require_open()
        self._post(Error(component, code), now)

    # Inside: saying.

    def _advance(self, speaker: Speaker, said: type[Any]) -> bool:
        """The only place where the state changes."""
        after = TRANSITIONS.get((self.state, speaker, said))
        if after is None:
            return False
        self.state = after
        return True

    def _call_id(self) -> str:
        """WOLP-14: a fresh guid in lower case."""
        drawn = self._draw(16).hex()
        return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-8{drawn[17:20]}-{drawn[20:]}"

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
        if len(self._requests) >= self.options.max_calls and step is None:  # WOLP-29
            raise LocalProtocolError(Fault.CALLS_OVER_LIMIT, f"{len(self._requests)} calls")
        call_id = self._call_id()
        pending = Pending(call_id, method, returns, self.options.call_timeout if timeout is None else timeout, step)
        self._requests.add(pending)
        try:
            self._post(Call(component, method, call_id, parameters), now, at_once=step is Step.KEYS)
        except LocalProtocolError:
            self._requests.take(call_id)
            raise
        return call_id

    def _post(self, said: Call | Response | Error, now: float, *, at_once: bool = False) -> None:
        """Say something; while a KeyExchange of ours is not answered, later."""
        document = documents.encode(said, dotnet=self.options.dotnet)
        if self._trust.offering and not at_once:
            self._held.append((said, document))
        else:
            self._say(said, document, now)

    def _say(self, said: Call | Response | Error, document: bytes, now: float) -> None:
        what = utterance(said, self._link.keys is not None)
        if not self._advance(self.speaker, what):
            raise LocalProtocolError(refusal(self.state, self.speaker, what))
        message_id = self._link.send(document, now)
        if isinstance(said, Call):
            self._requests.sent(said.call_id, message_id)

    def _release(self, now: float) -> None:
        """Say what had to wait for keys."""
        held, self._held = self._held, []
        for said, document in held:
            self._say(said, document, now)

    def _notice(self) -> Call:
        return Call(CORE, "SendResetNotice", self._call_id())

    def _require_open(self) -> None:
        if self.ended is not None:
            raise SessionClosed(str(self.ended.reason()))

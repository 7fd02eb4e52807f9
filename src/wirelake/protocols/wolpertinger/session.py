"""A session of wolpertinger: texts and time in; texts, events and a deadline out.

`receive` never raises for what the peer did. A call of the owner may raise LocalProtocolError: that is a bug of the owner. After every
call, take `output` (or `messages`) and `events`, and read `deadline` again.

`base_session.py` has the state and the sending half. This file has the receiving half: it checks each message against the state machine,
looks up the method of a call, matches answers with calls, and resets. Layer 1 (confirmations, fragments, encryption) is
`layer1/endpoint.py`, documents are read in `layer2/documents.py`, trust levels are gained in `trust/authentication.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from wirelake.protocols.wolpertinger.base_session import BaseSession
from wirelake.protocols.wolpertinger.events import (
    Authenticated,
    AuthenticationFailed,
    CallDone,
    CallFailed,
    CallReceived,
    CallReturned,
    Ended,
    Ending,
    ErrorReceived,
    Failure,
    KeysAgreed,
    Noticed,
    PeerUnavailable,
    Step,
    TrustAwarded,
    TrustChanged,
    WasReset,
)
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.endpoint import Confirmed, Delivered, Piece, Undelivered
from wirelake.protocols.wolpertinger.layer1.lines import Text, row_of
from wirelake.protocols.wolpertinger.layer2 import documents
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Response
from wirelake.protocols.wolpertinger.layer2.documents import Rejected
from wirelake.protocols.wolpertinger.layer2.methods import Directory
from wirelake.protocols.wolpertinger.layer2.requests import Pending
from wirelake.protocols.wolpertinger.messages import Encryption, ResultCode
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.wolpertinger.state_machine import AUTHENTICATION, CORE, INITIAL, TRANSITIONS, Speaker, State, message_kind, refusal
from wirelake.protocols.wolpertinger.trust.authentication import METHODS, Ask, Draw, Progress
from wirelake.protocols.wolpertinger.trust.state import STRANGER, TrustState

# Members of an enum that every text reads.
_CLEAR: Final = Encryption.NONE
_AES: Final = Encryption.AES

__all__ = ["INITIAL", "TRANSITIONS", "Options", "Session", "Speaker", "State", "refusal"]


class Session(BaseSession):
    """One side of a session."""

    def __init__(self, speaker: Speaker, options: Options = DEFAULT_OPTIONS, *, draw: Draw, trust_state: TrustState = STRANGER) -> None:
        super().__init__(speaker, options, draw=draw, trust_state=trust_state)
        self._directory = Directory(options.components)
        self._paused = False
        self.is_proven = False
        """See Drivable: whether a valid text arrived."""
        self._moving_until = float("-inf")
        """Until then, bytes that arrived or left count as a sign of life of the peer."""
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            Delivered: lambda outcome, now: self._take(outcome.message_id, outcome.payload, outcome.encrypted, now),
            Piece: lambda _, now: self._requests.alive(now),
            Confirmed: lambda outcome, now: self._take_confirmation(outcome.message_id, now),
            Undelivered: self._take_failure,
            Noticed: lambda outcome, _: self._events.append(outcome),
        }

    # Calls of the owner.

    def start(self, now: float) -> None:
        """Do nothing: the protocol has no greeting."""

    def authenticate(self, level: int, now: float, *, user: str = "", password: str = "") -> None:
        """WOLP-22 to WOLP-26: gain trust, step by step.

        The event Authenticated or AuthenticationFailed follows.
        """
        self._require_open()
        self._continue_authentication(self._authentication.begin(level, self.trust_state, user, password, now), now)

    def reset(self, now: float) -> None:
        """WOLP-28: send a reset notice, and drop trust, keys and calls."""
        self._require_open()
        self._reset(now, here=True, notice=True)

    def bye(self, detail: str = "") -> None:
        """End the session; send a reset notice if there is trust."""
        if self.ended is None:
            if self.trust_state != STRANGER:
                self._layer1.reset(None)
                self._layer1.send(documents.encode(self._notice()), 0.0)
            self._end(Ended(Ending.BYE, self.speaker, True, detail=detail))

    # Input: bytes and time.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of a stream of lines; never raises."""
        buffer = self._buffer
        if (texts := buffer.texts(data)) is not None:  # by far the commonest
            self._receive_texts(texts, now)
            return
        enough = self.inflated + self.inflated_a_turn
        batches = iter(buffer.feed(data))
        for taken, rows, parts in batches:
            left = iter(rows)
            for row in left:
                if self.ended is not None:
                    return
                self._receive_row(taken, row, now)
                self._pause_above(enough)
                if self.job is not None:
                    self._defer(taken, left, parts, batches)
        if buffer.size:
            self._note_traffic(len(data), now)
        self._end_if_lost()

    def finish(self, outcome: Any, now: float) -> None:
        """See Drivable."""
        super().finish(outcome, now)
        self._end_if_lost()

    def receive_text(self, text: str | bytes, now: float) -> None:
        """Take one whole text, from a transport that keeps them apart; never raises."""
        data = text.encode(errors="replace") if isinstance(text, str) else text
        if self.ended is None:
            self._receive_row(data, row_of(data, 0, len(data), self.options.limits), now)

    def receive_eof(self, now: float) -> None:  # noqa: ARG002 - every input of a session carries the time
        """The peer closed the connection."""
        if self.ended is None:
            fault = Fault.CLOSED_INSIDE_MESSAGE if self._buffer.rest else Fault.CLOSED_WITHOUT_WORD
            self._end(Ended(Ending.CLOSED, self.peer, False, fault))

    def tick(self, now: float) -> None:
        """Time passed: timers that are due fire."""
        if self.ended is not None:
            return
        listening = not self._paused and now >= self._moving_until
        if not listening:
            self._requests.alive(now)
        self._layer1.tick(now, listening=listening)
        for outcome in self._layer1.outcomes():
            self._handlers[type(outcome)](outcome, now)
        for pending in self._requests.expire(now):
            self._failed(pending, CallFailed(pending.call_id, Failure.TIMEOUT), now)
        if (late := self._authentication.deadline) is not None and now >= late:
            self._step_failed(Fault.NO_ANSWER, now, Failure.TIMEOUT)
        if self._peer_requests.beat(now):
            self._send(Call(CORE, "Heartbeat", self._call_id()), now)

    def pause(self) -> None:
        """The owner stops reading: do not take unread results and responses for a silent peer."""
        self._paused = True

    def resume(self, now: float) -> None:
        """The owner reads again."""
        self._paused = False
        self._requests.alive(now)

    @property
    def asked(self) -> int:
        """See Drivable: every message asks for a result."""
        return self._layer1.unconfirmed.last_id

    def drained(self, count: int, now: float) -> None:
        """As EMP-32: bytes that were sent before the last message have left."""
        self._note_traffic(count, now)

    def release(self) -> None:
        """See Drivable."""
        super().release()
        self._handlers = {}  # they refer to this object

    # Internal: receiving.

    def _note_traffic(self, count: int, now: float) -> None:
        """A text is still arriving, or our output is still draining: the peer cannot have answered yet."""
        until = max(self._moving_until, now) + count / self.options.min_rate
        self._moving_until = min(until, now + self.options.confirm_timeout)

    def _receive_texts(self, texts: list[Text], now: float) -> None:
        """Take common texts: as `_receive_row` does, without an object for each outcome."""
        layer1 = self._layer1
        for number, encrypted, text, code, of in texts:
            if self.ended is not None:
                return
            self.available = True
            if code:
                message_id = int(of)
                is_confirmed = layer1.take_result(int(code), message_id)
                if layer1.unread:
                    self._take_outcomes(now)
                if is_confirmed:
                    self.is_proven = True
                    self._take_confirmation(message_id, now)
            else:
                message_id = int(number)
                payload = layer1.take_message(message_id, text, _AES if encrypted else _CLEAR, now)
                if layer1.unread:
                    self._take_outcomes(now)
                if payload is not None:
                    self.is_proven = True
                    self._take(message_id, payload, bool(encrypted), now)

    def _end_if_lost(self) -> None:
        """WOLP-29: end the session after a text without an end, once all before it is taken."""
        if self._buffer.lost and self.job is None and self.ended is None:
            self._end(Ended(Ending.CLOSED, self.speaker, True, Fault.TEXT_OVER_LIMIT))

    def _take_row(self, data: bytes, row: list[int], _: list[int], now: float) -> None:
        self._receive_row(data, row, now)

    def _receive_row(self, data: bytes, row: list[int], now: float) -> None:
        self.available = True
        self._layer1.receive(data, row, now)
        self._take_outcomes(now)

    def _take_outcomes(self, now: float) -> None:
        for outcome in self._layer1.outcomes():
            self.is_proven = self.is_proven or not isinstance(outcome, Noticed)
            self._handlers[type(outcome)](outcome, now)

    def _take(self, message_id: int, payload: bytes, is_encrypted: bool, now: float) -> None:
        """Take a message: check the state machine, then handle its document."""
        document = documents.decode(payload, self._document_limits)
        kind = message_kind(None if isinstance(document, Rejected) else document, is_encrypted)
        before = self.state
        if not self._advance(self.peer, kind):
            self._forbid(document, refusal(self.state, self.peer, kind), now)
        elif isinstance(document, Call):
            self._take_call(document, message_id, len(payload), now)
        elif isinstance(document, Response):
            self._take_response(document, now)
        elif isinstance(document, Error):
            self._take_error(document, now)
            if before is State.ENCRYPTED and self.state is not before:  # WOLP-22: the peer has reset
                self._reset(now, here=False, fault=Fault.CLEAR_WHEN_ENCRYPTED, reason=message_id)
        else:
            self._take_unreadable(document, now)

    def _take_unreadable(self, rejected: Rejected, now: float) -> None:
        """WOLP-16: answer a rejected document, if that is allowed.

        Fail the call of ours that it would have answered.
        """
        self._events.append(Noticed(rejected.fault, rejected.detail))
        if (answer := rejected.answer) is not None:
            self._send(answer, now)
        is_call = rejected.root not in ("RemoteMethodResponse", "RemoteError")
        pending = None if is_call or rejected.call_id is None else self._requests.take(rejected.call_id)
        if pending is not None:
            self._failed(pending, CallFailed(pending.call_id, Failure.UNREADABLE), now)

    def _forbid(self, document: Call | Response | Error | Rejected, fault: Fault, now: float) -> None:
        """WOLP-22: answer a forbidden unencrypted message with 202, unless it is an error, and reset."""
        self._events.append(Noticed(fault))
        unanswerable = isinstance(document, Error) or (isinstance(document, Rejected) and document.answer is None)
        if fault is Fault.CLEAR_WHEN_ENCRYPTED and not unanswerable:
            call_id = document.call_id if isinstance(document, Call) else None
            self._reset(now, here=True, fault=fault)
            self._send(Error(AUTHENTICATION, ErrorCode.ENCRYPTION, call_id), now)

    def _take_call(self, call: Call, message_id: int, size: int, now: float) -> None:
        entry = self._directory.look_up(call, self.trust_state.granted)
        if isinstance(entry, Fault):
            self._events.append(Noticed(entry, f"{call.component}.{call.method}"))
            self._send(Error(call.component, entry.rule.error_code or ErrorCode.UNSPECIFIED, call.call_id), now)
        elif entry.built_in:
            self._take_built_in(call, entry.method, message_id, now)
        elif (call_id := call.call_id) in (requests := self._peer_requests).awaited or call_id in requests.void:
            self._events.append(Noticed(Fault.CALL_ID_IN_FLIGHT, call_id))
        elif (returns := entry.returns) and len(requests.awaited) >= self._max_calls:  # WOLP-29
            self._events.append(Noticed(Fault.CALLS_OVER_LIMIT))
            self._send(Error(entry.component, ErrorCode.UNSPECIFIED, call_id), now)
        else:
            component = entry.component
            requests.take(call_id, component, returns, now)
            self._events.append(CallReceived(call_id, component, entry.method, call.parameters, returns, size))

    def _take_built_in(self, call: Call, method: str, message_id: int, now: float) -> None:
        if method == "Heartbeat":  # WOLP-21
            self._requests.alive(now)
        elif method == "SendResetNotice":  # WOLP-28
            self._reset(now, here=False, reason=message_id)
        else:
            self._take_authentication(call, method, message_id, now)

    def _take_authentication(self, call: Call, method: str, message_id: int, now: float) -> None:
        if method == "EstablishConnection":  # WOLP-10
            self._layer1.forget(message_id)
        verdict = self._authentication.answer(method, call.parameters, self.trust_state, now)
        if verdict.fault is not None:
            self._events.append(Noticed(verdict.fault))
            code = verdict.fault.rule.error_code or ErrorCode.UNSPECIFIED
            self._send(Error(AUTHENTICATION, code, call.call_id), now, at_once=verdict.fault is Fault.KEYS_CROSSED)
            return
        if METHODS[method].returns:
            self._send(Response(AUTHENTICATION, call.call_id, verdict.value), now)
        awarded = self.trust_state.awarded
        self._adopt(verdict.trust_state)
        if verdict.trust_state.awarded != awarded and verdict.trust_state.awarded is not None:
            self._events.append(TrustAwarded(verdict.trust_state.awarded))
        if verdict.reset:  # WOLP-25: the answer comes first
            self._events.append(Noticed(Fault.PROOF_WRONG, method))
            self._reset(now, here=True, fault=Fault.PROOF_WRONG, notice=True)
        elif verdict.ask is not None:
            self._ask(verdict.ask, now)
        else:
            self._continue_authentication(self._authentication.proven(self.trust_state, now), now)

    def _take_response(self, response: Response, now: float) -> None:
        message_id, pending = self._requests.answered(response.call_id)
        if message_id in self._layer1.unconfirmed.sent:  # it has arrived, as its answer shows: do not wait for its result any more
            self._layer1.unconfirmed.confirm(message_id)
        if pending is None or not pending.returns:
            self._events.append(Noticed(Fault.RESPONSE_UNMATCHED, response.call_id))
            if self.state is State.ENCRYPTED and self._layer1.keys is None:  # a key we did not ask for, or gave up
                self._reset(now, here=True, fault=Fault.KEYS_UNASKED, notice=True)
        elif pending.step is not None:
            self._continue_authentication(
                self._authentication.answered(pending.step, pending.method, response.value, self.trust_state, now), now
            )
        else:
            self._events.append(CallReturned(response.call_id, response.value))

    def _take_error(self, error: Error, now: float) -> None:
        message_id, pending = (None, None) if error.call_id is None else self._requests.answered(error.call_id)
        if message_id is not None:
            self._layer1.unconfirmed.confirm(message_id)
        if pending is None:
            self._events.append(ErrorReceived(error.component, error.code, error.call_id))
        else:
            self._failed(pending, CallFailed(pending.call_id, Failure.ERROR, error.code, error.component), now)

    def _take_confirmation(self, message_id: int, now: float) -> None:
        pending = self._requests.confirmed(message_id, now)
        if pending is None:
            return
        if pending.step is None:
            self._events.append(CallDone(pending.call_id))
        else:
            self._continue_authentication(self._authentication.answered(pending.step, pending.method, None, self.trust_state, now), now)

    def _take_failure(self, failure: Undelivered, now: float) -> None:
        timed_out = failure.code == ResultCode.TIMEOUT
        if timed_out and self.available:  # WOLP-10
            self.available = False
            self._events.append(PeerUnavailable())
        pending = self._requests.undelivered(failure.message_id)
        if pending is None:
            self._events.append(Noticed(Fault.NOT_CONFIRMED, f"message {failure.message_id}, result {failure.code}"))
        else:
            why = Failure.UNDELIVERED if timed_out else Failure.REFUSED
            self._failed(pending, CallFailed(pending.call_id, why, None if timed_out else failure.code), now)

    # Internal: trust, reset, end.

    def _failed(self, pending: Pending, failed: CallFailed, now: float) -> None:
        if pending.step is None:
            self._events.append(failed)
        else:
            self._step_failed(Fault.NO_ANSWER if failed.code is None else Fault.ANSWER_WRONG, now, failed.why, failed.code)

    def _ask(self, ask: Ask, now: float) -> None:
        self._call(AUTHENTICATION, ask.method, ask.parameters, now, returns=ask.returns, timeout=None, step=ask.step)

    def _continue_authentication(self, progress: Progress, now: float) -> None:
        """Take the next step towards the trust we want, after an answer or a proof."""
        self._adopt(progress.trust_state)
        if progress.fault is not None:
            self._step_failed(progress.fault, now)
            return
        if self._authentication.offer is None:
            self._send_waiting(now)
        if progress.reached is not None:
            self._events.append(Authenticated(progress.reached))
        elif progress.ask is not None:
            self._ask(progress.ask, now)

    def _adopt(self, trust_state: TrustState) -> None:
        before, self.trust_state = self.trust_state, trust_state
        self._layer1.keys = trust_state.keys
        if trust_state.keys is not None and trust_state.keys != before.keys:
            self._events.append(KeysAgreed(trust_state.keys))
        if (before.granted, before.held) != (trust_state.granted, trust_state.held):
            self._events.append(TrustChanged(trust_state.granted, trust_state.held))

    def _step_failed(self, fault: Fault, now: float, why: Failure | None = None, code: int | None = None) -> None:
        """A step towards more trust failed: give up the trust gained before, too (WOLP-25)."""
        step = self._authentication.clear()
        if step is not None:
            self._events.append(AuthenticationFailed(step, fault, why, code))
        if step is not Step.ESTABLISH:
            self._reset(now, here=True, fault=fault, notice=True)

    def _reset(self, now: float, *, here: bool, fault: Fault | None = None, notice: bool = False, reason: int | None = None) -> None:
        """WOLP-28: forget levels, keys, calls, fragments and delivered messages.

        `reason` is the message that caused it.
        """
        nothing_to_lose = self.trust_state == STRANGER and not self._requests and not self._peer_requests
        self._layer1.reset(reason)
        self._fail_all(Failure.RESET, fault)
        self._adopt(STRANGER)
        if not nothing_to_lose:
            self._events.append(WasReset(here, fault))
        if notice:
            self._send(self._notice(), now)

    def _end(self, ended: Ended) -> None:
        self.ended = ended
        self._fail_all(Failure.ENDED, ended.fault)
        self._events.append(ended)

    def _fail_all(self, why: Failure, fault: Fault | None) -> None:
        """Fail all calls of ours, and forget those of the peer: no answer will come."""
        self._waiting.clear()
        self._peer_requests.clear()
        for pending in self._requests.clear():
            if pending.step is None:
                self._events.append(CallFailed(pending.call_id, why))
        if (step := self._authentication.clear()) is not None:
            self._events.append(AuthenticationFailed(step, fault or Fault.NO_ANSWER, why))

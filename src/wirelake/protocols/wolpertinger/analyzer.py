"""Wolpertinger as an observer sees it: texts with results, calls with answers, and which keys are agreed on.

Two things are followed. `Text` is what one side sent with one id: it waits for a result, and is recognised if it is sent again.
`CallState` is what became of a CallId: it waits for an answer. Which components a callee has, and whom it trusts, is not on the wire;
but a callee that refuses a call says so, and is believed. Whether a method is void is not on the wire either: a call that was confirmed and
never answered breaks no rule, unless every peer has its component.

Nothing is remembered for ever. What is settled is forgotten after five minutes (WOLP-10), or once `_MOST` others were settled later: a
CallId or an id that is used again then is a new one. A call that is not answered is forgotten once `_MOST_WAITING` later ones wait, too.
So an exchange is told when its id is forgotten, or at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec

from wirelake.errors import FaultLike, RemoteProtocolError
from wirelake.protocols.analyzer import NO_TIME, Exchange, Finding, Part, SeenMessage, SessionAnalyzer, Timeouts
from wirelake.protocols.state_table import StateTable, state_table
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.confirmation import content_digest
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, ErrorCode, Response
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.state_machine import (
    MACHINE,
    MESSAGES,
    Encrypted,
    ResetNotice,
    call_kind,
    error_kind,
    is_heartbeat,
    is_trust,
    response_kind,
)
from wirelake.protocols.wolpertinger.trust.authentication import METHODS
from wirelake.protocols.wolpertinger.trust.key_agreement import read_iv

__all__ = ["CONFIRMED", "Analyzer", "Seen"]

CONFIRMED: Final = "confirmed"
"""Outcome of a call that was delivered, and that nothing answered."""

_SECOND: Final = 1_000_000
_CONFIRM: Final = round(DEFAULT_OPTIONS.confirm_timeout * _SECOND)
"""WOLP-10: how long a result may take, for each piece."""
_ANSWER: Final = round(DEFAULT_OPTIONS.call_timeout * _SECOND)
"""WOLP-21: how long the answer to a confirmed call may take."""
_REMEMBER: Final = round(DEFAULT_OPTIONS.remember_time * _SECOND)
"""WOLP-10: how long a message is recognised if it is sent again."""
_MOST: Final = DEFAULT_OPTIONS.max_calls
"""How many settled texts and calls of one side are remembered at least, if they are not too old; twice as many at most."""
_MOST_WAITING: Final = DEFAULT_OPTIONS.max_unconfirmed
"""How many calls of one side may wait for an answer; twice as many at most."""

_TAGS: Final[dict[type[Any], str]] = {what: str(what.__struct_config__.tag) for what in MESSAGES}
_CALL, _RESPONSE, _ERROR = _TAGS[Call], _TAGS[Response], _TAGS[Error]
_UNOPENED: Final = frozenset(fault.name for fault in Fault if Fault.FRAGMENT_CONFLICT <= fault < Fault.DOCUMENT_OVER_LIMIT)
"""WOLP-10: faults of messages that are refused, not delivered: they are not recognised when they are sent again."""
_REFUSALS: Final = (Fault.FRAGMENT_CONFLICT.name, Fault.FRAGMENTS_OVER_LIMIT.name)
"""WOLP-9: faults after which the receiver does not wait for more pieces."""

_FITTING: Final = {
    "EstablishConnection": ("boolean", "string", "guid"),
    "KeyExchange": ("string",),
    "ClusterAuthGetToken": ("string",),
    "UserAuthGetToken": ("string",),
    "ClusterAuthVerify": ("boolean",),
    "UserAuthVerify": ("boolean",),
}
"""WOLP-23 to WOLP-25: methods of trust that answer, and the data types of their answers."""
_PROOFS: Final = ("ClusterAuthVerify", "UserAuthVerify")
_REFUSED: Final = {
    ErrorCode.NOT_AUTHORIZED.value: Fault.TRUST_TOO_LOW,
    ErrorCode.METHOD_NOT_FOUND.value: Fault.METHOD_UNKNOWN,
    ErrorCode.COMPONENT_NOT_FOUND.value: Fault.COMPONENT_UNKNOWN,
    ErrorCode.INVALID_PARAMETERS.value: Fault.PARAMETERS_WRONG,
}
"""WOLP-20: what a callee says of a call that it refuses."""
_SMALLEST, _LARGEST = -(1 << 15), (1 << 15) - 1
"""Error codes that `sessions` can show."""

Described = dict[str, str]
"""A value: its `type`, and its `value` as JSON."""


class Seen(SeenMessage, gc=False):
    """A text of wolpertinger, with the document of the message that it completes."""

    type: str
    text_id: int
    result_code: int | None
    gzip: int | None
    encryption: str | None
    fragment_index: int | None
    fragment_count: int | None
    payload: bytes | None
    root: str | None
    component: str | None
    method: str | None
    call_id: str | None
    parameters: list[Described] | None
    value: Described | None
    error_code: int | None
    oddities: int


class Text(msgspec.Struct, gc=False, array_like=True):
    """The texts that one side sent with one id, since a result settled a complete message."""

    ts: int
    """Time and place of the last one."""
    source: str
    offset: int
    length: int
    until: int
    """WOLP-10: how long it is remembered."""
    pieces: int
    """How many pieces the message has, as the last one says."""
    digest: bytes = b""
    """WOLP-10: the fingerprint of the last unfragmented message; it outlives a result."""
    whole_ts: int = NO_TIME
    """When that was."""
    has_first: bool = False
    """Whether an unfragmented message was among them; it counts as piece 0."""
    seen: set[int] | None = None
    """Which pieces came."""
    was_refused: bool = False
    is_settled: bool = False
    """Whether a result came after the last one."""
    is_repeated: bool = False
    """WOLP-10: whether the last one was delivered before."""
    calls: list[str] | None = None
    """CallIds of calls among them that wait for a result."""

    @property
    def is_incomplete(self) -> bool:
        """Whether pieces are missing."""
        if self.seen is None:
            return self.pieces > self.has_first
        return self.pieces > len(self.seen) + (self.has_first and 0 not in self.seen)

    @property
    def due(self) -> int:
        """WOLP-10: when the result should be there."""
        return self.ts + _CONFIRM * self.pieces


class Texts(msgspec.Struct, array_like=True):
    """The texts of one side, in two generations."""

    young: dict[int, Text] = msgspec.field(default_factory=dict)
    old: dict[int, Text] = msgspec.field(default_factory=dict)
    most: int = _MOST
    """How many young ones there may be before the old ones are forgotten."""


class CallState(msgspec.Struct, gc=False, array_like=True):
    """What became of a CallId of one side."""

    until: int
    """How long it is remembered after its answer."""
    ts: int = NO_TIME
    """Time and place of the first call, whatever it calls; of the first in another message after an answer."""
    message_id: bytes = b""
    source: str = ""
    offset: int = 0
    length: int = 0
    text_id: int = 0
    is_sole: bool = True
    """Whether all calls so far came in messages with the same id: then it is known which of them was answered."""
    is_judged: bool = False
    """Whether nothing more can be said of the first call."""
    is_answered: bool = False
    """Whether an answer came after the last call."""
    method: str | None = None
    """The method of trust that it calls, if any."""
    are_texts: bool = False
    """Whether it carries keys or proofs, the right number of texts."""
    early: Seen | None = None
    """An answer that came before the call."""
    sent: Part | None = None
    """The first call that is a request: heartbeats and reset notices are none."""
    subject: str | None = None
    attempts: int = 0
    is_open: bool = False
    """Whether the last request waits for its answer."""
    result: Part | None = None
    result_code: int = 0
    answer: Part | None = None
    answer_text_id: int = 0
    has_failed: bool = False
    """Whether that is an error."""


class Calls(msgspec.Struct, array_like=True):
    """The calls of one side."""

    waiting: dict[str, CallState] = msgspec.field(default_factory=dict)
    """Those that are not answered."""
    young: dict[str, CallState] = msgspec.field(default_factory=dict)
    """The others, in two generations."""
    old: dict[str, CallState] = msgspec.field(default_factory=dict)
    has_forgotten: bool = False
    """Whether there were too many without an answer: then an answer without a call may have had one."""


class Question(msgspec.Struct, gc=False, array_like=True):
    """A call that every peer answers."""

    message: Seen
    confirmed: int = NO_TIME


class Analyzer(SessionAnalyzer):
    """Watches one connection of wolpertinger."""

    MESSAGE: ClassVar[type[SeenMessage]] = Seen
    HAS_HANDSHAKE: ClassVar[bool] = False
    STATES: ClassVar[StateTable | None] = state_table(MACHINE)
    ODDITIES: ClassVar[tuple[FaultLike, ...]] = (
        Fault.KEY_NOT_LOWER,
        Fault.ALIAS_USED,
        Fault.PAYLOAD_BLANKS,
        Fault.RESULT_PAYLOAD,
        Fault.RESULT_CODE_UNKNOWN,
        Fault.FRAGMENT_LATE,
    )
    TIMEOUTS: ClassVar[Timeouts | None] = Timeouts(Fault.CLOSED_INSIDE_MESSAGE)
    """WOLP-11: do not close inside a line."""

    client_texts: Texts = msgspec.field(default_factory=Texts)
    server_texts: Texts = msgspec.field(default_factory=Texts)
    client_calls: Calls = msgspec.field(default_factory=Calls)
    server_calls: Calls = msgspec.field(default_factory=Calls)
    ages: int = NO_TIME
    """When the young become old, and the old are forgotten."""
    questions: list[Question] = msgspec.field(default_factory=list)
    """The last messages that are neither results nor errors, if they are questions."""
    has_error: bool = False
    error_code: int | None = None
    """Of the first error."""

    def message(self, message: SeenMessage) -> None:
        """See `SessionAnalyzer`."""
        assert isinstance(message, Seen)  # noqa: S101 - see MESSAGE
        ts = message.ts
        if self.first_said == NO_TIME:
            self.first_said = ts
        self.last_said = ts
        if ts >= self.ages:
            self._age(ts)
        if message.fault is not None:
            self._found(message.fault, message, needs_whole=False)
        if message.oddities:
            self._odd(message.oddities, message)
        if message.type == "result":
            self._takes_result(message)
            return
        is_error = message.root == _ERROR and message.call_id is None
        if is_error:
            self._parted(message, "error")
        else:
            self.last_word = ts
            if self.questions and self.questions[0].message.ts < ts:
                self.questions.clear()
        text = self._takes_text(message)
        if message.root == _CALL:
            self._takes_call(message, text)
        elif message.root is not None:
            self._takes_answer(message, text)
        elif message.encryption is not None and (message.type == "message" or message.fragment_count == 1):
            self._step(message, _TAGS[Encrypted])

    def end(self) -> None:
        """See `SessionAnalyzer`."""
        for by_client, texts, calls in ((True, self.client_texts, self.client_calls), (False, self.server_texts, self.server_calls)):
            for text in (*texts.old.values(), *texts.young.values()):
                self._judge_text(text, by_client)
            for known in (calls.old, calls.young, calls.waiting):
                for call_id, state in known.items():
                    self._tell_call(by_client, call_id, state)
        for question in self.questions:  # WOLP-21
            due = question.confirmed + _ANSWER
            if question.confirmed != NO_TIME and self.parting is None and self._went_by(due, None):
                self._missed(Fault.NO_ANSWER.name, question.message, due)
        SessionAnalyzer.end(self)

    def _greetings(self) -> tuple[int | None, int | None, bool, int | None]:
        """There are no versions on the wire, and no greetings."""
        return None, None, False, self.error_code

    # Layer 1: texts and results.

    def _takes_text(self, message: Seen) -> Text:
        """A message or a piece of one."""
        texts = self.client_texts if message.to_server else self.server_texts
        ts = message.ts
        text = self._text_of(texts, message, message.to_server)
        pieces, until = 1, ts + _REMEMBER
        if message.fragment_count is not None:
            pieces = message.fragment_count
            until = ts + round(DEFAULT_OPTIONS.life(pieces) * _SECOND)
        if text is None:
            text = texts.young[message.text_id] = Text(ts, message.source, message.offset, message.length, until, pieces)
            if len(texts.young) > texts.most:
                self._forget_texts(texts, message.to_server, ts, is_late=False)
        else:
            text.ts, text.source, text.offset, text.length, text.pieces = ts, message.source, message.offset, message.length, pieces
            text.until, text.is_settled = until, False
        if message.type == "message":
            digest = content_digest(message.payload or b"", message.gzip, message.encryption is not None)
            text.is_repeated = digest == text.digest and ts <= text.whole_ts + _REMEMBER
            if text.is_repeated:
                self._found(Fault.MESSAGE_REPEATED.name, message, needs_whole=True)  # WOLP-10
            is_delivered = message.fault is None or message.fault not in _UNOPENED
            text.digest, text.whole_ts, text.has_first = digest if is_delivered else b"", ts, True
        else:
            text.is_repeated = False
            if text.seen is None:
                text.seen = set()
            text.seen.add(message.fragment_index or 0)
        if message.fault is not None and message.fault in _REFUSALS:
            text.was_refused = True
        return text

    def _takes_result(self, message: Seen) -> None:
        """WOLP-4: a result is for a message of the other side that waits for one.

        One that is not success may be for a text that could not be read, and so is never too many.
        """
        by_client = not message.to_server
        texts = self.client_texts if by_client else self.server_texts
        text = self._text_of(texts, message, by_client)
        if text is None or text.is_settled:
            if message.result_code == 0:
                self._found(Fault.RESULT_UNMATCHED.name, message, needs_whole=True)
            return
        text.is_settled = True
        if text.calls is not None:
            self._confirm_calls(self.client_calls if by_client else self.server_calls, text.calls, message)
            text.calls = None
        if self.questions:
            self._confirm_question(text, message)
        if text.seen is None or not text.is_incomplete:
            text.seen, text.has_first, text.was_refused = None, False, False

    def _text_of(self, texts: Texts, message: Seen, by_client: bool) -> Text | None:
        """What is known of the id of a text or a result, unless it is too old."""
        text_id = message.text_id
        text = texts.young.get(text_id)
        if text is None:
            if not texts.old:
                return None
            text = texts.old.pop(text_id, None)
            if text is None:
                return None
            texts.young[text_id] = text
        if message.ts > text.until:
            self._judge_text(text, by_client)
            del texts.young[text_id]
            return None
        return text

    def _forget_texts(self, texts: Texts, by_client: bool, now: int, *, is_late: bool) -> None:
        """The young become old; the old are forgotten, except those whose result is not yet due.

        `is_late`: because of their age, not of their number.
        """
        forgotten, texts.old, texts.young = texts.old, texts.young, {}
        for text_id, text in forgotten.items():
            if now <= (text.until if is_late else text.ts if text.is_settled else text.due):
                texts.young[text_id] = text
            else:
                self._judge_text(text, by_client)
        texts.most = max(_MOST, 2 * len(texts.young))

    def _judge_text(self, text: Text, by_client: bool) -> None:
        """WOLP-9, WOLP-10: all pieces of a message, and then a result, are due.

        A finding about something missing has the time when it was due, if the session was seen as long.
        """
        if text.is_settled:
            return
        due, last_seen = text.due, self.last_seen
        if not text.is_incomplete:
            if last_seen > due:
                self._omitted(Fault.NOT_CONFIRMED, due, text, not by_client)
        elif not text.was_refused and (last_seen > due or self.closed is not None):
            self._omitted(Fault.FRAGMENTS_TIMED_OUT, min(due, last_seen), text, by_client)

    def _omitted(self, rule: Fault, ts: int, text: Text, to_server: bool) -> None:
        self.findings.append(Finding(rule.name, ts, to_server, None, text.source, text.offset, text.length, needs_whole=True))

    def _confirm_question(self, text: Text, message: Seen) -> None:
        """WOLP-21: from now on the answer is due.

        Where clocks are so coarse that a result is as old as its call, an answer may be as old.
        """
        for question in self.questions:
            asked = question.message
            if (asked.ts, asked.source, asked.offset, asked.to_server) == (text.ts, text.source, text.offset, not message.to_server):
                question.confirmed = message.ts if message.result_code == 0 and message.ts > asked.ts else NO_TIME

    # Layer 2: calls and answers.

    def _takes_call(self, message: Seen, text: Text) -> None:
        method = message.method or ""
        kind, is_of_trust, is_request = _classified(message.component or "", method)
        if message.encryption is not None and kind is not ResetNotice:
            kind = Encrypted
        if kind is not Call or self.states:
            self._step(message, _TAGS[kind])
        if is_of_trust and method in _FITTING:
            self.questions.append(Question(_without_contents(message)))
        call_id = message.call_id
        if call_id is None or message.fault is not None:
            return
        calls = self.client_calls if message.to_server else self.server_calls
        state = self._call_of(calls, call_id, message.to_server, message.ts)
        if state is None:
            state = CallState(text.until)
            (calls.waiting if is_request else calls.young)[call_id] = state
            if len(calls.waiting) > 2 * _MOST_WAITING or len(calls.young) > _MOST:
                self._limit(calls, message.to_server)
        state.until = text.until
        if state.ts == NO_TIME:
            self._begin_call(state, message, method if is_of_trust else None)
        elif state.text_id != message.text_id:
            if state.is_answered and not text.is_repeated:  # not sent again, but used again
                state.is_sole, state.is_judged, state.are_texts, state.method = True, False, False, None
                self._begin_call(state, message, method if is_of_trust else None)
            else:
                state.is_sole = False
        state.is_answered = False
        if is_request:
            self._ask(calls, call_id, state, message, is_repeated=text.is_repeated)
            if state.result is None and state.answer is None:
                if text.calls is None:
                    text.calls = []
                text.calls.append(call_id)

    def _ask(self, calls: Calls, call_id: str, state: CallState, message: Seen, *, is_repeated: bool) -> None:
        """WOLP-14: a request needs a CallId that is not in flight, unless it is sent again."""
        subject = f"{message.component}.{message.method}"
        state.attempts += 1
        if state.sent is None:
            state.sent = Part(message.ts, message.message_id, message.size)
            state.subject = subject
        elif state.subject is not None and subject < state.subject:
            state.subject = subject
        if state.is_open:
            if not is_repeated and not (message.type == "fragment" and message.text_id == state.text_id):
                self._found(Fault.CALL_ID_IN_FLIGHT.name, message, needs_whole=True)
            return
        state.is_open = True
        if state.attempts > 1 or call_id not in calls.waiting:
            calls.young.pop(call_id, None)
            calls.waiting[call_id] = state

    def _takes_answer(self, message: Seen, text: Text) -> None:
        """A response or an error; an error without a CallId answers no call."""
        if message.encryption is not None:
            self._step(message, _TAGS[Encrypted])
        else:
            kind = (
                error_kind(message.error_code or 0)
                if message.root == _ERROR
                else response_kind(message.component or "", _text(message.value))
            )
            if (kind is not Response and kind is not Error) or self.states:
                self._step(message, _TAGS[kind])
        if message.error_code is not None and not self.has_error:
            self.has_error = True
            self.error_code = message.error_code if _SMALLEST <= message.error_code <= _LARGEST else None
        call_id = message.call_id
        if call_id is None or message.fault is not None:
            return
        by_client = not message.to_server
        calls = self.client_calls if by_client else self.server_calls
        state = self._call_of(calls, call_id, by_client, message.ts)
        if state is None:
            state = calls.young[call_id] = CallState(message.ts + _REMEMBER, early=_without_contents(message))
            self._limit(calls, by_client)
        elif not state.is_judged and state.early is None:
            state.is_judged = True
            if state.is_sole:
                self._judge_call(state, message, by_client)
        state.is_answered = True
        part = Part(message.ts, message.message_id, message.size)
        if not state.is_open:
            self._unmatched(calls, state, message, part, is_repeated=text.is_repeated)
            return
        state.is_open = False
        if state.answer is None:
            state.answer, state.answer_text_id, state.has_failed = part, message.text_id, message.root == _ERROR
        state.until = max(state.until, message.ts + _REMEMBER)
        del calls.waiting[call_id]
        calls.young[call_id] = state
        if len(calls.young) > _MOST:
            self._limit(calls, by_client)

    def _unmatched(self, calls: Calls, state: CallState, message: Seen, part: Part, *, is_repeated: bool) -> None:
        """WOLP-16: an answer needs a call that waits for it, unless it is sent again."""
        by_client = not message.to_server
        self._exchanged(Exchange(by_client, message.call_id or "", None, None, part, None, False, 0, None))
        is_again = message.type == "fragment" and state.answer is not None and message.text_id == state.answer_text_id
        if not is_repeated and not is_again and not calls.has_forgotten:
            self._found(Fault.RESPONSE_UNMATCHED.name, message, needs_whole=True)

    def _begin_call(self, state: CallState, message: Seen, method: str | None) -> None:
        """The first call with its id."""
        state.ts, state.message_id = message.ts, message.message_id
        state.source, state.offset, state.length = message.source, message.offset, message.length
        state.text_id = message.text_id
        early = state.early
        if early is not None:
            state.early, state.is_judged = None, True
            if early.ts < message.ts:
                return  # it is not known what was answered
        if method is not None:
            state.method = method
            state.are_texts = _are_texts(method, message.parameters or [])
            if state.are_texts and method == "KeyExchange" and not _is_iv((message.parameters or [])[1]):
                state.is_judged = True
                self._found(Fault.KEY_INVALID.name, message, needs_whole=False)  # WOLP-24
                return
        if early is not None:
            self._judge_call(state, early, message.to_server)

    def _judge_call(self, state: CallState, answer: Seen, by_client: bool) -> None:
        """WOLP-20, WOLP-23 to WOLP-25: refused calls, proofs not believed, answers that do not fit the call."""
        code, method = answer.error_code, state.method
        rule: Fault | None = None
        if code is not None:
            if state.are_texts and code == ErrorCode.INVALID_PARAMETERS:
                rule = Fault.KEY_INVALID
            elif method == "KeyExchange" and code == ErrorCode.REQUEST:
                rule = Fault.KEYS_CROSSED
            else:
                rule = _REFUSED.get(code)
        elif method is not None and method in _FITTING:
            value = answer.value or {}
            if method in _PROOFS and value.get("value") == "false":
                rule = Fault.PROOF_WRONG
            elif value.get("type") not in _FITTING[method]:
                self._found(Fault.ANSWER_WRONG.name, answer, needs_whole=False)
                return
        if rule is not None:
            self.findings.append(
                Finding(rule.name, state.ts, by_client, state.message_id, state.source, state.offset, state.length, needs_whole=False)
            )

    def _call_of(self, calls: Calls, call_id: str, by_client: bool, now: int) -> CallState | None:
        """What is known of a CallId, unless it was answered too long ago."""
        state = calls.waiting.get(call_id) or calls.young.get(call_id)
        if state is None:
            if not calls.old:
                return None
            state = calls.old.pop(call_id, None)
            if state is None:
                return None
            calls.young[call_id] = state
        if not state.is_open and now > state.until:
            self._tell_call(by_client, call_id, state)
            del calls.young[call_id]
            return None
        return state

    def _confirm_calls(self, calls: Calls, call_ids: list[str], message: Seen) -> None:
        """A result for the message that carried these calls."""
        for call_id in call_ids:
            state = calls.waiting.get(call_id)
            if state is not None and state.result is None:
                state.result = Part(message.ts, message.message_id, message.size)
                state.result_code = message.result_code or 0

    def _limit(self, calls: Calls, by_client: bool) -> None:
        """Forget the oldest calls if there are too many."""
        if len(calls.young) > _MOST:
            self._forget_calls(calls, by_client)
        if len(calls.waiting) > 2 * _MOST_WAITING:
            calls.has_forgotten = True
            for call_id in list(calls.waiting)[:_MOST_WAITING]:
                self._tell_call(by_client, call_id, calls.waiting.pop(call_id))
            calls.waiting = dict(calls.waiting)

    def _forget_calls(self, calls: Calls, by_client: bool, now: int | None = None) -> None:
        """The young become old, and the old are told; with a time only those that are too old."""
        forgotten, calls.old, calls.young = calls.old, calls.young, {}
        for call_id, state in forgotten.items():
            if now is not None and now <= state.until:
                calls.young[call_id] = state
            else:
                self._tell_call(by_client, call_id, state)

    def _tell_call(self, by_client: bool, call_id: str, state: CallState) -> None:
        """All calls with one id are one exchange: it is answered, failed, or at least confirmed or refused by a result."""
        if state.sent is None:
            return
        answer, outcome = state.answer, None
        if answer is not None:
            outcome = "failed" if state.has_failed else "returned"
        elif state.result is not None:
            answer, outcome = state.result, CONFIRMED if state.result_code == 0 else "refused"
        self._exchanged(Exchange(by_client, call_id, state.subject, state.sent, answer, None, False, state.attempts, outcome))

    def _age(self, now: int) -> None:
        """Forget what is too old."""
        self.ages = now + _REMEMBER
        for by_client, texts, calls in ((True, self.client_texts, self.client_calls), (False, self.server_texts, self.server_calls)):
            self._forget_texts(texts, by_client, now, is_late=True)
            self._forget_calls(calls, by_client, now)


@lru_cache(maxsize=1024)
def _classified(component: str, method: str) -> tuple[type[Any], bool, bool]:
    """The kind of an unencrypted call in the state machine, whether it is about trust, and whether it may be answered."""
    kind = call_kind(component, method, encrypted=False)
    return kind, is_trust(component), kind is not ResetNotice and not is_heartbeat(component, method)


def _without_contents(message: Seen) -> Seen:
    """A message to be kept: of its value only the type, and whether it is false."""
    value = message.value
    if value is not None:
        value = {"type": value["type"], "value": value["value"] if value["value"] == "false" else ""}
    return msgspec.structs.replace(message, payload=None, parameters=None, value=value)


def _text(value: Described | None) -> str:
    """The text that a value is, escaped; empty if it is none."""
    return value["value"][1:] if value is not None and value["type"] == "string" else ""


def _are_texts(method: str, parameters: list[Described]) -> bool:
    """Whether a call of trust carries keys or proofs: as many texts as its method takes."""
    declared = METHODS.get(method)
    return (
        declared is not None and declared.returns and bool(parameters) and declared.parameters == tuple(one["type"] for one in parameters)
    )


def _is_iv(parameter: Described) -> bool:
    """WOLP-24: whether a text is an IV."""
    try:
        read_iv(msgspec.json.decode(parameter["value"], type=str))
    except RemoteProtocolError:
        return False
    return True

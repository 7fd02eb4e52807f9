"""Wolpertinger as an observer sees it: texts with results, calls with answers, and which keys are agreed on.

Two things are followed: `text_analyzer` has what one side sent with one id, and `call_analyzer` what became of a CallId. Which components a
callee has, and whom it trusts, is not on the wire; but a callee that refuses a call says so, and is believed. Whether a method is void is
not on the wire either: a call that was confirmed and never answered breaks no rule, unless every peer has its component.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec

from wirelake.errors import FaultLike
from wirelake.protocols.analyzer import NO_TIME, Exchange, Finding, Part, SeenMessage, SessionAnalyzer, Timeouts
from wirelake.protocols.state_table import StateTable, state_table
from wirelake.protocols.used_ids import UsedKeys, UsedNumbers
from wirelake.protocols.wolpertinger.call_analyzer import FITTING, Calls, CallState
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.confirmation import content_digest
from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.state_machine import (
    MACHINE,
    MESSAGES,
    Encrypted,
    EncryptionError,
    ResetNotice,
    call_kind,
    error_kind,
    is_heartbeat,
    is_trust,
    response_kind,
)
from wirelake.protocols.wolpertinger.text_analyzer import REMEMBER, SECOND, Described, Seen, Text, Texts

__all__ = ["Analyzer", "Seen"]

_ANSWER: Final = round(DEFAULT_OPTIONS.call_timeout * SECOND)
"""WOLP-21: how long the answer to a confirmed call may take."""
_OVERFLOW: Final = 1 << 30
"""WOLP-3: a message id that is so much smaller than the last one is that of a counter that began again."""
_MOST_QUESTIONS: Final = 64
"""Calls in the same microsecond that every peer answers, and that are remembered: the last ones."""

_TAGS: Final[dict[type[Any], str]] = {what: str(what.__struct_config__.tag) for what in MESSAGES}
_ESTABLISH: Final = "EstablishConnection"
_CALL, _RESPONSE, _ERROR = _TAGS[Call], _TAGS[Response], _TAGS[Error]
_SMALLEST, _LARGEST = -(1 << 15), (1 << 15) - 1
"""Error codes that `sessions` can show."""


class Question(msgspec.Struct, gc=False, array_like=True):
    """A call that every peer answers."""

    message: Seen
    confirmed: int = NO_TIME


class UsedIds(msgspec.Struct, array_like=True):
    """The identifiers that one side used since its counter began (WOLP-3, WOLP-14)."""

    texts: UsedNumbers = msgspec.field(default_factory=UsedNumbers)
    """Ids of messages that were confirmed: none of them is sent again."""
    calls: UsedKeys = msgspec.field(default_factory=UsedKeys)
    """CallIds of calls that were answered."""
    last: int = 0
    """The message id of its last text."""


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
    client_ids: UsedIds = msgspec.field(default_factory=UsedIds)
    server_ids: UsedIds = msgspec.field(default_factory=UsedIds)
    restarted: int = NO_TIME
    """When counters of message ids may have begun again."""
    ages: int = NO_TIME
    """When the young become old, and the old are forgotten."""
    questions: list[Question] = msgspec.field(default_factory=list)
    """The last messages that are neither results nor errors, if they are questions; see `_MOST_QUESTIONS`."""
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
        if self._may_restart(message):
            self._restart(ts)
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
            for text in texts:
                self._judge_text(text, by_client)
            self._tell_calls(list(calls), by_client)
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
        known = self._text_of(texts, message, message.to_server)
        if message.type == "message" and message.fault is None and self._has_used_id(message, known):
            self._found(Fault.ID_REUSED.name, message, needs_whole=True)
        text = texts.take(message, known)
        if known is None and texts.is_full:
            self._forget_texts(texts, message.to_server, message.ts, is_late=False)
        if text.is_repeated:
            self._found(Fault.MESSAGE_REPEATED.name, message, needs_whole=True)  # WOLP-10
        return text

    def _takes_result(self, message: Seen) -> None:
        """WOLP-4: a result is for a message of the other side that waits for one.

        One that is not success may be for a text that could not be read, and so is never too many.
        """
        by_client = not message.to_server
        texts = self.client_texts if by_client else self.server_texts
        text = self._text_of(texts, message, by_client)
        if text is None or text.is_settled:
            if message.result_code == 0 and not texts.has_forgotten:
                self._found(Fault.RESULT_UNMATCHED.name, message, needs_whole=True)
            return
        if self.questions:
            self._confirm_question(text, message)
        if message.result_code == 0 and text.ts > self.restarted and not text.is_incomplete:
            self._ids_of(by_client).texts.take(message.text_id)
        if call_ids := text.settle():
            (self.client_calls if by_client else self.server_calls).confirm(call_ids, message)

    def _may_restart(self, message: Seen) -> bool:
        """WOLP-3, WOLP-28: whether counters may begin again: by a reset, EstablishConnection, an overflow, or what cannot be read."""
        ids = self._ids_of(message.to_server)
        last, ids.last = ids.last, message.text_id
        if last - message.text_id > _OVERFLOW:
            return True
        if message.root == _CALL:
            method = message.method or ""
            kind, is_of_trust, _ = _classified(message.component or "", method)
            return kind is ResetNotice or (is_of_trust and method == _ESTABLISH)
        if message.root == _ERROR:
            return message.encryption is None and error_kind(message.error_code or 0) is EncryptionError
        return message.root is None and message.encryption is not None

    def _restart(self, now: int) -> None:
        self.restarted = now
        for ids in (self.client_ids, self.server_ids):
            ids.texts, ids.calls = UsedNumbers(), UsedKeys()

    def _has_used_id(self, message: Seen, known: Text | None) -> bool:
        """WOLP-3: whether the id is that of another message. A message that is sent again (WOLP-10) is not another one.

        It may be compressed or encrypted again, unless it was confirmed. Pieces are not compared.
        """
        is_confirmed = self._ids_of(message.to_server).texts.has(message.text_id)
        if known is None:
            return is_confirmed
        if not known.digest or known.ts <= self.restarted:
            return False
        if is_confirmed:
            is_remade = message.encryption is not None
        else:
            is_remade = known.is_settled or message.encryption is not None or message.gzip is not None
        return not is_remade and content_digest(message.payload or b"", message.gzip, message.encryption is not None) != known.digest

    def _ids_of(self, client: bool) -> UsedIds:
        return self.client_ids if client else self.server_ids

    def _text_of(self, texts: Texts, message: Seen, by_client: bool) -> Text | None:
        """What is known of the id of a text or a result, unless it is too old."""
        text = texts.find(message.text_id)
        if text is not None and message.ts > text.until:
            self._judge_text(text, by_client)
            texts.drop(message.text_id)
            return None
        return text

    def _forget_texts(self, texts: Texts, by_client: bool, now: int, *, is_late: bool) -> None:
        for text in texts.forget(now, is_late=is_late):
            self._judge_text(text, by_client)

    def _judge_text(self, text: Text, by_client: bool) -> None:
        """WOLP-9, WOLP-10: pieces and results that are missing. The finding has the time when they were due."""
        missing = None if text.is_settled else text.omission(self.last_seen, is_closed=self.closed is not None)
        if missing is not None:
            culprit = by_client == missing.by_sender
            self.findings.append(
                Finding(missing.rule.name, missing.ts, culprit, None, text.source, text.offset, text.length, needs_whole=True)
            )

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
        if is_of_trust and method in FITTING:
            self.questions.append(Question(_without_contents(message)))
            del self.questions[:-_MOST_QUESTIONS]
        call_id = message.call_id
        if call_id is None or message.fault is not None:
            return
        calls = self.client_calls if message.to_server else self.server_calls
        state = self._call_of(calls, call_id, message.to_server, message.ts)
        if is_request and self._has_used_call_id(message, state, text):
            self._found(Fault.CALL_ID_REUSED.name, message, needs_whole=True)
        if state is None:
            state = CallState(text.until)
            (calls.waiting if is_request else calls.young)[call_id] = state
            if calls.is_full:
                self._tell_calls(calls.limit(), message.to_server)
        state.until = text.until
        if state.ts == NO_TIME:
            self._begin_call(state, message, method if is_of_trust else None)
        elif state.text_id != message.text_id:
            if state.is_answered and not text.is_repeated:  # not sent again, but used again
                state.begin_again()
                self._begin_call(state, message, method if is_of_trust else None)
            else:
                state.is_sole = False
        state.is_answered = False
        if is_request:
            self._ask(calls, call_id, state, message, is_repeated=text.is_repeated)
            if state.result is None and state.answer is None:
                text.carries(call_id)

    def _ask(self, calls: Calls, call_id: str, state: CallState, message: Seen, *, is_repeated: bool) -> None:
        """WOLP-14: a request needs a CallId that is not in flight, unless it is sent again."""
        state.ask(message)
        if not state.is_open:
            calls.opens(call_id, state)
        elif not is_repeated and not (message.type == "fragment" and message.text_id == state.text_id):
            self._found(Fault.CALL_ID_IN_FLIGHT.name, message, needs_whole=True)

    def _has_used_call_id(self, message: Seen, state: CallState | None, text: Text) -> bool:
        """WOLP-14: whether the CallId is that of a call which was answered. One that is sent again keeps its message id."""
        if text.is_repeated or (state is not None and (state.is_open or state.text_id == message.text_id)):
            return False
        return self._ids_of(message.to_server).calls.has((message.call_id or "").encode())

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
            state = calls.young[call_id] = CallState(message.ts + REMEMBER, early=_without_contents(message))
            if calls.is_full:
                self._tell_calls(calls.limit(), by_client)
        elif not state.is_judged and state.early is None:
            state.is_judged = True
            if state.is_sole:
                self._judge_call(state, message, by_client)
        state.is_answered = True
        part = Part(message.ts, message.message_id, message.size)
        if not state.is_open:
            self._unmatched(calls, state, message, part, is_repeated=text.is_repeated)
            return
        if state.answer is None:
            state.answer, state.answer_text_id, state.has_failed = part, message.text_id, message.root == _ERROR
        state.until = max(state.until, message.ts + REMEMBER)
        calls.closes(call_id, state)
        if state.ts > self.restarted:
            self._ids_of(by_client).calls.take(call_id.encode())
        if calls.is_full:
            self._tell_calls(calls.limit(), by_client)

    def _unmatched(self, calls: Calls, state: CallState, message: Seen, part: Part, *, is_repeated: bool) -> None:
        """WOLP-16: an answer needs a call that waits for it, unless it is sent again."""
        by_client = not message.to_server
        self._exchanged(Exchange(by_client, message.call_id or "", None, None, part, None, False, 0, None))
        is_again = message.type == "fragment" and state.answer is not None and message.text_id == state.answer_text_id
        if not is_repeated and not is_again and not calls.has_forgotten:
            self._found(Fault.RESPONSE_UNMATCHED.name, message, needs_whole=True)

    def _begin_call(self, state: CallState, message: Seen, method: str | None) -> None:
        """The first call with its id."""
        early = state.begin(message, method)
        if state.has_wrong_iv(message):
            state.is_judged = True
            self._found(Fault.KEY_INVALID.name, message, needs_whole=False)  # WOLP-24
        elif early is not None:
            self._judge_call(state, early, message.to_server)

    def _judge_call(self, state: CallState, answer: Seen, by_client: bool) -> None:
        """WOLP-20, WOLP-23 to WOLP-25: refused calls, proofs not believed, answers that do not fit the call."""
        rule = state.refusal(answer)
        if rule is not None:
            self.findings.append(
                Finding(rule.name, state.ts, by_client, state.message_id, state.source, state.offset, state.length, needs_whole=False)
            )
        elif state.misfits(answer):
            self._found(Fault.ANSWER_WRONG.name, answer, needs_whole=False)

    def _call_of(self, calls: Calls, call_id: str, by_client: bool, now: int) -> CallState | None:
        """What is known of a CallId, unless it was answered too long ago."""
        state = calls.find(call_id)
        if state is not None and not state.is_open and now > state.until:
            self._tell_calls([(call_id, state)], by_client)
            calls.drop(call_id)
            return None
        return state

    def _tell_calls(self, certain: list[tuple[str, CallState]], by_client: bool) -> None:
        for call_id, state in certain:
            exchange = state.exchange(call_id, by_client=by_client)
            if exchange is not None:
                self._exchanged(exchange)

    def _age(self, now: int) -> None:
        """Forget what is too old."""
        self.ages = now + REMEMBER
        for by_client, texts, calls in ((True, self.client_texts, self.client_calls), (False, self.server_texts, self.server_calls)):
            self._forget_texts(texts, by_client, now, is_late=True)
            self._tell_calls(calls.forget(now), by_client)


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

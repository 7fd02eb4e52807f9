"""The calls of one side of wolpertinger as an observer sees them: attempts, results, answers, and refusals.

A `CallState` is what became of a CallId: it waits for an answer. Once answered, it is forgotten after five minutes (WOLP-10), or once
`MOST` others were answered later: a CallId that is used again then is a new one. A call that is not answered is forgotten once
`MOST_WAITING` later ones wait. So an exchange is told when its CallId is forgotten, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.analyzer import NO_TIME, Exchange, Part
from wirelake.protocols.oldest import split_oldest
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import ErrorCode
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.text_analyzer import Described, Seen
from wirelake.protocols.wolpertinger.trust.authentication import METHODS
from wirelake.protocols.wolpertinger.trust.key_agreement import read_iv

__all__ = ["CONFIRMED", "FITTING", "CallState", "Calls"]

CONFIRMED: Final = "confirmed"
"""Outcome of a call that was delivered, and that nothing answered."""
MOST: Final = DEFAULT_OPTIONS.max_calls
"""How many answered calls of one side are remembered at least, if they are not too old; twice as many at most."""
MOST_WAITING: Final = DEFAULT_OPTIONS.max_unconfirmed
"""How many calls of one side may wait for an answer; twice as many at most."""
FITTING: Final = {
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

    def begin(self, message: Seen, method: str | None) -> Seen | None:
        """The first call with its id. Returns an answer that came before it, in the same microsecond: it is about this call."""
        self.ts, self.message_id = message.ts, message.message_id
        self.source, self.offset, self.length = message.source, message.offset, message.length
        self.text_id = message.text_id
        early, self.early = self.early, None
        if early is not None:
            self.is_judged = True
            if early.ts < message.ts:
                return None  # it is not known what was answered
        if method is not None:
            self.method = method
            self.are_texts = _are_texts(method, message.parameters or [])
        return early

    def begin_again(self) -> None:
        """The id is used again after an answer, for another call."""
        self.is_sole, self.is_judged, self.are_texts, self.method = True, False, False, None

    def has_wrong_iv(self, message: Seen) -> bool:
        """WOLP-24: whether the call is an exchange of keys with a text that is no IV."""
        return self.are_texts and self.method == "KeyExchange" and not _is_iv((message.parameters or [])[1])

    def ask(self, message: Seen) -> None:
        """A request."""
        subject = f"{message.component}.{message.method}"
        self.attempts += 1
        if self.sent is None:
            self.sent = Part(message.ts, message.message_id, message.size)
            self.subject = subject
        elif self.subject is not None and subject < self.subject:
            self.subject = subject

    def refusal(self, answer: Seen) -> Fault | None:
        """WOLP-20, WOLP-23 to WOLP-25: the rule that the call breaks, as its answer says: it is refused, or its proof is not believed."""
        code, method = answer.error_code, self.method
        if code is None:
            is_disbelieved = method in _PROOFS and (answer.value or {}).get("value") == "false"
            return Fault.PROOF_WRONG if is_disbelieved else None
        if self.are_texts and code == ErrorCode.INVALID_PARAMETERS:
            return Fault.KEY_INVALID
        if method == "KeyExchange" and code == ErrorCode.REQUEST:
            return Fault.KEYS_CROSSED
        return _REFUSED.get(code)

    def misfits(self, answer: Seen) -> bool:
        """WOLP-23 to WOLP-25: whether a value does not fit the method of trust that it answers."""
        if answer.error_code is not None or self.method is None or self.method not in FITTING:
            return False
        return (answer.value or {}).get("type") not in FITTING[self.method]

    def exchange(self, call_id: str, *, by_client: bool) -> Exchange | None:
        """All calls with one id are one exchange: it is answered, failed, or at least confirmed or refused by a result."""
        if self.sent is None:
            return None
        answer, outcome = self.answer, None
        if answer is not None:
            outcome = "failed" if self.has_failed else "returned"
        elif self.result is not None:
            answer, outcome = self.result, CONFIRMED if self.result_code == 0 else "refused"
        return Exchange(by_client, call_id, self.subject, self.sent, answer, None, False, self.attempts, outcome)


Forgotten = list[tuple[str, CallState]]
"""CallIds with what became of them."""


class Calls(msgspec.Struct, array_like=True):
    """The calls of one side. What is forgotten is returned: its exchange is certain."""

    waiting: dict[str, CallState] = msgspec.field(default_factory=dict)
    """Those that are not answered."""
    young: dict[str, CallState] = msgspec.field(default_factory=dict)
    """The others, in two generations."""
    old: dict[str, CallState] = msgspec.field(default_factory=dict)
    has_forgotten: bool = False
    """Whether there were too many without an answer: then an answer without a call may have had one."""

    def __iter__(self) -> Iterator[tuple[str, CallState]]:
        for known in (self.old, self.young, self.waiting):
            yield from known.items()

    @property
    def is_full(self) -> bool:
        """Whether the caller should call `limit`."""
        return len(self.young) > MOST or len(self.waiting) > 2 * MOST_WAITING

    def find(self, call_id: str) -> CallState | None:
        """What is known of a CallId."""
        state = self.waiting.get(call_id) or self.young.get(call_id)
        if state is None and self.old:
            state = self.old.pop(call_id, None)
            if state is not None:
                self.young[call_id] = state
        return state

    def drop(self, call_id: str) -> None:
        """Forget a CallId that `find` found, and that does not wait."""
        del self.young[call_id]

    def opens(self, call_id: str, state: CallState) -> None:
        """A request waits for its answer."""
        state.is_open = True
        if state.attempts > 1 or call_id not in self.waiting:
            self.young.pop(call_id, None)
            self.waiting[call_id] = state

    def closes(self, call_id: str, state: CallState) -> None:
        """It has its answer."""
        state.is_open = False
        del self.waiting[call_id]
        self.young[call_id] = state

    def confirm(self, call_ids: list[str], result: Seen) -> None:
        """A result for the message that carried these calls."""
        for call_id in call_ids:
            state = self.waiting.get(call_id)
            if state is not None and state.result is None:
                state.result = Part(result.ts, result.message_id, result.size)
                state.result_code = result.result_code or 0

    def limit(self) -> Forgotten:
        """Forget the oldest calls if there are too many."""
        forgotten = self.forget() if len(self.young) > MOST else []
        if len(self.waiting) > 2 * MOST_WAITING:
            self.has_forgotten = True
            oldest, self.waiting = split_oldest(self.waiting, MOST_WAITING)
            forgotten += oldest
        return forgotten

    def forget(self, now: int | None = None) -> Forgotten:
        """The young become old, and the old are forgotten; with a time only those that are too old."""
        former, self.old, self.young = self.old, self.young, {}
        forgotten = []
        for call_id, state in former.items():
            if now is not None and now <= state.until:
                self.young[call_id] = state
            else:
                forgotten.append((call_id, state))
        return forgotten


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

"""Layer 1 of one side: deliver received payloads, and send payloads until confirmed."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.kernel import FAULT, KIND
from wirelake.protocols.wolpertinger.events import Noticed
from wirelake.protocols.wolpertinger.faults import SPLITTING, UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer1.confirmation import Remembered, Unconfirmed, content_digest
from wirelake.protocols.wolpertinger.layer1.fragments import Assembly, split
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope, ResultCode, TextKind
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS, Options
from wirelake.protocols.wolpertinger.scanner import (
    FRAGMENT_COUNT,
    FRAGMENT_INDEX,
    MESSAGE_ID,
    ODD_ALIAS,
    ODD_CASE,
    ODD_CODE,
    ODD_PAYLOAD,
    ODDITIES,
    RESULT,
)
from wirelake.protocols.wolpertinger.wire import BLANKS, Keys, encode, encode_plain, envelope, opened, sealed

__all__ = ["Confirmed", "Delivered", "Layer1", "Outcome", "Piece", "Undelivered"]

_ODD: Final = {
    ODD_CASE: Fault.KEY_NOT_LOWER,
    ODD_ALIAS: Fault.ALIAS_USED,
    ODD_PAYLOAD: Fault.RESULT_PAYLOAD,
    ODD_CODE: Fault.RESULT_CODE_UNKNOWN,
}


# Members of enums that every text reads.
_RESULT: Final = TextKind.RESULT.value
_CLEAR: Final = Encryption.NONE


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message of the peer: whole, decrypted and confirmed."""

    message_id: int
    payload: bytes
    encrypted: bool


class Piece(msgspec.Struct, frozen=True):
    """WOLP-21: a fragment arrived: the peer is alive."""


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """A message of ours has arrived."""

    message_id: int


class Undelivered(msgspec.Struct, frozen=True):
    """A message of ours was refused with a code, or never confirmed (code 1, WOLP-4)."""

    message_id: int
    code: int


Outcome = Delivered | Piece | Confirmed | Undelivered | Noticed


class Layer1:
    """Layer 1 of one side."""

    def __init__(self, options: Options = DEFAULT_OPTIONS, keys: Keys | None = None) -> None:
        self.options = options
        self.keys = keys
        """The keys that encrypt and decrypt, once agreed on."""
        self.unconfirmed = Unconfirmed(options.confirm_timeout, options.retries)
        """Messages of ours without a result."""
        self._remembered = Remembered(options.max_remembered)
        characters = -(-options.limits.max_reassembled_size // 3) * 4
        self._assembly = Assembly(options.fragment_timeout, characters, options.max_incomplete)
        self._output: list[bytes] = []
        self._outcomes: list[Outcome] = []
        self._max_unconfirmed = options.max_unconfirmed
        self._limits = options.limits
        self._life = options.life(1)
        self._plain_size = -1 if options.compress else min(options.fragment_size // 4 * 3, options.limits.max_reassembled_size)
        """Bytes of a payload in clear that needs neither gzip nor fragments."""

    @property
    def deadline(self) -> float | None:
        """When `tick` wants to be called next."""
        unconfirmed, incomplete = self.unconfirmed.due.first, self._assembly.deadline
        return incomplete if unconfirmed is None else unconfirmed if incomplete is None else min(unconfirmed, incomplete)

    @property
    def has_understood(self) -> bool:
        """Whether something came of the last text beside what was noticed."""
        return any(not isinstance(outcome, Noticed) for outcome in self._outcomes)

    def messages(self) -> list[bytes]:
        """The texts to send now; they are gone from here."""
        if not self._output:
            return []
        messages, self._output = self._output, []
        return messages

    def outcomes(self) -> list[Outcome]:
        """What came of it since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def send(self, payload: bytes, now: float, *, in_clear: bool = False) -> int:
        """Send a payload, encrypted if there are keys; the id says later whether it arrived.

        Raises LocalProtocolError.
        """
        limits, unconfirmed = self._limits, self.unconfirmed
        if len(payload) <= self._plain_size and (self.keys is None or in_clear):
            message_id = unconfirmed.next_id()
            text = encode_plain(message_id, payload, limits)
            self._output.append(text)
            unconfirmed.add(message_id, [text], now)
            return message_id
        if len(payload) > limits.max_reassembled_size:  # WOLP-29
            raise LocalProtocolError(Fault.TEXT_OVER_LIMIT, f"{len(payload)} bytes, limit {limits.max_reassembled_size}")
        what = sealed(payload, None if in_clear else self.keys, compress=self.options.compress)
        pieces = split(what.text, self.options.fragment_size)
        message_id = unconfirmed.next_id()
        if len(pieces) == 1:
            texts = [encode(Envelope(message_id, what.text, what.gzip, what.encryption), limits)]
        else:
            texts = [
                encode(Envelope(message_id, piece, what.gzip, what.encryption, index, len(pieces)), limits)
                for index, piece in enumerate(pieces)
            ]
        self._output += texts
        unconfirmed.add(message_id, texts, now)
        return message_id

    def receive(self, data: bytes, row: list[int], now: float) -> None:
        """One text of the peer, as the scanner read it."""
        if row[ODDITIES]:
            self._outcomes += [Noticed(oddity) for bit, oddity in _ODD.items() if row[ODDITIES] & bit]
        if row[FAULT] and row[FAULT] in UNREADABLE:
            self._refuse(row, Fault(row[FAULT]), now)
            return
        if row[KIND] == _RESULT:
            self._take_result(row[RESULT], row[MESSAGE_ID])
            return
        if len(self.unconfirmed.sent) >= self._max_unconfirmed:
            self._outcomes.append(Noticed(Fault.TOO_BUSY))
            return
        whole = envelope(data, row)
        if whole.fragment_count is None:
            self._take(whole, now, self._life)
        else:
            self._take_piece(whole, now)

    def tick(self, now: float, *, listening: bool = True) -> None:
        """Time passed: messages are sent again or given up (WOLP-10), and so are incomplete ones (WOLP-9)."""
        again, lost = self.unconfirmed.expire(now, listening=listening)
        self._output += again
        self._outcomes += [Undelivered(message_id, ResultCode.TIMEOUT) for message_id in lost]
        self._outcomes += [Noticed(Fault.FRAGMENTS_TIMED_OUT, f"message {message_id}") for message_id in self._assembly.expire(now)]

    def forget(self, message_id: int | None) -> None:
        """WOLP-10: a peer that establishes a connection may restart its ids.

        `message_id` is the message that says so.
        """
        self._remembered.forget_all_but(message_id)

    def reset(self, message_id: int | None) -> None:
        """WOLP-28: forget keys, fragments, delivered and sent messages.

        `message_id` is the message that caused it, if any.
        """
        self.keys = None
        self._assembly.clear()
        self.unconfirmed.clear()
        self._remembered.forget_all_but(message_id)

    # Internal.

    def _result(self, code: int, message_id: int) -> None:
        self._output.append(b"result:%d;message_id:%d;" % (code, message_id))

    def _refuse(self, row: list[int], fault: Fault, now: float) -> None:
        """WOLP-2, WOLP-4: a text that cannot be read is answered if its id can be, unless it is a result."""
        code = fault.rule.result
        if code == SPLITTING and row[MESSAGE_ID] >= 0:
            count = min(max(row[FRAGMENT_COUNT], 1), self.options.limits.max_fragments)
            piece = Envelope(row[MESSAGE_ID], fragment_index=row[FRAGMENT_INDEX], fragment_count=count)
            fault = self._assembly.refuse(piece, fault, now)
            code = fault.rule.result
        self._outcomes.append(Noticed(fault))
        if code is not None and row[MESSAGE_ID] >= 0 and row[KIND] != TextKind.RESULT:
            self._result(code, row[MESSAGE_ID])

    def _take_result(self, code: int, message_id: int) -> None:
        if not self.unconfirmed.confirm(message_id):
            self._outcomes.append(Noticed(Fault.RESULT_UNMATCHED, f"message {message_id}"))
        elif not code:  # success
            self._outcomes.append(Confirmed(message_id))
        else:
            known = code if code <= ResultCode.INVALID_FORMAT else ResultCode.UNKNOWN_ERROR  # WOLP-4
            self._outcomes.append(Undelivered(message_id, known))

    def _take_piece(self, piece: Envelope, now: float) -> None:
        self._outcomes.append(Piece())
        joined = self._assembly.add(piece, now)
        if isinstance(joined, Fault):
            self._outcomes.append(Noticed(joined, f"message {piece.message_id}"))
            if (code := joined.rule.result) is not None:
                self._result(code, piece.message_id)
        elif joined is not None:
            self._take(joined, now, self.options.life(piece.fragment_count or 1))

    def _take(self, whole: Envelope, now: float, life: float) -> None:
        """A whole message: known again, or opened, remembered for so long and confirmed (WOLP-10)."""
        message_id, text, encryption = whole.message_id, whole.payload, whole.encryption
        digest = content_digest(text, whole.gzip, encryption is not _CLEAR)
        if self._remembered.holds(message_id, digest, now):
            self._outcomes.append(Noticed(Fault.MESSAGE_REPEATED, f"message {message_id}"))
            self._result(ResultCode.SUCCESS, message_id)
            return
        base64 = text.translate(None, BLANKS)
        try:
            payload = opened(base64, whole.gzip, encryption, self.keys, self._limits)
        except DecodeError as reason:
            fault = cast(Fault, reason.fault)
            self._outcomes.append(Noticed(fault, f"message {message_id}"))
            self._result(cast(int, fault.rule.result), message_id)
            return
        if len(base64) != len(text):
            self._outcomes.append(Noticed(Fault.PAYLOAD_BLANKS))
        self._remembered.add(message_id, digest, now, life)
        self._output.append(b"result:0;message_id:%d;" % message_id)
        self._outcomes.append(Delivered(message_id, payload, encryption is not _CLEAR))

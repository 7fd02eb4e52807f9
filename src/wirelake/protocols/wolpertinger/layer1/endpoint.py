"""Layer 1 of one side: deliver received payloads, and send payloads until confirmed."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.gzip import inflated_at_most
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
from wirelake.protocols.wolpertinger.wire import BLANKS, Keys, base64_length, encode, encode_plain, envelope, from_base64, opened, sealed

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
TAG: Final = 16
"""Bytes that a tag in a decompressed document counts for: reading it takes as long as inflating them takes, and far longer."""


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
        self.assembly = Assembly(options.fragment_timeout, characters, options.max_incomplete)
        """Messages of the peer that lack fragments."""
        self._output: list[bytes] = []
        self.unread: list[Outcome] = []
        """Outcomes that `outcomes` has not given yet."""
        self.inflated = 0
        """Bytes that decompressing made so far; each tag in them counts as `TAG` more."""
        self._max_unconfirmed = options.max_unconfirmed
        self._limits = options.limits
        self._life = options.life(1)
        self._plain_size = -1 if options.compress else min(options.fragment_size // 4 * 3, options.limits.max_reassembled_size)
        """Bytes of a payload in clear that needs neither gzip nor fragments."""

    def messages(self) -> list[bytes]:
        """The texts to send now; they are gone from here."""
        if not self._output:
            return []
        messages, self._output = self._output, []
        return messages

    def outcomes(self) -> list[Outcome]:
        """What came of it since the last call."""
        outcomes, self.unread = self.unread, []
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
            self.unread += [Noticed(oddity) for bit, oddity in _ODD.items() if row[ODDITIES] & bit]
        if row[FAULT] and row[FAULT] in UNREADABLE:
            self._refuse(row, Fault(row[FAULT]), now)
            return
        if row[KIND] == _RESULT:
            if self.take_result(row[RESULT], row[MESSAGE_ID]):
                self.unread.append(Confirmed(row[MESSAGE_ID]))
            return
        text: Envelope | None = envelope(data, row)
        life = self._life
        if text is not None and text.fragment_count is not None:
            life = self.options.life(text.fragment_count)
            text = self._take_piece(text, now)
        if text is not None:
            payload = self.take_message(text.message_id, text.payload, text.encryption, now, gzip=text.gzip, life=life)
            if payload is not None:
                self.unread.append(Delivered(text.message_id, payload, text.encryption is not _CLEAR))

    def take_result(self, code: int, message_id: int) -> bool:
        """A result of the peer: whether a message of ours has arrived. If not, there is an outcome."""
        if not self.unconfirmed.confirm(message_id):
            self.unread.append(Noticed(Fault.RESULT_UNMATCHED, f"message {message_id}"))
            return False
        if code:
            known = code if code <= ResultCode.INVALID_FORMAT else ResultCode.UNKNOWN_ERROR  # WOLP-4
            self.unread.append(Undelivered(message_id, known))
        return not code

    def take_message(
        self, message_id: int, text: bytes, encryption: Encryption, now: float, *, gzip: int | None = None, life: float | None = None
    ) -> bytes | None:
        """A whole message of the peer, whose payload came as `text`: known again, or opened, remembered and confirmed (WOLP-10).

        The payload is to be delivered; if there is none, there is an outcome.
        """
        if len(self.unconfirmed.sent) >= self._max_unconfirmed:
            self.unread.append(Noticed(Fault.TOO_BUSY))
            return None
        is_encrypted = encryption is not _CLEAR
        digest = content_digest(text, gzip, is_encrypted)
        if self._remembered.holds(message_id, digest, now):
            self.unread.append(Noticed(Fault.MESSAGE_REPEATED, f"message {message_id}"))
            self._result(ResultCode.SUCCESS, message_id)
            return None
        try:
            is_plain = gzip is None and not is_encrypted
            payload = from_base64(text) if is_plain else opened(text, gzip, encryption, self.keys, self._limits)
        except DecodeError as reason:
            fault = cast(Fault, reason.fault)
            self.unread.append(Noticed(fault, f"message {message_id}"))
            self._result(cast(int, fault.rule.result_code), message_id)
            if gzip is not None:
                self.inflated += inflated_at_most(gzip, self._limits.max_inflated_size)
            return None
        if gzip is not None:
            self.inflated += len(payload) + TAG * payload.count(b"<")
        # In clear, the size of a payload says how long its base64 is without blanks.
        if len(text) != (base64_length(len(payload)) if is_plain else len(text.translate(None, BLANKS))):
            self.unread.append(Noticed(Fault.PAYLOAD_BLANKS))
        self._remembered.add(message_id, digest, now, self._life if life is None else life)
        self._output.append(b"result:0;message_id:%d;" % message_id)
        return payload

    def tick(self, now: float, *, listening: bool = True) -> None:
        """Time passed: messages are sent again or given up (WOLP-10), and so are incomplete ones (WOLP-9)."""
        again, lost = self.unconfirmed.expire(now, listening=listening)
        self._output += again
        self.unread += [Undelivered(message_id, ResultCode.TIMEOUT) for message_id in lost]
        self.unread += [Noticed(Fault.FRAGMENTS_TIMED_OUT, f"message {message_id}") for message_id in self.assembly.expire(now)]

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
        self.assembly.clear()
        self.unconfirmed.clear()
        self._remembered.forget_all_but(message_id)

    # Internal.

    def _result(self, code: int, message_id: int) -> None:
        self._output.append(b"result:%d;message_id:%d;" % (code, message_id))

    def _refuse(self, row: list[int], fault: Fault, now: float) -> None:
        """WOLP-2, WOLP-4: a text that cannot be read is answered if its id can be, unless it is a result."""
        code = fault.rule.result_code
        if code == SPLITTING and row[MESSAGE_ID] >= 0:
            count = min(max(row[FRAGMENT_COUNT], 1), self.options.limits.max_fragments)
            piece = Envelope(row[MESSAGE_ID], fragment_index=row[FRAGMENT_INDEX], fragment_count=count)
            fault = self.assembly.refuse(piece, fault, now)
            code = fault.rule.result_code
        self.unread.append(Noticed(fault))
        if code is not None and row[MESSAGE_ID] >= 0 and row[KIND] != TextKind.RESULT:
            self._result(code, row[MESSAGE_ID])

    def _take_piece(self, piece: Envelope, now: float) -> Envelope | None:
        """A fragment: returns the whole message if it was the last."""
        if len(self.unconfirmed.sent) >= self._max_unconfirmed:
            self.unread.append(Noticed(Fault.TOO_BUSY))
            return None
        self.unread.append(Piece())
        joined = self.assembly.add(piece, now)
        if isinstance(joined, Fault):
            self.unread.append(Noticed(joined, f"message {piece.message_id}"))
            if (code := joined.rule.result_code) is not None:
                self._result(code, piece.message_id)
            return None
        return joined

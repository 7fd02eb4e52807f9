"""Message Id and Delivery Confirmation (WOLP-3, WOLP-10).

Sent messages that wait for a result, and received messages that may be sent again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from wirelake.protocols.expiries import Expiries
from wirelake.protocols.wolpertinger.messages import HIGHEST_SENT_ID

__all__ = ["Remembered", "Unconfirmed", "content_digest"]


ENTRY: Final = 512
"""Bytes of memory that a message without a result takes beside its texts, about."""
KNOWN: Final = 256
"""Bytes of memory that a delivered message takes, about."""


class _Sent(msgspec.Struct, gc=False):
    texts: list[bytes]
    timeout: float
    retries: int
    size: int


class Unconfirmed:
    """Messages of ours without a result."""

    def __init__(self, timeout: float, retries: int) -> None:
        self._timeout = timeout
        self._retries = retries
        self.sent: dict[int, _Sent] = {}
        """By their id."""
        self.due: Expiries[int] = Expiries()
        """When each message is sent again, or given up."""
        self.last_id = 0
        """The last id that was used."""
        self.memory = 0
        """Bytes of memory that they take, about."""

    def __len__(self) -> int:
        return len(self.sent)

    def __contains__(self, message_id: int) -> bool:
        return message_id in self.sent

    def next_id(self) -> int:
        """WOLP-3: 1 to 2147483647, then 1 again; never that of a message that is still unconfirmed."""
        while True:
            self.last_id = self.last_id % HIGHEST_SENT_ID + 1
            if self.last_id not in self.sent:
                return self.last_id

    def add(self, message_id: int, texts: list[bytes], now: float) -> None:
        """A message was sent, in so many fragments."""
        timeout = self._timeout if len(texts) == 1 else self._timeout * len(texts)
        size = ENTRY + (len(texts[0]) if len(texts) == 1 else sum(map(len, texts)))
        self.sent[message_id] = _Sent(texts, timeout, self._retries, size)
        self.memory += size
        self.due.set(message_id, now + timeout)

    def confirm(self, message_id: int) -> bool:
        """A result arrived; return whether the message waited for one."""
        self.due.drop(message_id)
        if (sent := self.sent.pop(message_id, None)) is None:
            return False
        self.memory -= sent.size
        return True

    def expire(self, now: float, *, listening: bool = True) -> tuple[list[bytes], list[int]]:
        """Time passed: texts to send again, and messages that are given up.

        A side that does not read goes on waiting.
        """
        again: list[bytes] = []
        lost = []
        for message_id in self.due.take(now):
            sent = self.sent[message_id]
            if sent.retries or not listening:
                if listening:
                    sent.retries -= 1
                    again += sent.texts
                self.due.set(message_id, now + sent.timeout)
            else:
                del self.sent[message_id]
                self.memory -= sent.size
                lost.append(message_id)
        return again, lost

    def clear(self) -> None:
        """Forget all messages; ids go on."""
        self.sent.clear()
        self.due.clear()
        self.memory = 0


def content_digest(payload: bytes, gzip: int | None, encrypted: bool) -> bytes:
    """WOLP-10: the fingerprint of what a whole message carries: with the same id, the same content is the same message."""
    if gzip is not None or encrypted:
        payload = b"%d;%d;%b" % (-1 if gzip is None else gzip, encrypted, payload)  # no payload has a semicolon
    return hashlib.blake2b(payload, digest_size=16).digest()


class Remembered:
    """Delivered messages, to recognise retransmissions: the same id and content is the same message."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._known: OrderedDict[int, tuple[bytes, float]] = OrderedDict()
        self._clean_at = float("-inf")
        """Until then none is too old."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def memory(self) -> int:
        """Bytes of memory that they take, about."""
        return KNOWN * len(self._known)

    def holds(self, message_id: int, digest: bytes, now: float) -> bool:
        """Whether the message was delivered recently."""
        known = self._known.get(message_id)
        return known is not None and known[0] == digest and now < known[1]

    def add(self, message_id: int, digest: bytes, now: float, life: float) -> None:
        """The message was delivered, and may arrive again for so long; forget those too old, or too many."""
        known = self._known
        if message_id in known:
            del known[message_id]
        known[message_id] = (digest, now + life)
        if len(known) > self._capacity or now >= self._clean_at:
            self._clean(now)

    def _clean(self, now: float) -> None:
        """Forget those too old, from the oldest on, or too many."""
        known = self._known
        while len(known) > self._capacity or next(iter(known.values()))[1] <= now:
            known.popitem(last=False)
        self._clean_at = next(iter(known.values()))[1]

    def forget_all_but(self, message_id: int | None) -> None:
        """WOLP-10, WOLP-28: forget all but the message that caused it: that may arrive again like any other."""
        kept = None if message_id is None else self._known.get(message_id)
        self._known.clear()
        if message_id is not None and kept is not None:
            self._known[message_id] = kept

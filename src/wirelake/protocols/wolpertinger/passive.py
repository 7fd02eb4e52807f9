"""Decode one side's texts of a recording: join fragments (WOLP-9), decrypt (WOLP-8).

A `PassiveDecoder` keeps the state of one speaker from block to block; it holds no keys. Time is when a text was captured. A reset (WOLP-28)
does not clear the state: message ids go on after a reset, so older fragments join nothing.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from wirelake.errors import DecodeError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer1.fragments import Assembly, SetState
from wirelake.protocols.wolpertinger.messages import Encryption, Envelope
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS
from wirelake.protocols.wolpertinger.scanner import Limits
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import opened

__all__ = ["Passive", "PassiveDecoder", "PassiveState"]

_NO_KEYS: Final = Keyring()


class Passive(msgspec.Struct, frozen=True):
    """The result of decoding one text."""

    payload: bytes | None = None
    """The payload of its message, whole and decrypted; None: it is not whole, or no key opens it."""
    fault: Fault | None = None


_WAITS: Final = Passive()


class PassiveState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A `PassiveDecoder` as it is stored."""

    key: bytes | None
    """The fingerprint of the key that opened the last text."""
    sets: list[SetState] | None


def _assembly() -> Assembly:
    return Assembly(DEFAULT_OPTIONS.fragment_timeout, 0, DEFAULT_OPTIONS.max_incomplete)


class PassiveDecoder:
    """The fragments and the last key of one speaker."""

    def __init__(self) -> None:
        self._assembly: Assembly | None = None
        self._key: bytes | None = None

    @property
    def weight(self) -> int:
        """Bytes of fragments that are kept, about."""
        return 0 if self._assembly is None else self._assembly.weight

    @property
    def is_idle(self) -> bool:
        """Whether there is no state to store."""
        return self._key is None and self._assembly is None

    def forget_pieces(self) -> None:
        """Drop the fragments that wait for others."""
        self._assembly = None

    def state(self) -> PassiveState:
        """The state to store."""
        return PassiveState(self._key, None if self._assembly is None else self._assembly.state())

    @classmethod
    def restored(cls, state: PassiveState) -> PassiveDecoder | None:
        """Make a decoder that continues from a state; None if the state is invalid."""
        decoder = cls()
        decoder._key = state.key
        if state.sets is not None:
            decoder._assembly = _assembly()
            if not state.sets or not decoder._assembly.restore(state.sets):
                return None
        return decoder

    def decode(self, envelope: Envelope, now: float, limits: Limits, keyring: Keyring | None) -> Passive:
        """Decode a text that is a fragment, or encrypted."""
        if envelope.fragment_count not in (None, 1):
            joined = self._join(envelope, now, limits)
            if not isinstance(joined, Envelope):
                return _WAITS if joined is None else Passive(fault=joined)
            envelope = joined
        try:
            if envelope.encryption is Encryption.NONE:
                return Passive(opened(envelope.payload, envelope.gzip, envelope.encryption, None, limits))
            opening = (keyring or _NO_KEYS).open(envelope.payload, envelope.gzip, envelope.encryption, limits, self._key)
        except DecodeError as reason:
            return Passive(fault=cast(Fault, reason.fault))
        if opening is None:
            return _WAITS
        payload, self._key = opening
        return Passive(payload)

    def _join(self, envelope: Envelope, now: float, limits: Limits) -> Envelope | Fault | None:
        if self._assembly is None:
            self._assembly = _assembly()
        self._assembly.max_weight = -(-limits.max_reassembled_size // 3) * 4
        self._assembly.expire(now)
        joined = self._assembly.add(envelope, now)
        if self._assembly.deadline is None:
            self._assembly = None
        return joined

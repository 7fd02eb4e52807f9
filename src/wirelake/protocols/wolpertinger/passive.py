"""What a third party can make of one side's texts: pieces joined (WOLP-9), and what is encrypted opened, if there are keys (WOLP-8).

What was heard of a speaker is an `PassiveDecoder`, which goes on from block to block and holds no keys. Time is when a text was seen. A
reset (WOLP-28) does not clear it: whoever resets goes on counting, so pieces of before join nothing. It refuses to know what payloads
say.
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
    """What became of one text."""

    payload: bytes | None = None
    """What its message carries, whole and plain; None: it is not whole, or nobody here can open it."""
    fault: Fault | None = None


_WAITS: Final = Passive()


class PassiveState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An `PassiveDecoder` as it is stored."""

    key: bytes | None
    """The name of the key that opened the last text; it says nothing about the key."""
    sets: list[SetState] | None


def _assembly() -> Assembly:
    return Assembly(DEFAULT_OPTIONS.fragment_timeout, 0, DEFAULT_OPTIONS.max_incomplete)


class PassiveDecoder:
    """What was heard of one speaker, as far as it matters for what comes next."""

    def __init__(self) -> None:
        self._assembly: Assembly | None = None
        self._key: bytes | None = None

    @property
    def weight(self) -> int:
        """Bytes that wait, about."""
        return 0 if self._assembly is None else self._assembly.weight

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return self._key is None and self._assembly is None

    def forget_pieces(self) -> None:
        """Do without the pieces that wait."""
        self._assembly = None

    def state(self) -> PassiveState:
        """What is to be stored."""
        return PassiveState(self._key, None if self._assembly is None else self._assembly.state())

    @classmethod
    def restored(cls, state: PassiveState) -> PassiveDecoder | None:
        """An ear that goes on from a state; None if this cannot be one."""
        decoder = cls()
        decoder._key = state.key
        if state.sets is not None:
            decoder._assembly = _assembly()
            if not state.sets or not decoder._assembly.restore(state.sets):
                return None
        return decoder

    def hear(self, said: Envelope, now: float, limits: Limits, keyring: Keyring | None) -> Passive:
        """One text that is a piece of a message, or encrypted."""
        if said.fragment_count not in (None, 1):
            joined = self._join(said, now, limits)
            if not isinstance(joined, Envelope):
                return _WAITS if joined is None else Passive(fault=joined)
            said = joined
        try:
            if said.encryption is Encryption.NONE:
                return Passive(opened(said.payload, said.gzip, said.encryption, None, limits))
            found = (keyring or _NO_KEYS).open(said.payload, said.gzip, said.encryption, limits, self._key)
        except DecodeError as reason:
            return Passive(fault=cast(Fault, reason.fault))
        if found is None:
            return _WAITS
        payload, self._key = found
        return Passive(payload)

    def _join(self, said: Envelope, now: float, limits: Limits) -> Envelope | Fault | None:
        if self._assembly is None:
            self._assembly = _assembly()
        self._assembly.max_weight = -(-limits.max_reassembled_size // 3) * 4
        self._assembly.expire(now)
        joined = self._assembly.add(said, now)
        if self._assembly.deadline is None:
            self._assembly = None
        return joined

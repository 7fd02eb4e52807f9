"""The state machine of wolpertinger: (state, speaker, message) -> next state or fault.

Both sides have the same rights; the client is the one that opened the connection. States are named from outside, so that both sides and the
lake's rules read the same table. Rules that depend on data are in the session: which calls are in flight, and which trust a method needs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec

from wirelake.protocols.protocol import StateMachine
from wirelake.protocols.speaker import Speaker
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import Call, Envelope, Error, ErrorCode, Response, Result

__all__ = [
    "AUTHENTICATION",
    "CORE",
    "INITIAL",
    "MACHINE",
    "MESSAGES",
    "TRANSITIONS",
    "Encrypted",
    "EncryptionError",
    "Fragment",
    "KeyAnswer",
    "KeyExchange",
    "ResetNotice",
    "Speaker",
    "State",
    "call_kind",
    "error_kind",
    "is_heartbeat",
    "is_trust",
    "message_kind",
    "refusal",
    "response_kind",
]

CORE: Final = "Core"
AUTHENTICATION: Final = "Authentication"
"""The components that every client has."""
_CORE: Final = CORE.lower()
_AUTHENTICATION: Final = AUTHENTICATION.lower()
_BLOB: Final = "RUNL"
"""WOLP-24: what base64 of a public key begins with, whatever its curve."""


class State(IntEnum):
    """The states: whether keys are agreed on."""

    CLEAR = 0
    """Nothing is encrypted: trust is 0 or 1."""
    CLIENT_OFFERED = 1
    """WOLP-24: the client called KeyExchange; the server has not answered."""
    SERVER_OFFERED = 2
    ENCRYPTED = 3
    """WOLP-22: keys are agreed on, trust is 2 or more, everything is encrypted."""


class Fragment(msgspec.Struct, frozen=True, tag="fragment"):
    """Message Splitting: a fragment that does not complete its message."""


class Encrypted(msgspec.Struct, frozen=True, tag="encrypted"):
    """Encryption: an encrypted message of any content except a reset notice."""


class KeyExchange(msgspec.Struct, frozen=True, tag="KeyExchange"):
    """WOLP-24: an unencrypted call of KeyExchange."""


class KeyAnswer(msgspec.Struct, frozen=True, tag="KeyExchange.Response"):
    """WOLP-24: the answer to it, which is a public key."""


class ResetNotice(msgspec.Struct, frozen=True, tag="SendResetNotice"):
    """WOLP-28: a call of SendResetNotice, encrypted or not."""


class EncryptionError(msgspec.Struct, frozen=True, tag="RemoteError.202"):
    """WOLP-22: an unencrypted RemoteError: its sender expected encryption, and has reset."""


INITIAL: Final = State.CLEAR
CLIENT: Final = Speaker.CLIENT
SERVER: Final = Speaker.SERVER
_ALWAYS: Final[tuple[type[Any], ...]] = (Result, Fragment)
_IN_CLEAR: Final[tuple[type[Any], ...]] = (Envelope, Call, Response, Error, EncryptionError)
MESSAGES: Final[tuple[type[Any], ...]] = (*_ALWAYS, *_IN_CLEAR, KeyExchange, KeyAnswer, ResetNotice, Encrypted)
"""Kinds of message in the table.

They are a result, a fragment, an unreadable message (Envelope), and the documents it distinguishes.
"""
_OFFERED: Final = {CLIENT: State.CLIENT_OFFERED, SERVER: State.SERVER_OFFERED}

TRANSITIONS: Final[dict[tuple[State, Speaker, type[Any]], State]] = {
    # Delivery Confirmation, Message Splitting: layer 1 works at any moment.
    **{(state, speaker, kind): state for state in State for speaker in Speaker for kind in _ALWAYS},
    # Until keys are agreed on, nothing is encrypted.
    **{
        (state, speaker, kind): state
        for state in (State.CLEAR, State.CLIENT_OFFERED, State.SERVER_OFFERED)
        for speaker in Speaker
        for kind in _IN_CLEAR
    },
    # WOLP-24: either side may offer a key, again if there is no answer; an answer is an agreement.
    **{
        (state, speaker, KeyExchange): _OFFERED[speaker]
        for state in (State.CLEAR, State.CLIENT_OFFERED, State.SERVER_OFFERED)
        for speaker in Speaker
    },
    (State.CLIENT_OFFERED, SERVER, KeyAnswer): State.ENCRYPTED,
    (State.SERVER_OFFERED, CLIENT, KeyAnswer): State.ENCRYPTED,
    # WOLP-22: from then on everything is encrypted.
    **{(State.ENCRYPTED, speaker, Encrypted): State.ENCRYPTED for speaker in Speaker},
    # WOLP-28: a reset is valid in any state; a side that answers 202 has reset.
    **{(state, speaker, ResetNotice): State.CLEAR for state in State for speaker in Speaker},
    **{(State.ENCRYPTED, speaker, EncryptionError): State.CLEAR for speaker in Speaker},
}
"""(state, speaker, kind of message) -> next state. Other combinations are forbidden."""


def refusal(state: State, speaker: Speaker, message: type[Any]) -> Fault:  # noqa: ARG001 - as in every protocol
    """The rule that a message breaks which TRANSITIONS does not have."""
    if message is Encrypted:
        return Fault.ENCRYPTED_TOO_SOON  # WOLP-22
    return Fault.CLEAR_WHEN_ENCRYPTED if state is State.ENCRYPTED else Fault.KEYS_UNASKED  # WOLP-22, WOLP-24


def message_kind(document: Call | Response | Error | None, encrypted: bool) -> type[Any]:
    """The kind of a whole message in the table; None is a message that cannot be read."""
    if isinstance(document, Call):
        return call_kind(document.component, document.method, encrypted)
    if encrypted:
        return Encrypted
    if isinstance(document, Response):
        return response_kind(document.component, document.value) if isinstance(document.value, str) else Response
    return Envelope if document is None else error_kind(document.code)


def call_kind(component: str, method: str, encrypted: bool) -> type[Any]:
    """The kind of a call in the table."""
    if method == "SendResetNotice" and component.lower() == _CORE:
        return ResetNotice
    if encrypted:
        return Encrypted
    return KeyExchange if method == "KeyExchange" and component.lower() == _AUTHENTICATION else Call


def response_kind(component: str, value: str) -> type[Any]:
    """The kind of an unencrypted response in the table; `value` is the beginning of the text that it returns, if any."""
    return KeyAnswer if value.startswith(_BLOB) and component.lower() == _AUTHENTICATION else Response


def error_kind(code: int) -> type[Any]:
    """The kind of an unencrypted error in the table."""
    return EncryptionError if code == ErrorCode.ENCRYPTION else Error


def is_heartbeat(component: str, method: str) -> bool:
    """WOLP-21: whether a call is a sign of life, and nothing else."""
    return method == "Heartbeat" and component.lower() == _CORE


def is_trust(component: str) -> bool:
    """Whether calls of this component build trust (WOLP-23 to WOLP-27)."""
    return component.lower() == _AUTHENTICATION


MACHINE: Final = StateMachine.of(
    initial=INITIAL,
    transitions=TRANSITIONS,
    messages=MESSAGES,
    states=State,
    speakers=Speaker,
    refusal=refusal,
)
"""The state machine, as the protocol's descriptor and its analyzer use it."""

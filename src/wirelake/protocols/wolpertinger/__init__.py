"""Wolpertinger: remote method calls as XML, over XMPP or lines of a stream.

Layer 1 delivers and encrypts, layer 2 calls; trust is built step by step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.protocols.protocol import ColumnBuilder, Notation, PassiveColumns, PassiveDecoding, Protocol, XmppText
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import DEFAULT_PORT, Message
from wirelake.protocols.wolpertinger.options import Limits, Method, Options
from wirelake.protocols.wolpertinger.passive import Passive, PassiveDecoder, PassiveState
from wirelake.protocols.wolpertinger.scanner import find
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import INITIAL, MACHINE, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.protocols.wolpertinger.wire import buffer, decode, encode, encode_line, is_text, scan, sniff, walk

if TYPE_CHECKING:
    from wirelake.protocols.analyzer import SessionAnalyzer

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "MESSAGES",
    "PROTOCOL",
    "TRANSITIONS",
    "Fault",
    "Limits",
    "Method",
    "Options",
    "Session",
    "Speaker",
    "State",
    "TrustState",
    "buffer",
    "decode",
    "encode",
    "find",
    "is_text",
    "refusal",
    "scan",
    "sniff",
    "walk",
]


def _columns() -> ColumnBuilder[Limits]:
    from wirelake.protocols.wolpertinger import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _analyzer() -> type[SessionAnalyzer]:
    from wirelake.protocols.wolpertinger.analyzer import Analyzer  # noqa: PLC0415 - only observers need it

    return Analyzer


def _notation() -> Notation[Limits, Message]:
    from wirelake.protocols.wolpertinger import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse, describers=notation.describers)


def _passive_columns() -> PassiveColumns[Limits, PassiveDecoder, Passive, Keyring]:
    from wirelake.protocols.wolpertinger import columns  # noqa: PLC0415 - needs Arrow

    return columns


PROTOCOL: Final = Protocol[Limits, Message](
    name="wolpertinger",
    title="wolpertinger",
    package=__name__,
    port=8844,
    default_port=DEFAULT_PORT,
    limits=Limits,
    options=Options,
    session=Session,
    faults=Fault,
    state_machine=MACHINE,
    scan=scan,
    walk=walk,
    find=find,
    sniff=sniff,
    buffer=buffer,
    decode=decode,
    encode=encode_line,
    columns=_columns,
    notation=_notation,
    analyzer=_analyzer,
    passive=PassiveDecoding.of(
        columns=_passive_columns,
        state=PassiveState,
        restore=PassiveDecoder.restored,
        decoder=PassiveDecoder,
        payload=Passive,
        keys=Keyring,
    ),
    xmpp=XmppText(is_text=is_text, scan_limits=Limits.for_text),
    has_handshake=False,
    on_fault="spoils the message",
)

"""Relink: messages on channels, delivered exactly once across connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.protocols.protocol import ColumnBuilder, Handshake, Notation, Protocol, SessionKind
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.handshake import Agreed, HandshakeReader, HandshakeState
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import DEFAULT_PORT, AnyMessage
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.scanner import Limits, Stage, find
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import INITIAL, MACHINE, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.relink.wire import buffer, decode, encode, scan, sniff, walk

if TYPE_CHECKING:
    from wirelake.protocols.analyzer import SessionAnalyzer

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "MESSAGES",
    "PROTOCOL",
    "TRANSITIONS",
    "Endpoint",
    "Fault",
    "HandshakeReader",
    "Limits",
    "LinkCore",
    "Options",
    "Registry",
    "Session",
    "Speaker",
    "Stage",
    "State",
    "buffer",
    "decode",
    "encode",
    "find",
    "refusal",
    "scan",
    "sniff",
    "walk",
]


def _columns() -> ColumnBuilder[Limits]:
    from wirelake.protocols.relink import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _analyzer() -> type[SessionAnalyzer]:
    from wirelake.protocols.relink.analyzer import Analyzer  # noqa: PLC0415 - only observers need it

    return Analyzer


def _notation() -> Notation[Limits, AnyMessage]:
    from wirelake.protocols.relink import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse)


PROTOCOL: Final = Protocol[Limits, AnyMessage](
    name="relink",
    title="Relink",
    package=__name__,
    port=5047,
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
    encode=encode,
    columns=_columns,
    notation=_notation,
    analyzer=_analyzer,
    handshake=Handshake.of(
        start=HandshakeReader,
        restore=HandshakeReader.restored,
        state=HandshakeState,
        agreement=Agreed,
        agreed=HandshakeReader.agreed,
        scan_limits=HandshakeReader.given,
        unknown=Fault.ID_SIZES_UNKNOWN,
        parts=HandshakeReader.parts,
    ),
    offline_limits=Limits.OFFLINE,
    session_kind=SessionKind.LINK,
)

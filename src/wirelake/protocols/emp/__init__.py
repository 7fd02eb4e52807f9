"""EMP, the Extensible Messaging Protocol: binary messages with extensions over a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.protocols.emp.dialect import recognise
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import DEFAULT_PORT, Message
from wirelake.protocols.emp.options import Codec, Limits, Options, Refused
from wirelake.protocols.emp.scanner import find
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import INITIAL, MACHINE, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.emp.wire import buffer, decode, encode, scan, sniff, walk
from wirelake.protocols.protocol import ColumnBuilder, Notation, Protocol

if TYPE_CHECKING:
    from wirelake.protocols.analyzer import SessionAnalyzer

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "MESSAGES",
    "PROTOCOL",
    "TRANSITIONS",
    "Codec",
    "Fault",
    "Limits",
    "Options",
    "Refused",
    "Session",
    "Speaker",
    "State",
    "buffer",
    "decode",
    "encode",
    "find",
    "recognise",
    "refusal",
    "scan",
    "sniff",
    "walk",
]


def _columns() -> ColumnBuilder[Limits]:
    from wirelake.protocols.emp import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _analyzer() -> type[SessionAnalyzer]:
    from wirelake.protocols.emp.analyzer import Analyzer  # noqa: PLC0415 - only observers need it

    return Analyzer


def _notation() -> Notation[Limits, Message]:
    from wirelake.protocols.emp import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse)


PROTOCOL: Final = Protocol[Limits, Message](
    name="emp",
    title="EMP",
    package=__name__,
    port=5040,
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
    dialects=Limits.DIALECT,
    recognise=recognise,
)

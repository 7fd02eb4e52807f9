"""YAMP: events, and requests with progress and cancellation, with any serializer.

It runs over any transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.protocols.protocol import ColumnBuilder, NegotiatedColumns, Notation, Protocol
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import DEFAULT_PORT, Message
from wirelake.protocols.yamp.options import Limits, Options
from wirelake.protocols.yamp.redirect import at_end
from wirelake.protocols.yamp.scanner import find
from wirelake.protocols.yamp.serializers.registry import STANDARD, Registry, Serializer
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import INITIAL, MACHINE, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.yamp.wire import buffer, decode, encode, scan, sniff, walk

if TYPE_CHECKING:
    from wirelake.protocols.analyzer import SessionAnalyzer

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "MESSAGES",
    "PROTOCOL",
    "STANDARD",
    "TRANSITIONS",
    "Fault",
    "Limits",
    "Options",
    "Registry",
    "Serializer",
    "Session",
    "Speaker",
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
    from wirelake.protocols.yamp import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _analyzer() -> type[SessionAnalyzer]:
    from wirelake.protocols.yamp.analyzer import Analyzer  # noqa: PLC0415 - only observers need it

    return Analyzer


def _notation() -> Notation[Limits, Message]:
    from wirelake.protocols.yamp import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse)


def _body_serializers() -> NegotiatedColumns[Limits]:
    from wirelake.protocols.yamp import columns  # noqa: PLC0415 - needs Arrow

    return columns


PROTOCOL: Final = Protocol[Limits, Message](
    name="yamp",
    title="YAMP",
    package=__name__,
    port=8888,
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
    body_serializers=_body_serializers,
    websocket=True,
    dialects=Limits.DIALECT,
    at_end=at_end,
    offline_limits=Limits.OFFLINE,
)

"""Event Mesh: signed datagrams between nodes that trust each other by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import DEFAULT_PORT, Message
from wirelake.protocols.event_mesh.options import Address, Options, RelayRule
from wirelake.protocols.event_mesh.packet.builder import Credentials, build, left
from wirelake.protocols.event_mesh.scanner import Limits, find
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.event_mesh.security.encryption import Opened, Sealed, Sealer, compress, unseal
from wirelake.protocols.event_mesh.security.replay import RecentIds, ReplayCache
from wirelake.protocols.event_mesh.security.trust import FirstKeys, Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Identity, Receiver, Rejected, Verified
from wirelake.protocols.event_mesh.session import Now, Session
from wirelake.protocols.event_mesh.state_machine import INITIAL, MACHINE, MESSAGES, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.event_mesh.wire import buffer, decode, encode, scan, sniff, walk
from wirelake.protocols.protocol import (
    ColumnBuilder,
    FragmentState,
    Notation,
    PassiveColumns,
    PassiveDecoding,
    Protocol,
    SessionKind,
    Signatures,
    VerifyMessage,
    VerifyRows,
)

if TYPE_CHECKING:
    from wirelake.protocols.analyzer import SessionAnalyzer

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "MESSAGES",
    "PROTOCOL",
    "TRANSITIONS",
    "Address",
    "Credentials",
    "Fault",
    "FirstKeys",
    "Identity",
    "Key",
    "Limits",
    "Now",
    "Options",
    "Policy",
    "Receiver",
    "RecentIds",
    "Rejected",
    "RelayRule",
    "ReplayCache",
    "Sealed",
    "Sealer",
    "Session",
    "Speaker",
    "State",
    "Trust",
    "TrustStore",
    "Verified",
    "buffer",
    "build",
    "canonical",
    "compress",
    "decode",
    "encode",
    "find",
    "left",
    "refusal",
    "scan",
    "sniff",
    "unseal",
    "walk",
]


def _columns() -> ColumnBuilder[Limits]:
    from wirelake.protocols.event_mesh import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _passive_columns() -> PassiveColumns[Limits, FragmentState, Opened, TrustStore]:
    from wirelake.protocols.event_mesh import columns  # noqa: PLC0415 - needs Arrow

    return columns


def _analyzer() -> type[SessionAnalyzer]:
    from wirelake.protocols.event_mesh.analyzer import Analyzer  # noqa: PLC0415 - only observers need it

    return Analyzer


def _notation() -> Notation[Limits, Message]:
    from wirelake.protocols.event_mesh import notation  # noqa: PLC0415 - only `decode` and `encode` need it

    return Notation(describe=notation.describe, parse=notation.parse)


def _verify_rows() -> VerifyRows[TrustStore]:
    from wirelake.protocols.event_mesh.security import verify_rows  # noqa: PLC0415 - needs Arrow

    return verify_rows.verified


def _verifier(trust_store: bytes, limits: Limits) -> VerifyMessage:
    from wirelake.protocols.event_mesh import notation  # noqa: PLC0415 - only `decode` needs it

    return notation.verifier(trust_store, limits)


PROTOCOL: Final = Protocol[Limits, Message](
    name="event_mesh",
    title="Event Mesh",
    package=__name__,
    port=5041,
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
    passive=PassiveDecoding.by_keys(columns=_passive_columns, payload=Opened, keys=TrustStore),
    signatures=Signatures.of(keys=TrustStore, verify_rows=_verify_rows, verifier=_verifier),
    session_kind=SessionKind.NODE,
    on_fault="drops the packet",
)

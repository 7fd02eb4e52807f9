"""Event Mesh: signed datagrams between nodes that trust each other by keys."""

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.messages import DEFAULT_PORT
from wirelake.protocols.event_mesh.options import Address, Options, RelayRule
from wirelake.protocols.event_mesh.packet.builder import Credentials, build, left
from wirelake.protocols.event_mesh.scanner import Limits
from wirelake.protocols.event_mesh.security.canonical import canonical
from wirelake.protocols.event_mesh.security.encryption import Sealed, Sealer, compress, unseal
from wirelake.protocols.event_mesh.security.replay import RecentIds, ReplayCache
from wirelake.protocols.event_mesh.security.trust import Key, Policy, Trust, TrustStore
from wirelake.protocols.event_mesh.security.verify import Identity, Receiver, Rejected, Verified
from wirelake.protocols.event_mesh.session import Now, Session
from wirelake.protocols.event_mesh.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.event_mesh.wire import buffer, decode, encode, scan, sniff, walk

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "TRANSITIONS",
    "Address",
    "Credentials",
    "Fault",
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
    "left",
    "refusal",
    "scan",
    "sniff",
    "unseal",
    "walk",
]

"""Relink: messages on channels, delivered exactly once over a link that outlives its connections."""

from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.handshake import HandshakeReader
from wirelake.protocols.relink.link.core import LinkCore
from wirelake.protocols.relink.link.registry import Registry
from wirelake.protocols.relink.messages import DEFAULT_PORT
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.protocols.relink.scanner import Limits, Stage
from wirelake.protocols.relink.session import Session
from wirelake.protocols.relink.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.relink.wire import buffer, decode, encode, scan, sniff, walk

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
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
    "refusal",
    "scan",
    "sniff",
    "walk",
]

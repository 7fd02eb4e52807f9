"""Wolpertinger: remote method calls as XML, delivered, encrypted and trusted step by step, over XMPP or lines of a stream."""

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import DEFAULT_PORT, WRAPPINGS
from wirelake.protocols.wolpertinger.options import Limits, Method, Options
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.protocols.wolpertinger.wire import buffer, decode, encode, is_text, scan, sniff, walk

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "TRANSITIONS",
    "WRAPPINGS",
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
    "is_text",
    "refusal",
    "scan",
    "sniff",
    "walk",
]

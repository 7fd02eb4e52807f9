"""YAMP: events, and requests with progress and cancellation, over any transport and with any serializer."""

from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import DEFAULT_PORT, WRAPPINGS
from wirelake.protocols.yamp.options import Limits, Options
from wirelake.protocols.yamp.serializers.registry import STANDARD, Registry, Serializer
from wirelake.protocols.yamp.session import Session
from wirelake.protocols.yamp.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.yamp.wire import buffer, decode, encode, scan, sniff, walk

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
    "STANDARD",
    "TRANSITIONS",
    "WRAPPINGS",
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
    "refusal",
    "scan",
    "sniff",
    "walk",
]

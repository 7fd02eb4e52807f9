"""EMP, the Extensible Messaging Protocol: binary messages with extension blocks over a reliable stream."""

from wirelake.protocols.emp.dialect import recognise
from wirelake.protocols.emp.faults import Fault
from wirelake.protocols.emp.messages import DEFAULT_PORT
from wirelake.protocols.emp.options import Codec, Limits, Options, Refused
from wirelake.protocols.emp.session import Session
from wirelake.protocols.emp.state_machine import INITIAL, TRANSITIONS, Speaker, State, refusal
from wirelake.protocols.emp.wire import buffer, decode, encode, scan, sniff, walk

__all__ = [
    "DEFAULT_PORT",
    "INITIAL",
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
    "recognise",
    "refusal",
    "scan",
    "sniff",
    "walk",
]

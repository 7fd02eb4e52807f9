"""The faults of EMP: every rule that can be broken, with clause, text and answer.

The text of a rule is also the text of its rows in the table `violations`. A fault that makes bytes unreadable is found by the scanner or
the layer above it and spoils one message. A fault of a readable message is a *breach*: the message exists, but it ends the session. A
tolerated fault is counted and nothing else happens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.emp.messages import ErrorCode, ExtensionId
from wirelake.protocols.faults import Faults, Origin

__all__ = ["BREACHES", "OURS", "TOLERATED", "UNREADABLE", "Fault"]


class Rule(NamedTuple):
    """One row of the table of faults below."""

    clause: str
    text: str
    error_code: int | None = ErrorCode.PROTOCOL
    """The code of the `error` message that answers it; None: close without a word."""
    extension_id: int = 0
    extension_error_code: int = 0
    origin: Origin = Origin.TEXT
    """See `Origin`."""


class Fault(Faults):
    """The broken rules of EMP; 0 in a scanner's row means none."""

    # The envelope: where the next message begins is lost.
    SIZE_TOO_SMALL = 1
    SIZE_OVER_LIMIT = 2

    # Inside an envelope: this message cannot be read, the next one can.
    TYPE_RESERVED = 10
    BLOCK_MISSING = 11
    BLOCK_TOO_SMALL = 12
    BLOCK_PAST_END = 13
    BLOCKS_OVER_LIMIT = 14
    HELLO_SIZE = 15
    ERROR_TOO_SHORT = 16
    ERROR_TRAILING_BYTES = 17
    ERROR_NOT_UTF8 = 18
    REQUEST_BLOCK_SIZE = 19
    COMPRESSION_BLOCK_SIZE = 20
    SCHEME_UNKNOWN = 21
    GZIP_INVALID = 22
    INFLATED_OVER_LIMIT = 23
    MESSAGE_CUT = 24
    NEXT_BLOCK_MISSING = 25

    # Breaches: readable, but not allowed.
    REQUEST_ID_ZERO = 40
    REQUEST_BLOCK_REPEATED = 41
    REQUEST_BLOCK_MISPLACED = 42
    COMPRESSION_MISPLACED = 43
    COMPRESSION_NESTED = 44
    HELLO_EXTENDED = 45
    EXTENSION_UNKNOWN = 46
    TYPE_UNREGISTERED = 47
    EXTENSION_REFUSED = 48

    # Breaches of the state machine: earlier messages matter.
    HELLO_EXPECTED = 60
    HELLO_REPEATED = 61
    VERSION_UNSUPPORTED = 62
    SPOKE_TOO_SOON = 63
    SPOKE_AFTER_PARTING = 64
    RESPONSE_UNMATCHED = 65
    REQUEST_ID_IN_FLIGHT = 66
    HANDSHAKE_TIMEOUT = 67
    PONG_TIMEOUT = 68
    REQUEST_UNHANDLED = 69
    HANDLER_FAILED = 70
    CLOSED_WITHOUT_PARTING = 71
    CLOSED_INSIDE_MESSAGE = 72
    IDENTIFIERS_EXHAUSTED = 73
    FIELD_OUT_OF_RANGE = 74

    # Tolerated on receipt, never sent.
    UNUSED_BITS_SET = 90
    BODY_IGNORED = 91
    PONG_UNSOLICITED = 92
    PING_OVERLAPPING = 93
    RESPONSE_LATE = 94

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]

    @property
    def error_code(self) -> int | None:
        """The code of the error message that answers it."""
        return self.rule.error_code


_RR = ExtensionId.REQUEST_RESPONSE
_GZ = ExtensionId.COMPRESSION
_EXT = ErrorCode.EXTENSION

RULES: Final[dict[Fault, Rule]] = {
    Fault.SIZE_TOO_SMALL: Rule("EMP-1", "an envelope's size counts its own 8 bytes of size and header"),
    Fault.SIZE_OVER_LIMIT: Rule("EMP-35", "an envelope's size is over the limit", origin=Origin.LIMIT),
    Fault.TYPE_RESERVED: Rule("EMP-24", "message types 6 to 127 are reserved"),
    Fault.BLOCK_MISSING: Rule("EMP-10", "an extension block is announced but there is no room for one"),
    Fault.NEXT_BLOCK_MISSING: Rule("EMP-11", "another extension block is announced but there is no room for one"),
    Fault.BLOCK_TOO_SMALL: Rule("EMP-2", "an extension block's size counts its own 8 bytes of size and header"),
    Fault.BLOCK_PAST_END: Rule("EMP-2", "an extension block ends after its envelope"),
    Fault.BLOCKS_OVER_LIMIT: Rule("EMP-36", "too many extension blocks", origin=Origin.LIMIT),
    Fault.HELLO_SIZE: Rule("EMP-21", "the body of a hello is 4 bytes"),
    Fault.ERROR_TOO_SHORT: Rule("EMP-22", "an error's message ends after its envelope", None),
    Fault.ERROR_TRAILING_BYTES: Rule("EMP-41", "bytes after an error's message", None),
    Fault.ERROR_NOT_UTF8: Rule("EMP-22", "an error's message is not UTF-8", None),
    Fault.REQUEST_BLOCK_SIZE: Rule("EMP-7", "a request-response block carries 12 bytes", _EXT, _RR, 1),
    Fault.COMPRESSION_BLOCK_SIZE: Rule("EMP-7", "a compression block carries 4 bytes", _EXT, _GZ, 1),
    Fault.SCHEME_UNKNOWN: Rule("EMP-38", "unknown compression scheme", _EXT, _GZ, 2),
    Fault.GZIP_INVALID: Rule("EMP-37", "the body is not valid gzip", _EXT, _GZ, 3),
    Fault.INFLATED_OVER_LIMIT: Rule("EMP-37", "the decompressed body is over the limit", _EXT, _GZ, 4, origin=Origin.LIMIT),
    Fault.MESSAGE_CUT: Rule("EMP-43", "the bytes end inside a message", None),
    Fault.REQUEST_ID_ZERO: Rule("EMP-12", "request identifier zero is reserved", _EXT, _RR, 2),
    Fault.REQUEST_BLOCK_REPEATED: Rule("EMP-8", "more than one request-response block", _EXT, _RR, 3, origin=Origin.RULING),
    Fault.REQUEST_BLOCK_MISPLACED: Rule("EMP-14", "request-response belongs to data and application messages only", origin=Origin.RULING),
    Fault.COMPRESSION_MISPLACED: Rule("EMP-15", "compression belongs to data and application messages only", origin=Origin.RULING),
    Fault.COMPRESSION_NESTED: Rule("EMP-8", "compression nested too deeply", _EXT, _GZ, 5, origin=Origin.LIMIT),
    Fault.HELLO_EXTENDED: Rule("EMP-47", "a hello carries no extension block", origin=Origin.RULING),
    Fault.EXTENSION_UNKNOWN: Rule("EMP-9", "unknown extension", _EXT, origin=Origin.RULING),
    Fault.TYPE_UNREGISTERED: Rule("EMP-24", "no handler here takes this application message type", origin=Origin.LOCAL),
    Fault.EXTENSION_REFUSED: Rule("EMP-9", "an application's extension refused its block or the body", _EXT, origin=Origin.LOCAL),
    Fault.HELLO_EXPECTED: Rule("EMP-26", "the first message is a hello, bye or error"),
    Fault.HELLO_REPEATED: Rule("EMP-25", "a second hello"),
    Fault.VERSION_UNSUPPORTED: Rule("EMP-27", "unsupported version"),
    Fault.SPOKE_TOO_SOON: Rule("EMP-28", "an exchange was begun before the handshake was over"),
    Fault.SPOKE_AFTER_PARTING: Rule("EMP-33", "a message after its sender's bye or error", None),
    Fault.RESPONSE_UNMATCHED: Rule("EMP-16", "a response that matches no pending request"),
    Fault.REQUEST_ID_IN_FLIGHT: Rule("EMP-18", "a request identifier that is still in flight"),
    Fault.HANDSHAKE_TIMEOUT: Rule("EMP-29", "no hello in time", ErrorCode.TIMEOUT),
    Fault.PONG_TIMEOUT: Rule("EMP-32", "no pong in time", ErrorCode.TIMEOUT),
    Fault.REQUEST_UNHANDLED: Rule("EMP-19", "no handler here answers requests", ErrorCode.UNSPECIFIED, origin=Origin.LOCAL),
    Fault.HANDLER_FAILED: Rule("EMP-19", "the request could not be answered", ErrorCode.UNSPECIFIED, origin=Origin.LOCAL),
    Fault.CLOSED_WITHOUT_PARTING: Rule("EMP-43", "the connection was closed without bye or error", None),
    Fault.CLOSED_INSIDE_MESSAGE: Rule("EMP-43", "the connection was closed inside a message", None),
    Fault.IDENTIFIERS_EXHAUSTED: Rule("EMP-13", "every request identifier of this connection was used"),
    Fault.FIELD_OUT_OF_RANGE: Rule("EMP-4", "a value that its field cannot hold"),
    Fault.UNUSED_BITS_SET: Rule("EMP-5", "unused bits are sent as zero", None, origin=Origin.RULING),
    Fault.BODY_IGNORED: Rule("EMP-20", "this message has no body", None),
    Fault.PONG_UNSOLICITED: Rule("EMP-30", "a pong without a ping before it", None),
    Fault.PING_OVERLAPPING: Rule("EMP-31", "a ping before the pong of the last one", None),
    Fault.RESPONSE_LATE: Rule("EMP-16", "a response to a request that was given up", None, origin=Origin.LOCAL),
}
"""fault -> clause, sentence, and the `error` message it is answered with."""

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.REQUEST_ID_ZERO)
"""Faults that spoil the message: there is nothing to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.UNUSED_BITS_SET)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable messages and of the state machine."""
OURS: Final = frozenset({Fault.REQUEST_UNHANDLED, Fault.HANDLER_FAILED})
"""Faults that end a session without the peer having done anything wrong."""

"""The faults of EMP: every rule that can be broken, with clause, text and answer.

The text of a rule is also the text of its rows in the table `violations`. A fault that makes bytes unreadable is found by the scanner or
the layer above it and spoils one message. A fault of a readable message is a *breach*: the message exists, but it ends the session. A
tolerated fault is counted and nothing else happens.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.emp.messages import ErrorCode, ExtensionId
from wirelake.protocols.faults import LIMIT, LOCAL, MAY, MUST, RULING, SHOULD, TEXT, Faults, Rule, Threat

__all__ = ["BREACHES", "OURS", "TOLERATED", "UNREADABLE", "Fault"]

PROTOCOL, EXTENSION, TIMEOUT, UNSPECIFIED = ErrorCode.PROTOCOL, ErrorCode.EXTENSION, ErrorCode.TIMEOUT, ErrorCode.UNSPECIFIED
_GZ: Final = ExtensionId.COMPRESSION


class Fault(Faults):
    """The broken rules of EMP; 0 in a scanner's row means none."""

    # The envelope: where the next message begins is lost.
    SIZE_TOO_SMALL = Rule(1, "EMP-1", "an envelope's size counts its own 8 bytes of size and header", TEXT, MUST, PROTOCOL)
    SIZE_OVER_LIMIT = Rule(2, "EMP-35", "an envelope's size is over the limit", LIMIT, MAY, PROTOCOL, threat=Threat.BOMB)

    # Inside an envelope: this message cannot be read, the next one can.
    TYPE_RESERVED = Rule(10, "EMP-24", "message types 6 to 127 are reserved", TEXT, MUST, PROTOCOL)
    BLOCK_MISSING = Rule(11, "EMP-10", "an extension block is announced but there is no room for one", TEXT, MUST, PROTOCOL)
    BLOCK_TOO_SMALL = Rule(12, "EMP-2", "an extension block's size counts its own 8 bytes of size and header", TEXT, MUST, PROTOCOL)
    BLOCK_PAST_END = Rule(13, "EMP-2", "an extension block ends after its envelope", TEXT, MUST, PROTOCOL)
    BLOCKS_OVER_LIMIT = Rule(14, "EMP-36", "too many extension blocks", LIMIT, MAY, PROTOCOL, threat=Threat.BOMB)
    HELLO_SIZE = Rule(15, "EMP-21", "the body of a hello is 4 bytes", TEXT, MUST, PROTOCOL)
    ERROR_TOO_SHORT = Rule(16, "EMP-22", "an error's message ends after its envelope", TEXT, MUST)
    ERROR_TRAILING_BYTES = Rule(17, "EMP-41", "bytes after an error's message", TEXT, MUST)
    ERROR_NOT_UTF8 = Rule(18, "EMP-22", "an error's message is not UTF-8", TEXT, MUST)
    REQUEST_BLOCK_SIZE = Rule(19, "EMP-7", "a request-response block carries 12 bytes", TEXT, MUST, EXTENSION, extension_error_code=1)
    COMPRESSION_BLOCK_SIZE = Rule(
        20, "EMP-7", "a compression block carries 4 bytes", TEXT, MUST, EXTENSION, extension_id=_GZ, extension_error_code=1
    )
    SCHEME_UNKNOWN = Rule(21, "EMP-38", "unknown compression scheme", TEXT, MUST, EXTENSION, extension_id=_GZ, extension_error_code=2)
    GZIP_INVALID = Rule(22, "EMP-37", "the body is not valid gzip", TEXT, MUST, EXTENSION, extension_id=_GZ, extension_error_code=3)
    INFLATED_OVER_LIMIT = Rule(
        23,
        "EMP-37",
        "the decompressed body is over the limit",
        LIMIT,
        MAY,
        EXTENSION,
        extension_id=_GZ,
        extension_error_code=4,
        threat=Threat.BOMB,
    )
    MESSAGE_CUT = Rule(24, "EMP-43", "the bytes end inside a message", RULING, MAY)
    NEXT_BLOCK_MISSING = Rule(25, "EMP-11", "another extension block is announced but there is no room for one", TEXT, MUST, PROTOCOL)

    # Breaches: readable, but not allowed.
    REQUEST_ID_ZERO = Rule(40, "EMP-12", "request identifier zero is reserved", TEXT, MUST, EXTENSION, extension_error_code=2)
    REQUEST_BLOCK_REPEATED = Rule(41, "EMP-8", "more than one request-response block", RULING, MAY, EXTENSION, extension_error_code=3)
    REQUEST_BLOCK_MISPLACED = Rule(42, "EMP-14", "request-response belongs to data and application messages only", RULING, MAY, PROTOCOL)
    COMPRESSION_MISPLACED = Rule(43, "EMP-15", "compression belongs to data and application messages only", RULING, MAY, PROTOCOL)
    COMPRESSION_NESTED = Rule(
        44, "EMP-8", "compression nested too deeply", LIMIT, MAY, EXTENSION, extension_id=_GZ, extension_error_code=5, threat=Threat.BOMB
    )
    HELLO_EXTENDED = Rule(45, "EMP-47", "a hello carries no extension block", RULING, MAY, PROTOCOL)
    EXTENSION_UNKNOWN = Rule(46, "EMP-9", "unknown extension", RULING, MAY, EXTENSION)
    TYPE_UNREGISTERED = Rule(
        47,
        "EMP-24",
        "no handler here takes this application message type",
        LOCAL,
        MAY,
        PROTOCOL,
        unseen="which types an application handles is not on the wire",
    )
    EXTENSION_REFUSED = Rule(
        48,
        "EMP-9",
        "an application's extension refused its block or the body",
        LOCAL,
        MAY,
        EXTENSION,
        unseen="what an application's extension refuses is not on the wire",
    )

    # Breaches of the state machine: earlier messages matter.
    HELLO_EXPECTED = Rule(60, "EMP-26", "the first message is a hello, bye or error", TEXT, MUST, PROTOCOL)
    HELLO_REPEATED = Rule(61, "EMP-25", "a second hello", TEXT, MUST, PROTOCOL)
    VERSION_UNSUPPORTED = Rule(62, "EMP-27", "a version that is not supported here", LOCAL, MAY)
    SPOKE_TOO_SOON = Rule(63, "EMP-28", "an exchange was begun before the handshake was over", TEXT, MUST, PROTOCOL)
    SPOKE_AFTER_PARTING = Rule(64, "EMP-33", "a message after its sender's bye or error", TEXT, MUST)
    RESPONSE_UNMATCHED = Rule(65, "EMP-16", "a response that matches no pending request", TEXT, MUST, PROTOCOL)
    REQUEST_ID_IN_FLIGHT = Rule(66, "EMP-18", "a request identifier that is still in flight", TEXT, MUST, PROTOCOL)
    HANDSHAKE_TIMEOUT = Rule(67, "EMP-29", "no hello in time", LIMIT, MAY, TIMEOUT)
    PONG_TIMEOUT = Rule(68, "EMP-32", "no pong in time", LIMIT, SHOULD, TIMEOUT)
    REQUEST_UNHANDLED = Rule(
        69,
        "EMP-19",
        "no handler here answers requests",
        LOCAL,
        MAY,
        UNSPECIFIED,
        unseen="whether a peer answers requests is not on the wire; to send one breaks no rule",
    )
    HANDLER_FAILED = Rule(
        70,
        "EMP-19",
        "the request could not be answered",
        LOCAL,
        MAY,
        UNSPECIFIED,
        unseen="a failure of the application that was asked; no message breaks a rule",
    )
    CLOSED_WITHOUT_PARTING = Rule(71, "EMP-43", "the connection was closed without bye or error", TEXT, MAY)
    CLOSED_INSIDE_MESSAGE = Rule(72, "EMP-43", "the connection was closed inside a message", RULING, MAY)
    IDENTIFIERS_EXHAUSTED = Rule(
        73, "EMP-13", "every request identifier of this connection was used", TEXT, MUST, PROTOCOL, unseen="refused before anything is sent"
    )
    FIELD_OUT_OF_RANGE = Rule(
        74, "EMP-4", "a value that its field cannot hold", TEXT, MUST, PROTOCOL, unseen="refused before anything is sent"
    )

    # Tolerated on receipt, never sent.
    UNUSED_BITS_SET = Rule(90, "EMP-5", "unused bits are sent as zero", RULING, MAY)
    BODY_IGNORED = Rule(91, "EMP-20", "this message has no body", TEXT, MUST)
    PONG_UNSOLICITED = Rule(92, "EMP-30", "a pong without a ping before it", TEXT, MUST)
    PING_OVERLAPPING = Rule(93, "EMP-31", "a ping before the pong of the last one", TEXT, MUST)
    RESPONSE_LATE = Rule(
        94,
        "EMP-16",
        "a response to a request that was given up",
        LOCAL,
        MAY,
        unseen="the timeout of a request is its sender's own setting; `exchanges` shows late answers",
    )
    PONG_MISSING = Rule(95, "EMP-32", "pings are answered: no pong came in a minute, though other messages did", TEXT, SHOULD)
    REQUEST_ID_REUSED = Rule(96, "EMP-13", "a request identifier that an earlier request had", TEXT, MUST)


UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.REQUEST_ID_ZERO)
"""Faults that spoil the message: there is nothing to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.UNUSED_BITS_SET)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable messages and of the state machine."""
OURS: Final = frozenset({Fault.REQUEST_UNHANDLED, Fault.HANDLER_FAILED})
"""Faults that end a session without the peer having done anything wrong."""

"""The faults of YAMP: every rule that can be broken, with clause, answer and severity.

The answer is the reason of a close. A fault that makes bytes unreadable spoils one message, or all that follows. A fault of a readable
message is a *breach*: the message exists, but sending it ends the session. A tolerated fault is recorded, and nothing else happens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults, Origin

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]


class Rule(NamedTuple):
    """One row of the table of faults below."""

    clause: str
    text: str
    reason: str | None = None
    """The reason of the system.close that answers it, `{}` standing for what was seen.

    None: nothing is answered.
    """
    origin: Origin = Origin.TEXT
    """See `Origin`."""


class Fault(Faults):
    """The broken rules of YAMP; 0 in a scanner's row means none."""

    # Where the next message begins is lost.
    TYPE_UNKNOWN = 1
    BODY_OVER_LIMIT = 2

    # This message cannot be read, the next one can.
    URI_NOT_UTF8 = 10
    URL_NOT_UTF8 = 11
    SERIALIZER_NOT_UTF8 = 12
    MESSAGE_CUT = 13
    BYTES_AFTER_MESSAGE = 14

    # Breaches: readable, but not allowed.
    RESPONSE_TYPE_UNKNOWN = 40

    # Breaches of the state machine: earlier messages matter.
    HANDSHAKE_EXPECTED = 60
    VERSION_UNSUPPORTED = 61
    SERIALIZER_UNSUPPORTED = 62
    ECHO_DIFFERS = 63
    HANDSHAKE_TIMEOUT = 64
    REDIRECT_BY_CLIENT = 65
    REQUEST_UID_IN_FLIGHT = 66
    PING_TIMEOUT = 67
    SPOKE_AFTER_CLOSE = 68
    SPOKE_TOO_SOON = 69
    CLOSED_WITHOUT_WORD = 70
    CLOSED_INSIDE_MESSAGE = 71
    URI_SIZE = 72
    FIELD_OUT_OF_RANGE = 73
    BODY_UNSERIALIZABLE = 74
    REQUEST_NOT_IN_FLIGHT = 75
    REDIRECT_REFUSED = 76
    DATAGRAM_TOO_LARGE = 77

    # Tolerated on receipt, never sent.
    BOOL_ODD = 90
    URI_EMPTY = 91
    REASON_NOT_UTF8 = 92
    SERIALIZER_EMPTY = 93
    HANDSHAKE_REPEATED = 94
    PONG_UNSOLICITED = 95
    RESPONSE_UNMATCHED = 96
    PROGRESS_UNASKED = 97
    CANCEL_UNMATCHED = 98
    BODY_UNDECODABLE = 99
    DATAGRAM_CUT = 100
    REQUEST_REPEATED = 101

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]

    @property
    def close_reason(self) -> str | None:
        """The reason of the system.close that answers it, `{}` standing for what was seen."""
        return self.rule.reason


RULES: Final[dict[Fault, Rule]] = {
    Fault.TYPE_UNKNOWN: Rule("YAMP-42", "unknown message type", "Unknown type {}"),
    Fault.BODY_OVER_LIMIT: Rule("YAMP-43", "a body's size is over the limit", "message too large", origin=Origin.LIMIT),
    Fault.URI_NOT_UTF8: Rule("YAMP-16", "a uri is not UTF-8", "uri is not UTF-8", origin=Origin.RULING),
    Fault.URL_NOT_UTF8: Rule("YAMP-16", "a url is not UTF-8", "url is not UTF-8", origin=Origin.RULING),
    Fault.SERIALIZER_NOT_UTF8: Rule("YAMP-16", "the name of a serializer is not UTF-8", "serializer is not UTF-8", origin=Origin.RULING),
    Fault.MESSAGE_CUT: Rule("YAMP-13", "the bytes end inside a message"),
    Fault.BYTES_AFTER_MESSAGE: Rule("YAMP-13", "bytes after the message"),
    Fault.RESPONSE_TYPE_UNKNOWN: Rule("YAMP-36", "unknown response type", "Unknown response type {}"),
    Fault.HANDSHAKE_EXPECTED: Rule("YAMP-9", "the first message is a handshake, or the server's refusal", "handshake expected"),
    Fault.VERSION_UNSUPPORTED: Rule("YAMP-3", "unsupported version", "Version {} not supported. Use 1", origin=Origin.RULING),
    Fault.SERIALIZER_UNSUPPORTED: Rule("YAMP-4", "unsupported serializer", "Serializer {}", origin=Origin.LOCAL),
    Fault.ECHO_DIFFERS: Rule("YAMP-8", "the server's handshake is not what the client sent", "handshake differs: {}"),
    Fault.HANDSHAKE_TIMEOUT: Rule("YAMP-12", "no handshake in time", "handshake timeout"),
    Fault.REDIRECT_BY_CLIENT: Rule("YAMP-21", "only a server redirects", "redirect by a client"),
    Fault.REQUEST_UID_IN_FLIGHT: Rule("YAMP-25", "a request with the uid of one that is in flight", "duplicate request uid"),
    Fault.PING_TIMEOUT: Rule("YAMP-18", "no pong in time", "ping timeout"),
    Fault.SPOKE_AFTER_CLOSE: Rule("YAMP-20", "a message after its sender's close"),
    Fault.SPOKE_TOO_SOON: Rule("YAMP-10", "a client waits for the server's handshake", origin=Origin.RULING),
    Fault.CLOSED_WITHOUT_WORD: Rule("YAMP-20", "the connection was closed without system.close"),
    Fault.CLOSED_INSIDE_MESSAGE: Rule("YAMP-13", "the connection was closed inside a message"),
    Fault.URI_SIZE: Rule("YAMP-26", "a uri takes 1 to 255 bytes"),
    Fault.FIELD_OUT_OF_RANGE: Rule("YAMP-50", "a value that its field cannot hold"),
    Fault.BODY_UNSERIALIZABLE: Rule("YAMP-44", "the serializer refuses this body", origin=Origin.LOCAL),
    Fault.REQUEST_NOT_IN_FLIGHT: Rule("YAMP-30", "a request is answered once, and only while it is in flight"),
    Fault.REDIRECT_REFUSED: Rule("YAMP-22", "a redirect that must not be followed", origin=Origin.RULING),
    Fault.DATAGRAM_TOO_LARGE: Rule("YAMP-15", "a message that does not fit into a datagram", origin=Origin.LIMIT),
    Fault.BOOL_ODD: Rule("YAMP-28", "a truth value is sent as 0 or 1", origin=Origin.RULING),
    Fault.URI_EMPTY: Rule("YAMP-26", "an empty uri", origin=Origin.RULING),
    Fault.REASON_NOT_UTF8: Rule("YAMP-16", "a reason is not UTF-8", origin=Origin.RULING),
    Fault.SERIALIZER_EMPTY: Rule("YAMP-5", "an empty serializer", origin=Origin.RULING),
    Fault.HANDSHAKE_REPEATED: Rule("YAMP-11", "a second handshake"),
    Fault.PONG_UNSOLICITED: Rule("YAMP-19", "a pong without a ping before it"),
    Fault.RESPONSE_UNMATCHED: Rule("YAMP-37", "a response to no request that is pending"),
    Fault.PROGRESS_UNASKED: Rule("YAMP-29", "progress of a request that did not ask for it"),
    Fault.CANCEL_UNMATCHED: Rule("YAMP-32", "a cancel of no request that is in flight", origin=Origin.RULING),
    Fault.BODY_UNDECODABLE: Rule("YAMP-44", "a body the serializer refuses"),
    Fault.DATAGRAM_CUT: Rule("YAMP-15", "a datagram that is not one whole message", origin=Origin.RULING),
    Fault.REQUEST_REPEATED: Rule("YAMP-15", "a datagram with a request that is in flight", origin=Origin.RULING),
}
"""fault -> clause, sentence, and the reason it is answered with."""

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.RESPONSE_TYPE_UNKNOWN)
"""Faults that spoil the message: there is nothing to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.BOOL_ODD)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable messages and of the state machine."""

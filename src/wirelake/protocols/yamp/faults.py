"""The faults of YAMP: every rule that can be broken, with clause, answer and severity.

The answer is the reason of a close. A fault that makes bytes unreadable spoils one message, or all that follows. A fault of a readable
message is a *breach*: the message exists, but sending it ends the session. A tolerated fault is recorded, and nothing else happens.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.faults import LIMIT, LOCAL, MAY, MUST, RULING, SHOULD, TEXT, Faults, Rule, Threat

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]


class Fault(Faults):
    """The broken rules of YAMP; 0 in a scanner's row means none."""

    # Where the next message begins is lost.
    TYPE_UNKNOWN = Rule(1, "YAMP-42", "unknown message type", TEXT, MUST, close_reason="Unknown type {}")
    BODY_OVER_LIMIT = Rule(
        2, "YAMP-43", "a body's size is over the limit", LIMIT, MAY, close_reason="message too large", threat=Threat.BOMB
    )

    # This message cannot be read, the next one can.
    URI_NOT_UTF8 = Rule(10, "YAMP-16", "a uri is not UTF-8", RULING, MAY, close_reason="uri is not UTF-8")
    URL_NOT_UTF8 = Rule(11, "YAMP-16", "a url is not UTF-8", RULING, MAY, close_reason="url is not UTF-8")
    SERIALIZER_NOT_UTF8 = Rule(12, "YAMP-16", "the name of a serializer is not UTF-8", RULING, MAY, close_reason="serializer is not UTF-8")
    MESSAGE_CUT = Rule(13, "YAMP-13", "the bytes end inside a message", RULING, MAY)
    BYTES_AFTER_MESSAGE = Rule(
        14,
        "YAMP-13",
        "bytes after the message",
        RULING,
        MAY,
        unseen="only where one message is decoded alone; in a stream the next message begins there",
    )

    # Breaches: readable, but not allowed.
    RESPONSE_TYPE_UNKNOWN = Rule(40, "YAMP-36", "unknown response type", TEXT, MUST, close_reason="Unknown response type {}")

    # Breaches of the state machine: earlier messages matter.
    HANDSHAKE_EXPECTED = Rule(
        60, "YAMP-9", "the first message is a handshake, or the server's refusal", TEXT, SHOULD, close_reason="handshake expected"
    )
    VERSION_UNSUPPORTED = Rule(61, "YAMP-3", "unsupported version", RULING, MAY, close_reason="Version {} not supported. Use 1")
    SERIALIZER_UNSUPPORTED = Rule(62, "YAMP-4", "unsupported serializer", LOCAL, MAY, close_reason="Serializer {}")
    ECHO_DIFFERS = Rule(
        63,
        "YAMP-8",
        "the server's handshake is not what the client sent",
        TEXT,
        SHOULD,
        close_reason="handshake differs: {}",
        threat=Threat.DOWNGRADE,
    )
    HANDSHAKE_TIMEOUT = Rule(64, "YAMP-12", "no handshake in time", LIMIT, MAY, close_reason="handshake timeout")
    REDIRECT_BY_CLIENT = Rule(65, "YAMP-21", "only a server redirects", TEXT, MUST, close_reason="redirect by a client")
    REQUEST_UID_IN_FLIGHT = Rule(
        66, "YAMP-25", "a request with the uid of one that is in flight", TEXT, MUST, close_reason="duplicate request uid"
    )
    PING_TIMEOUT = Rule(67, "YAMP-18", "no pong in time", LIMIT, SHOULD, close_reason="ping timeout")
    SPOKE_AFTER_CLOSE = Rule(68, "YAMP-20", "a message after its sender's close", TEXT, SHOULD)
    SPOKE_TOO_SOON = Rule(69, "YAMP-10", "a client waits for the server's handshake", RULING, MAY)
    CLOSED_WITHOUT_WORD = Rule(70, "YAMP-20", "the connection was closed without system.close", TEXT, SHOULD)
    CLOSED_INSIDE_MESSAGE = Rule(71, "YAMP-13", "the connection was closed inside a message", RULING, MAY)
    URI_SIZE = Rule(72, "YAMP-26", "a uri takes 1 to 255 bytes", TEXT, MUST, unseen="refused before anything is sent")
    FIELD_OUT_OF_RANGE = Rule(73, "YAMP-50", "a value that its field cannot hold", TEXT, MUST, unseen="refused before anything is sent")
    BODY_UNSERIALIZABLE = Rule(74, "YAMP-44", "the serializer refuses this body", LOCAL, MAY, unseen="refused before anything is sent")
    REQUEST_NOT_IN_FLIGHT = Rule(
        75,
        "YAMP-30",
        "a request is answered once, and only while it is in flight",
        TEXT,
        MUST,
        unseen="refused before anything is sent; on the wire it is RESPONSE_UNMATCHED",
    )
    REDIRECT_REFUSED = Rule(76, "YAMP-22", "a redirect that must not be followed", RULING, MAY)
    DATAGRAM_TOO_LARGE = Rule(
        77, "YAMP-15", "a message that does not fit into a datagram", LIMIT, MAY, unseen="refused before anything is sent"
    )

    # Tolerated on receipt, never sent.
    BOOL_ODD = Rule(90, "YAMP-28", "a truth value is sent as 0 or 1", RULING, MAY)
    URI_EMPTY = Rule(91, "YAMP-26", "an empty uri", RULING, MAY)
    REASON_NOT_UTF8 = Rule(92, "YAMP-16", "a reason is not UTF-8", RULING, MAY)
    SERIALIZER_EMPTY = Rule(93, "YAMP-5", "an empty serializer", RULING, MAY)
    HANDSHAKE_REPEATED = Rule(94, "YAMP-11", "a second handshake", TEXT, SHOULD)
    PONG_UNSOLICITED = Rule(95, "YAMP-19", "a pong without a ping before it", TEXT, MUST, unseen="an unsolicited pong is to be ignored")
    RESPONSE_UNMATCHED = Rule(96, "YAMP-37", "a response to no request that is pending", TEXT, MUST)
    PROGRESS_UNASKED = Rule(97, "YAMP-29", "progress of a request that did not ask for it", TEXT, MUST)
    CANCEL_UNMATCHED = Rule(
        98,
        "YAMP-32",
        "a cancel of no request that is in flight",
        RULING,
        MAY,
        unseen="a cancel that crosses the answer is legal, and cannot be distinguished from others",
    )
    BODY_UNDECODABLE = Rule(99, "YAMP-44", "a body the serializer refuses", TEXT, MUST)
    DATAGRAM_CUT = Rule(100, "YAMP-15", "a datagram that is not one whole message", RULING, MAY)
    REQUEST_REPEATED = Rule(101, "YAMP-15", "a datagram with a request that is in flight", RULING, MAY)
    PONG_MISSING = Rule(102, "YAMP-18", "pings are answered: no pong came in a minute, though other messages did", TEXT, SHOULD)
    UID_REUSED = Rule(103, "YAMP-24", "a uid that an earlier message of the same side had", TEXT, MUST)
    ANSWERED_AFTER_KILL = Rule(104, "YAMP-34", "an answer more than a round trip after its request was killed", LIMIT, SHOULD)


UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.RESPONSE_TYPE_UNKNOWN)
"""Faults that spoil the message: there is nothing to hand on."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.BOOL_ODD)
"""Faults that are written down and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable messages and of the state machine."""

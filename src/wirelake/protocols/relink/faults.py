"""Every rule of Relink that can be broken: its clause and one sentence.

Relink has no error message: a side that finds a fault closes the connection (RELINK-12), and the link lives on. An *unreadable* packet
cannot be decoded; a *breach* is a readable packet that is not allowed; a tolerated fault is recorded and nothing else.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults, Origin

__all__ = ["BREACHES", "OURS", "RULES", "TOLERATED", "UNREADABLE", "Fault", "Rule", "Violation"]


class Rule(NamedTuple):
    """What the table below says of one fault."""

    clause: str
    text: str
    origin: Origin = Origin.TEXT
    """The source of the rule: see `Origin`."""


class Fault(Faults):
    """The broken rules of Relink; 0 in a scanner's row means none."""

    # Where the next packet begins is lost.
    FORMAT_UNKNOWN = 1
    MULTICAST_OVER_LIMIT = 2
    PARTS_OVER_LIMIT = 3
    PART_OVER_LIMIT = 4
    MESSAGE_OVER_LIMIT = 5

    # This packet cannot be read, the next one could.
    GENERAL_TYPE_UNKNOWN = 10
    OPERATION_UNKNOWN = 11
    ACKNOWLEDGEMENT_UNKNOWN = 12
    SEQUENCE_OPERATION_UNKNOWN = 13
    SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN = 14
    ENDPOINT_NOT_UTF8 = 15
    MESSAGE_CUT = 16
    ID_SIZES_UNKNOWN = 17

    # Breaches of the handshake that one part shows.
    LINK_ID_RANGE = 40
    LINK_WITHOUT_EPOCH = 41
    EPOCH_ZERO = 42

    # Breaches that depend on earlier messages.
    HANDSHAKE_ORDER = 50
    VERSION_UNSUPPORTED = 51
    ENDPOINT_UNKNOWN = 52
    SETTINGS_DIFFER = 53
    LINK_REFUSED = 54
    LINK_REPLACED = 55
    LINK_LOST = 56
    SPOKE_BEFORE_RESUME = 57
    TRANSACTIONS_OFF = 58
    ACKNOWLEDGED_TOO_MUCH = 59
    CLOSED_UNASKED = 60
    CHANNEL_CLOSING = 61
    CHANNEL_AFTER_SHUTDOWN = 62
    DECIDED_TOO_MUCH = 63
    CHANNELS_OVER_LIMIT = 64
    RESUME_INCONSISTENT = 65
    RESULTS_OVER_LIMIT = 66
    HANDSHAKE_TIMEOUT = 67
    PONG_TIMEOUT = 68
    PACKET_TIMEOUT = 69
    CLOSED_WITHOUT_PARTING = 70
    CLOSED_INSIDE_MESSAGE = 71
    GIVEN_UP = 73
    LINK_EXPIRED = 74
    LINKS_OVER_LIMIT = 75
    UNCONSUMED_OVER_LIMIT = 76
    UNDECIDED_OVER_LIMIT = 77

    # What a caller may not ask for.
    WINDOW_FULL = 80
    FIELD_OUT_OF_RANGE = 81
    ID_SIZE_WRONG = 82
    NOT_OPEN = 83
    SHUTTING_DOWN = 84
    UNDECIDABLE = 85
    ABANDONED = 86

    # Tolerated on receipt, never sent.
    UNUSED_BITS_SET = 90
    NOT_MINIMAL = 91
    MULTICAST_EMPTY = 92
    PONG_UNSOLICITED = 93
    RESUME_UNEXPECTED = 94
    CHANNEL_UNKNOWN = 95

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]


RULES: Final[dict[Fault, Rule]] = {
    Fault.FORMAT_UNKNOWN: Rule("RELINK-12", "channel packet formats 5 to 7 do not exist"),
    Fault.MULTICAST_OVER_LIMIT: Rule("RELINK-24", "a multicast names more channels than the limit", origin=Origin.LIMIT),
    Fault.PARTS_OVER_LIMIT: Rule("RELINK-24", "a message has more parts than the limit", origin=Origin.LIMIT),
    Fault.PART_OVER_LIMIT: Rule("RELINK-24", "a part of a message is over the limit", origin=Origin.LIMIT),
    Fault.MESSAGE_OVER_LIMIT: Rule("RELINK-24", "the parts of a message together are over the limit", origin=Origin.LIMIT),
    Fault.GENERAL_TYPE_UNKNOWN: Rule("RELINK-12", "general packet types 5 to 7 do not exist"),
    Fault.OPERATION_UNKNOWN: Rule("RELINK-12", "channel operations 3 to 7 do not exist"),
    Fault.ACKNOWLEDGEMENT_UNKNOWN: Rule("RELINK-12", "channel acknowledgements 5 to 7 do not exist"),
    Fault.SEQUENCE_OPERATION_UNKNOWN: Rule("RELINK-12", "sequence operations 2 to 7 do not exist"),
    Fault.SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN: Rule("RELINK-12", "sequence acknowledgements 4 to 7 do not exist"),
    Fault.ENDPOINT_NOT_UTF8: Rule("RELINK-31", "the endpoint name is not UTF-8"),
    Fault.MESSAGE_CUT: Rule("RELINK-14", "the bytes end inside a packet"),
    Fault.ID_SIZES_UNKNOWN: Rule(
        "RELINK-7", "packets cannot be read without the handshake that says the channel id sizes", origin=Origin.LOCAL
    ),
    Fault.LINK_ID_RANGE: Rule("RELINK-8", "a link id is below 2^63"),
    Fault.LINK_WITHOUT_EPOCH: Rule("RELINK-9", "an old link id without its epoch", origin=Origin.RULING),
    Fault.EPOCH_ZERO: Rule("RELINK-9", "a listener's epoch is never zero"),
    Fault.HANDSHAKE_ORDER: Rule("RELINK-4", "said before its turn in the handshake"),
    Fault.VERSION_UNSUPPORTED: Rule("RELINK-5", "unsupported version"),
    Fault.ENDPOINT_UNKNOWN: Rule("RELINK-31", "no endpoint here has this name", origin=Origin.LOCAL),
    Fault.SETTINGS_DIFFER: Rule("RELINK-3", "transaction flags or channel id sizes are not those of the endpoint", origin=Origin.LOCAL),
    Fault.LINK_REFUSED: Rule("RELINK-10", "link id zero, though no old link was required"),
    Fault.LINK_REPLACED: Rule("RELINK-10", "another link, though the old one was required"),
    Fault.LINK_LOST: Rule("RELINK-10", "the required old link is not known any more", origin=Origin.LOCAL),
    Fault.SPOKE_BEFORE_RESUME: Rule("RELINK-21", "a message or operation before the resume it has to wait for"),
    Fault.TRANSACTIONS_OFF: Rule("RELINK-13", "a transaction in a direction that uses none"),
    Fault.ACKNOWLEDGED_TOO_MUCH: Rule("RELINK-15", "an acknowledgement outside what is outstanding"),
    Fault.CLOSED_UNASKED: Rule("RELINK-13", "closed for a channel on which no close is pending"),
    Fault.CHANNEL_CLOSING: Rule("RELINK-13", "a message or operation between close and closed"),
    Fault.CHANNEL_AFTER_SHUTDOWN: Rule("RELINK-23", "a channel was opened after its sender's shutdown"),
    Fault.DECIDED_TOO_MUCH: Rule("RELINK-26", "a commit or rollback beyond the last message"),
    Fault.CHANNELS_OVER_LIMIT: Rule("RELINK-24", "more channels than the limit", origin=Origin.LIMIT),
    Fault.RESUME_INCONSISTENT: Rule("RELINK-21", "the peer forgot a channel it had acknowledged"),
    Fault.RESULTS_OVER_LIMIT: Rule("RELINK-24", "more runs of results in a resume than the limit", origin=Origin.LIMIT),
    Fault.HANDSHAKE_TIMEOUT: Rule("RELINK-4", "no finished handshake in time"),
    Fault.PONG_TIMEOUT: Rule("RELINK-25", "no pong in time"),
    Fault.PACKET_TIMEOUT: Rule("RELINK-25", "a packet was not finished in time", origin=Origin.LIMIT),
    Fault.CLOSED_WITHOUT_PARTING: Rule("RELINK-23", "the connection was closed before both sides had shut down"),
    Fault.CLOSED_INSIDE_MESSAGE: Rule("RELINK-14", "the connection was closed inside a packet"),
    Fault.GIVEN_UP: Rule("RELINK-12", "protocol errors again and again without progress", origin=Origin.LIMIT),
    Fault.LINK_EXPIRED: Rule("RELINK-24", "the link was without a connection for too long", origin=Origin.LIMIT),
    Fault.LINKS_OVER_LIMIT: Rule("RELINK-24", "more links than the limit", origin=Origin.LIMIT),
    Fault.UNCONSUMED_OVER_LIMIT: Rule("RELINK-17", "more unconsumed messages than the limit", origin=Origin.LIMIT),
    Fault.UNDECIDED_OVER_LIMIT: Rule("RELINK-24", "more bytes of undecided messages than the limit", origin=Origin.LIMIT),
    Fault.WINDOW_FULL: Rule("RELINK-17", "too many messages are unconsumed", origin=Origin.LIMIT),
    Fault.FIELD_OUT_OF_RANGE: Rule("§2", "a value that its field cannot hold"),
    Fault.ID_SIZE_WRONG: Rule("RELINK-6", "a channel id of another size than agreed"),
    Fault.NOT_OPEN: Rule("RELINK-25", "there is no connection", origin=Origin.LOCAL),
    Fault.SHUTTING_DOWN: Rule("RELINK-23", "no channel can be opened after shutdown"),
    Fault.UNDECIDABLE: Rule("RELINK-26", "there is no such undecided message"),
    Fault.ABANDONED: Rule("RELINK-32", "this side gave the link up", origin=Origin.LOCAL),
    Fault.UNUSED_BITS_SET: Rule("RELINK-12", "unused bits and padding are sent as zero"),
    Fault.NOT_MINIMAL: Rule("RELINK-30", "senders use the minimal form", origin=Origin.RULING),
    Fault.MULTICAST_EMPTY: Rule("RELINK-19", "a multicast without channels", origin=Origin.RULING),
    Fault.PONG_UNSOLICITED: Rule("RELINK-25", "a pong without a ping before it"),
    Fault.RESUME_UNEXPECTED: Rule("RELINK-20", "a resume on a fresh link, or a second one"),
    Fault.CHANNEL_UNKNOWN: Rule("RELINK-13", "an acknowledgement for a channel that is not open", origin=Origin.RULING),
}
"""fault -> clause and sentence."""

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.LINK_ID_RANGE)
"""Faults that make the packet unreadable."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.UNUSED_BITS_SET)
"""Faults that are recorded and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable packets and of the state machine."""
OURS: Final = frozenset(fault for fault in BREACHES if fault >= Fault.WINDOW_FULL)
"""Faults of the calling code, not of the peer."""


class Violation(Exception):
    """A packet of the peer breaks a rule. Used inside the protocol only: a session answers it by ending."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        self.fault = fault
        self.detail = detail
        super().__init__(fault, detail)

"""Every rule of Relink that can be broken: its clause and one sentence.

Relink has no error message: a side that finds a fault closes the connection (RELINK-12), and the link lives on. An *unreadable* packet
cannot be decoded; a *breach* is a readable packet that is not allowed; a tolerated fault is recorded and nothing else.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.faults import LIMIT, LOCAL, MAY, MUST, RULING, SHOULD, TEXT, Faults, Rule, Threat

__all__ = ["BREACHES", "OURS", "TOLERATED", "UNREADABLE", "Fault", "Violation"]


class Fault(Faults):
    """The broken rules of Relink; 0 in a scanner's row means none."""

    # Where the next packet begins is lost.
    FORMAT_UNKNOWN = Rule(1, "RELINK-12", "channel packet formats 5 to 7 do not exist", TEXT, MUST)
    MULTICAST_OVER_LIMIT = Rule(2, "RELINK-24", "a multicast names more channels than the limit", LIMIT, MAY, threat=Threat.BOMB)
    PARTS_OVER_LIMIT = Rule(3, "RELINK-24", "a message has more parts than the limit", LIMIT, MAY, threat=Threat.BOMB)
    PART_OVER_LIMIT = Rule(4, "RELINK-24", "a part of a message is over the limit", LIMIT, MAY, threat=Threat.BOMB)
    MESSAGE_OVER_LIMIT = Rule(5, "RELINK-24", "the parts of a message together are over the limit", LIMIT, MAY, threat=Threat.BOMB)

    # This packet cannot be read, the next one could.
    GENERAL_TYPE_UNKNOWN = Rule(10, "RELINK-12", "general packet types 5 to 7 do not exist", TEXT, MUST)
    OPERATION_UNKNOWN = Rule(11, "RELINK-12", "channel operations 3 to 7 do not exist", TEXT, MUST)
    ACKNOWLEDGEMENT_UNKNOWN = Rule(12, "RELINK-12", "channel acknowledgements 5 to 7 do not exist", TEXT, MUST)
    SEQUENCE_OPERATION_UNKNOWN = Rule(13, "RELINK-12", "sequence operations 2 to 7 do not exist", TEXT, MUST)
    SEQUENCE_ACKNOWLEDGEMENT_UNKNOWN = Rule(14, "RELINK-12", "sequence acknowledgements 4 to 7 do not exist", TEXT, MUST)
    ENDPOINT_NOT_UTF8 = Rule(15, "RELINK-31", "the endpoint name is not UTF-8", TEXT, MUST)
    MESSAGE_CUT = Rule(16, "RELINK-14", "the bytes end inside a packet", RULING, MAY)
    ID_SIZES_UNKNOWN = Rule(17, "RELINK-7", "packets cannot be read without the handshake that says the channel id sizes", LOCAL, MAY)

    # Breaches of the handshake that one part shows.
    LINK_ID_RANGE = Rule(40, "RELINK-8", "a link id is below 2^63", TEXT, MUST)
    LINK_WITHOUT_EPOCH = Rule(41, "RELINK-9", "an old link id without its epoch", RULING, MAY)
    EPOCH_ZERO = Rule(42, "RELINK-9", "a listener's epoch is never zero", RULING, MAY)

    # Breaches that depend on earlier messages.
    HANDSHAKE_ORDER = Rule(50, "RELINK-4", "said before its turn in the handshake", TEXT, MUST)
    VERSION_UNSUPPORTED = Rule(51, "RELINK-5", "unsupported version", TEXT, MUST)
    ENDPOINT_UNKNOWN = Rule(
        52,
        "RELINK-31",
        "no endpoint here has this name",
        LOCAL,
        MAY,
        unseen="the listener closes without a message, and its endpoints are not on the wire",
    )
    SETTINGS_DIFFER = Rule(
        53,
        "RELINK-3",
        "transaction flags or channel id sizes are not those of the endpoint",
        LOCAL,
        MAY,
        unseen="the listener closes without a message, and its endpoints are not on the wire",
    )
    LINK_REFUSED = Rule(54, "RELINK-10", "link id zero, though no old link was required", TEXT, SHOULD)
    LINK_REPLACED = Rule(55, "RELINK-10", "another link, though the old one was required", TEXT, SHOULD)
    LINK_LOST = Rule(
        56,
        "RELINK-10",
        "the required old link is not known any more",
        LOCAL,
        MAY,
        unseen="a listener may forget a link after its shutdown (RELINK-23), which was in another session",
    )
    SPOKE_BEFORE_RESUME = Rule(57, "RELINK-21", "a message or operation before the resume it has to wait for", TEXT, MUST)
    TRANSACTIONS_OFF = Rule(58, "RELINK-13", "a transaction in a direction that uses none", TEXT, MUST)
    ACKNOWLEDGED_TOO_MUCH = Rule(59, "RELINK-15", "an acknowledgement outside what is outstanding", TEXT, MUST)
    CLOSED_UNASKED = Rule(60, "RELINK-13", "closed for a channel on which no close is pending", TEXT, MUST)
    CHANNEL_CLOSING = Rule(61, "RELINK-13", "a message or operation between close and closed", TEXT, MUST)
    CHANNEL_AFTER_SHUTDOWN = Rule(62, "RELINK-23", "a channel was opened after its sender's shutdown", TEXT, MUST)
    DECIDED_TOO_MUCH = Rule(63, "RELINK-26", "a commit or rollback beyond the last message", TEXT, MUST)
    CHANNELS_OVER_LIMIT = Rule(
        64, "RELINK-24", "more channels than the limit", LIMIT, MAY, unseen="the limits of a side are not on the wire"
    )
    RESUME_INCONSISTENT = Rule(65, "RELINK-21", "the peer forgot a channel it had acknowledged", TEXT, MUST)
    RESULTS_OVER_LIMIT = Rule(
        66, "RELINK-24", "more runs of results in a resume than the limit", LIMIT, MAY, unseen="the limits of a side are not on the wire"
    )
    HANDSHAKE_TIMEOUT = Rule(67, "RELINK-4", "no finished handshake in time", LIMIT, MAY)
    PONG_TIMEOUT = Rule(
        68,
        "RELINK-25",
        "no pong in time",
        LIMIT,
        MUST,
        unseen="the pong timeout is each side's own setting, and an observer does not know when it was read",
    )
    PACKET_TIMEOUT = Rule(
        69,
        "RELINK-25",
        "a packet was not finished in time",
        LIMIT,
        MAY,
        unseen="tables have the time of a packet, not of each of its bytes",
    )
    CLOSED_WITHOUT_PARTING = Rule(70, "RELINK-23", "the connection was closed before both sides had shut down", TEXT, MAY)
    CLOSED_INSIDE_MESSAGE = Rule(
        71,
        "RELINK-14",
        "the connection was closed inside a packet",
        RULING,
        MAY,
        unseen="found as MESSAGE_CUT, with the bytes that were left",
    )
    GIVEN_UP = Rule(
        73,
        "RELINK-12",
        "protocol errors again and again without progress",
        LIMIT,
        MAY,
        unseen="the number of retries is a side's own setting; the errors themselves are found",
    )
    LINK_EXPIRED = Rule(
        74,
        "RELINK-24",
        "the link was without a connection for too long",
        LIMIT,
        MAY,
        unseen="how long a listener keeps a link is its own setting",
    )
    LINKS_OVER_LIMIT = Rule(75, "RELINK-24", "more links than the limit", LIMIT, MAY, unseen="the limits of a side are not on the wire")
    UNCONSUMED_OVER_LIMIT = Rule(
        76, "RELINK-17", "more unconsumed messages than the limit", LIMIT, MAY, unseen="the limits of a side are not on the wire"
    )
    UNDECIDED_OVER_LIMIT = Rule(
        77, "RELINK-24", "more bytes of undecided messages than the limit", LIMIT, MAY, unseen="the limits of a side are not on the wire"
    )
    RESULT_UNNUMBERED = Rule(
        78, "§3.2", "a result without a number after a rollback: it would be about the message that was rolled back", TEXT, MUST
    )

    # What a caller may not ask for.
    WINDOW_FULL = Rule(80, "RELINK-17", "too many messages are unconsumed", LIMIT, MAY, unseen="refused before anything is sent")
    FIELD_OUT_OF_RANGE = Rule(81, "§2", "a value that its field cannot hold", TEXT, MUST, unseen="refused before anything is sent")
    ID_SIZE_WRONG = Rule(82, "RELINK-6", "a channel id of another size than agreed", TEXT, MUST, unseen="refused before anything is sent")
    NOT_OPEN = Rule(83, "RELINK-25", "there is no connection", LOCAL, MAY, unseen="refused before anything is sent")
    SHUTTING_DOWN = Rule(84, "RELINK-23", "no channel can be opened after shutdown", TEXT, MUST, unseen="refused before anything is sent")
    UNDECIDABLE = Rule(85, "RELINK-26", "there is no such undecided message", LOCAL, MAY, unseen="refused before anything is sent")
    ABANDONED = Rule(86, "RELINK-32", "this side gave the link up", LOCAL, MAY, unseen="refused before anything is sent")

    # Tolerated on receipt, never sent.
    UNUSED_BITS_SET = Rule(90, "RELINK-12", "unused bits and padding are sent as zero", TEXT, MUST)
    NOT_MINIMAL = Rule(91, "RELINK-30", "senders use the minimal form", RULING, MAY)
    MULTICAST_EMPTY = Rule(92, "RELINK-19", "a multicast without channels", RULING, MAY)
    PONG_UNSOLICITED = Rule(93, "RELINK-25", "a pong without a ping before it", TEXT, MUST)
    RESUME_UNEXPECTED = Rule(94, "RELINK-20", "a resume on a fresh link, or a second one", TEXT, MUST)
    CHANNEL_UNKNOWN = Rule(95, "RELINK-13", "an acknowledgement for a channel that is not open", RULING, MAY)
    # The text says must; a warning, because no text says when a pong is due.
    PONG_MISSING = Rule(96, "RELINK-25", "pings are answered: no pong came in a minute, though other packets did", TEXT, SHOULD)


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

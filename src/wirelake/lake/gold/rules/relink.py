"""Relink: which broken rules are threats, and which a lake cannot find."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.threats import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.relink.faults import OURS, Fault

__all__ = ["THREATS", "UNSEEN"]

THREATS: Final[dict[Faults, Threat]] = dict.fromkeys(
    (Fault.MULTICAST_OVER_LIMIT, Fault.PARTS_OVER_LIMIT, Fault.PART_OVER_LIMIT, Fault.MESSAGE_OVER_LIMIT), Threat.BOMB
)
"""RELINK-24: what endangers a receiver."""

UNSEEN: Final[dict[Faults, str]] = {
    **dict.fromkeys(
        (Fault.ENDPOINT_UNKNOWN, Fault.SETTINGS_DIFFER),
        "the listener closes without a message, and its endpoints are not on the wire",
    ),
    Fault.LINK_LOST: "a listener may forget a link after its shutdown (RELINK-23), which was in another session",
    **dict.fromkeys(
        (
            *(Fault.CHANNELS_OVER_LIMIT, Fault.RESULTS_OVER_LIMIT, Fault.LINKS_OVER_LIMIT),
            *(Fault.UNCONSUMED_OVER_LIMIT, Fault.UNDECIDED_OVER_LIMIT),
        ),
        "the limits of a side are not on the wire",
    ),
    Fault.PONG_TIMEOUT: "the pong timeout is each side's own setting, and an observer does not know when it was read",
    Fault.PACKET_TIMEOUT: "tables have the time of a packet, not of each of its bytes",
    Fault.CLOSED_INSIDE_MESSAGE: "found as MESSAGE_CUT, with the bytes that were left",
    Fault.GIVEN_UP: "the number of retries is a side's own setting; the errors themselves are found",
    Fault.LINK_EXPIRED: "how long a listener keeps a link is its own setting",
    **dict.fromkeys(OURS, "refused before anything is sent"),
}
"""Rules that recorded history cannot tell the breaking of, and why."""

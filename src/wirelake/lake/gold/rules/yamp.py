"""YAMP: which broken rules are threats, and which a lake cannot find."""

from __future__ import annotations

from typing import Final

from wirelake.lake.tables.threats import Threat
from wirelake.protocols.faults import Faults
from wirelake.protocols.yamp.faults import Fault

__all__ = ["THREATS", "UNSEEN"]

THREATS: Final[dict[Faults, Threat]] = {
    Fault.BODY_OVER_LIMIT: Threat.BOMB,
    Fault.ECHO_DIFFERS: Threat.DOWNGRADE,
}
"""YAMP-43, YAMP-8: threats to a receiver, and a handshake that may have been changed on its way."""

UNSEEN: Final[dict[Faults, str]] = {
    Fault.PONG_UNSOLICITED: "an unsolicited pong is to be ignored",
    Fault.CANCEL_UNMATCHED: "a cancel that crosses the answer is legal, and cannot be distinguished from others",
    Fault.BYTES_AFTER_MESSAGE: "only where one message is decoded alone; in a stream the next message begins there",
    Fault.REQUEST_NOT_IN_FLIGHT: "refused before anything is sent; on the wire it is RESPONSE_UNMATCHED",
    **dict.fromkeys(
        (Fault.URI_SIZE, Fault.FIELD_OUT_OF_RANGE, Fault.BODY_UNSERIALIZABLE, Fault.DATAGRAM_TOO_LARGE), "refused before anything is sent"
    ),
}
"""What history cannot tell, or the lake does not, and why."""

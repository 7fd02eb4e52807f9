"""PacketFilter: which packets a query wants, by port and time; others are not followed."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.packets.dissect import DESTINATION_PORT, IS_FRAGMENT, REASON, SOURCE_PORT

__all__ = ["EVERYTHING", "PacketFilter"]

Array = np.ndarray[Any, Any]


class PacketFilter(msgspec.Struct, frozen=True):
    """Wanted ports and times; None: any."""

    ports: tuple[int, ...] | None = None
    """At least one of the two ports is among these."""
    since: int | None = None
    """At this time, in microseconds, or later."""
    until: int | None = None
    """At this time or earlier. A packet without a time does not pass a filter on time."""

    def on_ports(self, packets: Array) -> Array:
        """Return which rows of `dissect.py` are on wanted ports; a fragment may be."""
        if self.ports is None:
            return np.ones(len(packets), np.bool_)
        wanted = np.array(self.ports, np.int64)
        either = np.isin(packets[:, SOURCE_PORT], wanted) | np.isin(packets[:, DESTINATION_PORT], wanted)
        passes: Array = either | (packets[:, REASON] == IS_FRAGMENT)
        return passes

    def in_time(self, times: Array) -> Array:
        """Return which times are wanted."""
        wanted: Array = np.ones(len(times), np.bool_)
        if self.since is not None:
            wanted &= times >= self.since
        if self.until is not None:
            wanted &= (times <= self.until) & (times != NO_TIME)
        return wanted


EVERYTHING = PacketFilter()

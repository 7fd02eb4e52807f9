"""PacketFilter: which packets somebody wants, so that others need not be followed.

It refuses to know who asks.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from wirelake.capture.containers.records import NO_TIME
from wirelake.capture.packets.dissect import DESTINATION_PORT, IS_FRAGMENT, REASON, SOURCE_PORT

__all__ = ["EVERYTHING", "PacketFilter"]

Array = np.ndarray[Any, Any]


class PacketFilter(msgspec.Struct, frozen=True):
    """What is wanted; None: whatever it is."""

    ports: tuple[int, ...] | None = None
    """One of the two ports is among these."""
    since: int | None = None
    """Seen at this time, in microseconds, or later."""
    until: int | None = None
    """Seen at this time or earlier. What has no time is not wanted where a time is."""

    def on_ports(self, packets: Array) -> Array:
        """Which rows of `packets.py` are on wanted ports; a fragment may be."""
        if self.ports is None:
            return np.ones(len(packets), np.bool_)
        wanted = np.array(self.ports, np.int64)
        either = np.isin(packets[:, SOURCE_PORT], wanted) | np.isin(packets[:, DESTINATION_PORT], wanted)
        found: Array = either | (packets[:, REASON] == IS_FRAGMENT)
        return found

    def in_time(self, times: Array) -> Array:
        """Which times are wanted."""
        wanted: Array = np.ones(len(times), np.bool_)
        if self.since is not None:
            wanted &= times >= self.since
        if self.until is not None:
            wanted &= (times <= self.until) & (times != NO_TIME)
        return wanted


EVERYTHING = PacketFilter()

"""Limits of a reader of Relink, and what it must know about bytes without a connection."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Final, Literal

import msgspec

__all__ = ["DEFAULT_LIMITS", "FARTHEST", "Limits", "PacketLimits", "Stage"]

FARTHEST: Final = 1 << 47
"""No offset is beyond this or below 0; saying so lets the compiler drop a check on every access."""


class Stage(IntEnum):
    """§1: the next thing that one direction of a connection sends."""

    PACKETS = 0
    VERSION = 1
    REQUEST = 2
    REPLY = 3


@lru_cache(maxsize=256)
def _for_scan(
    limits: PacketLimits, stage: Stage, sender_id_size: int, receiver_id_size: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """As `PacketLimits.for_scan`: readers of many short connections ask all the time."""
    sizes = (min(limits.max_part_size, FARTHEST), min(limits.max_message_size, FARTHEST))  # so that sums stay in 64 bits
    return (limits.max_multicast, limits.max_parts, *sizes, limits.most_ids(0), int(stage), sender_id_size, receiver_id_size)


class PacketLimits(msgspec.Struct, frozen=True, kw_only=True):
    """RELINK-24: limits of a reader, checked before anything is buffered."""

    max_multicast: int = 65_536
    """Channels in a multicast."""
    max_parts: int = 1024
    """Parts of a message."""
    max_part_size: int = 16 * 1024 * 1024
    """Bytes of one part."""
    max_message_size: int = 64 * 1024 * 1024
    """Bytes of all parts of a message."""
    max_empty_ids: int = 16
    """Channels in a multicast whose ids take no bytes (RELINK-19).

    The count is a claim without bytes behind it.
    """

    def for_scan(
        self, stage: Stage = Stage.PACKETS, sender_id_size: int = 0, receiver_id_size: int = 0
    ) -> tuple[int, int, int, int, int, int, int, int]:
        """The limits as the scanner takes them, for a stream at this stage.

        A size is that of the ids of the side that sends on them.
        """
        return _for_scan(self, stage, sender_id_size, receiver_id_size)

    def most_ids(self, id_size: int) -> int:
        """How many ids of this size a multicast may have."""
        return self.max_multicast if id_size else min(self.max_empty_ids, self.max_multicast)


class Limits(PacketLimits, frozen=True, kw_only=True):
    """The same for a reader of captures, and what it must know beforehand."""

    connector_id_size: int | None = None
    """RELINK-6: size of the ids of the connector's channels, for bytes without its handshake."""
    listener_id_size: int | None = None
    """RELINK-6: the same of the listener."""
    speaks: Literal["connector", "listener"] = "connector"
    """RELINK-7: for bytes without a connection: whose they are."""
    handshake: bool = True
    """For bytes without a connection: they begin with the handshake."""

    OFFLINE: ClassVar = ("connector_id_size", "listener_id_size", "speaks", "handshake")
    """What a live connection tells by itself."""


DEFAULT_LIMITS: Final = Limits()

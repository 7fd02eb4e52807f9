"""Options of Relink links and sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.relink.limits import Limits, PacketLimits
from wirelake.protocols.relink.messages import HandshakeFlag
from wirelake.protocols.relink.state_machine import Speaker
from wirelake.protocols.reply_timer import MIN_RATE

__all__ = ["DEFAULT_OPTIONS", "Endpoint", "Limits", "Options"]


class Endpoint(msgspec.Struct, frozen=True):
    """§1: what a connector asks for and a listener hosts; both must say the same (RELINK-3)."""

    name: str = ""
    """RELINK-31: at most 255 bytes of UTF-8."""
    connector_id_size: int = 0
    """RELINK-6: bytes of the ids of channels the connector sends messages on."""
    listener_id_size: int = 0
    """RELINK-6: bytes of the ids of channels the listener sends messages on."""
    connector_transactions: bool = False
    """§1: the connector's messages are committed or rolled back."""
    listener_transactions: bool = False

    @property
    def flags(self) -> int:
        """§1: the transaction flags of the handshake."""
        connector = HandshakeFlag.CONNECTOR_TRANSACTIONS if self.connector_transactions else 0
        return connector | (HandshakeFlag.LISTENER_TRANSACTIONS if self.listener_transactions else 0)

    @property
    def id_sizes(self) -> tuple[int, int]:
        """The sizes by speaker."""
        return (self.connector_id_size, self.listener_id_size)

    def transactional(self, sender: Speaker) -> bool:
        """Whether what this one sends is committed or rolled back."""
        return self.connector_transactions if sender is Speaker.CONNECTOR else self.listener_transactions


def _never() -> float:
    return 0.0


class Options(PacketLimits, frozen=True, kw_only=True):
    """Options of links and sessions, their limits included. Times are seconds; None switches a timer off."""

    handshake_timeout: float | None = 10.0
    """RELINK-4: how long the whole handshake may take."""
    ping_interval: float | None = 11.0
    """RELINK-25: how long nothing may arrive before a ping is sent."""
    pong_timeout: float | None = 7.0
    """RELINK-25: how long to wait for a pong."""
    packet_timeout: float | None = 30.0
    """RELINK-25: how long a packet may take to arrive, beyond what its size needs at `min_rate`."""
    min_rate: float = MIN_RATE
    """RELINK-25: bytes a second below which a connection counts as silent.

    Only faster ones postpone the deadline of a pong or packet.
    """
    jitter: float = 0.25
    """RELINK-25: by how much of itself each of these timers is prolonged at most."""
    random: Callable[[], float] = _never
    """Source of the jitter: numbers from 0 to 1. `connect` and `serve` set it."""
    window: int = 65_536
    """RELINK-17: unconsumed messages a channel of ours may have; below 2^31."""
    max_unconsumed: int = 262_144
    """RELINK-17: unconsumed messages of the peer on all its channels, before the connection is ended.

    A reader that stops reading well before that never gets here, unless a small packet repeats a message many times.
    """
    max_undecided_bytes: int = 256 * 1024 * 1024
    """RELINK-24: bytes of undecided messages of the peer, before the connection is ended.

    Undecided messages wait for commit or rollback.
    """
    max_channels: int = 65_536
    """RELINK-24: channels of the peer that may be open."""
    max_result_runs: int = 4096
    """RELINK-24: runs of transaction results that are kept until the peer certainly has them."""
    ack_delay: float = 0.1
    """RELINK-18: how long a consumed message of a busy channel may wait to be acknowledged.

    A drained channel does not wait.
    """
    ack_every: int = 16_384
    """RELINK-18: how many consumed messages of a busy channel are acknowledged at once."""
    barrier_delay: float = 1.0
    """RELINK-22: how long after a closed or a result to ping, so that it can be forgotten."""
    tombstones: bool | Literal["forgiving"] = True
    """RELINK-22: announce after a reconnection which channels were closed, until a pong shows that the peer knows.

    Some peers end the connection for it. `"forgiving"` forgets channels whose announcement such a peer answers by closing the connection.
    False announces nothing. With either, messages on a channel whose closing was lost may arrive twice.
    """
    max_tombstones: int = 65_536
    """RELINK-22: closed channels that are remembered, at least 1. With so many, an answer to `close` waits for a pong."""
    require_old_link: bool = False
    """RELINK-10: a connector that has a link wants that one or none."""
    max_strikes: int = 3
    """RELINK-12: protocol errors in a row, without progress, after which the link is given up."""
    link_lifetime: float | None = 600.0
    """RELINK-24: how long a listener keeps a link without a connection."""
    max_links: int = 10_000
    """RELINK-24: links a listener has for each endpoint."""
    max_links_per_remote: int = 1000
    """RELINK-33: links a listener has for each remote host."""

    def __post_init__(self) -> None:
        if self.tombstones not in (True, False, "forgiving"):
            raise UsageError(f"tombstones={self.tombstones!r} (RELINK-22): it is True, False or 'forgiving'")
        if self.max_tombstones < 1:
            raise UsageError(f"max_tombstones={self.max_tombstones} (RELINK-24): it is at least 1")

    @property
    def limits(self) -> PacketLimits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()

"""Options of a live wolpertinger peer: limits, timers, trust, queues and recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.wolpertinger.components import Offer
from wirelake.protocols.wolpertinger.options import Options as SessionOptions

if TYPE_CHECKING:
    from wirelake.peers.wolpertinger.peer import Peer
else:  # for `help` and `inspect.signature`: these modules import this one, or need an extra
    Peer = Any

__all__ = ["Options"]


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a peer. Times are seconds; None switches a timer off."""

    offers: tuple[type | Offer, ...] = ()
    """Components beside those given to `connect` or `serve`.

    Each connection has its own instances (WOLP-20).
    """
    authenticate: int = 0
    """WOLP-22 to WOLP-26: the trust level to reach before the first call, 0 to 4.

    3 needs the cluster key, 4 a user and a password.
    """
    user: str = ""
    """The user name for level 4."""
    password: str = ""
    """The password for level 4."""
    authentication_timeout: float = 30.0
    """How long reaching that level may take."""
    admits: Callable[[str], bool] | None = None
    """WOLP-23: called with the peer's address before its EstablishConnection is answered.

    Without it `admit` holds.
    """
    on_event: Callable[[Peer, Any], None] | None = None
    """Called for events beside calls: errors that answer no call, trust changes, resets, tolerated faults."""
    on_call: Callable[[Peer, str, tuple[Any, ...]], None] | None = None
    """Called before the method of each call, with the peer, `Component.Method` and the parameters.

    RequestFailed(201) denies the call.
    """
    max_outgoing_calls: int = 512
    """Calls of ours in flight; above that callers wait."""
    max_in_flight: int = 256
    """Calls of the peer being worked on; above that reading stops, also for answers to our calls."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of calls being worked on; above that reading stops."""
    max_inbox: int = 1024
    """Events that wait for a subscriber; further ones are dropped for it, and counted."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes of output the peer does not read; above that reading stops."""
    max_inflated_rate: float = 8 * 1024 * 1024
    """WOLP-7: bytes a second that payloads may be decompressed to, 16 more for each tag.

    A connection that wants more waits, and others are served.
    """
    linger: float = 1.0
    """How long to wait for the peer to close after our last message."""
    stall_timeout: float = 60.0
    """How long the peer may read nothing while output waits for it."""
    path_timeout: float | None = 120.0
    """Over TCP: how long the other host may be unreachable, or read nothing that was sent; never less than `stall_timeout`.

    The system sends probes on silent connections, and ends those without an answer.
    """
    silence_timeout: float | None = 15.0
    """How long no byte may come while our calls time out: after three in a row the connection is given up."""
    idle_timeout: float | None = 600.0
    """Over XMPP, where the end of a peer cannot be seen: how long a server keeps an idle session."""
    recorder: Recorder | None = None
    """Records both directions of the connection."""
    key_log: Path | None = None
    """WOLP-24: a file to which the keys of every session are appended.

    With it recordings can be decrypted (`ingest --keys`).
    """

    def __repr__(self) -> str:
        """Without keys and passwords."""
        return f"Options(authenticate={self.authenticate}, user={self.user!r}, offers={len(self.offers)})"

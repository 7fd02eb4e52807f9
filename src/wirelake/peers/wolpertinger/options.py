"""What a live wolpertinger peer may be told beyond its session's options. It refuses to act on any of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.wolpertinger.components import Offer
from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.options import DEFAULT_OPTIONS, Options

if TYPE_CHECKING:
    from wirelake.peers.wolpertinger.peer import Peer

__all__ = ["DEFAULT_LIVE", "Live"]


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit has its name here. Times are seconds."""

    session: Options = DEFAULT_OPTIONS
    """Timers, retries, limits; the cluster key; who may establish a connection, and whose password is what."""
    components: tuple[type | Offer, ...] = ()
    """What is offered beside Core and Authentication; each connection has instances of its own (WOLP-20)."""
    authenticate: int = 0
    """WOLP-22 to WOLP-26: how far to go before the first call, 0 to 4; 3 needs the cluster key, 4 a user name and a password."""
    user: str = ""
    password: str = ""
    authentication_timeout: float = 30.0
    """How long all of that may take together."""
    admit: Callable[[str], bool] | None = None
    """WOLP-23: asked with the peer's address before its EstablishConnection is answered; without it `session.admit` holds."""
    attempts: Buckets | None = None
    """WOLP-25: proofs each address may try, over all its connections. A server that is given none makes one for itself."""
    on_event: Callable[[Peer, Any], None] | None = None
    """Hears what else happens: errors that answer no call, trust that changes, resets, faults that are tolerated."""
    on_call: Callable[[Peer, str, tuple[Any, ...]], None] | None = None
    """Sees every call before its method does: the peer, `Component.Method`, the parameters. It may refuse with RequestFailed(201)."""
    max_calls: int = 512
    """Calls of ours on their way; above that callers wait."""
    max_in_flight: int = 256
    """Calls of the peer being worked on; above that nothing more is read, also no answer to a call of ours."""
    max_held: int = 32 * 1024 * 1024
    """Bytes of calls that are worked on; above that nothing more is read."""
    max_inbox: int = 1024
    """Events that wait for a subscriber; what finds no room is lost to it, and counted."""
    max_unsent: int = 16 * 1024 * 1024
    """Bytes the peer asked for and does not read; above that nothing more is read."""
    linger: float = 1.0
    """How long to wait for the peer to close after our last word."""
    stall_timeout: float = 60.0
    """How long a peer may read nothing while we have something for it."""
    idle_timeout: float | None = 600.0
    """Over XMPP, where nobody is seen to leave: how long a server keeps a conversation in which nothing is said."""
    recorder: Recorder | None = None
    key_log: Path | None = None
    """WOLP-24: a file to which the keys of every session are appended, so that what was recorded can be read (`ingest --keys`)."""

    def __repr__(self) -> str:
        return f"Live(authenticate={self.authenticate}, user={self.user!r}, components={len(self.components)})"


DEFAULT_LIVE: Final = Live()

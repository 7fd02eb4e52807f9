"""wolpertinger live: a client makes a peer, a server many, over lines of a stream or over XMPP.

```
class Weather:
    @method(trust=0)
    async def Temperature(self, place: str) -> float:
        return 21.5

async with serve("tcp://127.0.0.1:0", Weather) as server:
    async with connect(server.address) as peer:
        print(await peer.Weather.Temperature("Oslo"))
```
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import msgspec

from wirelake.errors import ConnectFailed, UsageError
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.server import Server
from wirelake.peers.wolpertinger.components import Offer, declared, method, offers
from wirelake.peers.wolpertinger.options import DEFAULT_LIVE, Live
from wirelake.peers.wolpertinger.peer import Peer, PeerEvent
from wirelake.peers.wolpertinger.remote import Remote
from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.transports import reach, xmpp
from wirelake.transports.address import ENCRYPTED, XMPP, Target, parse
from wirelake.transports.stream import Stream
from wirelake.transports.xmpp import DEFAULT_XMPP, Xmpp

__all__ = [
    "DEFAULT_LIVE",
    "SCHEMES",
    "Live",
    "Offer",
    "Peer",
    "PeerEvent",
    "Remote",
    "ServerLimits",
    "WolpertingerServer",
    "Xmpp",
    "connect",
    "method",
    "serve",
]

SCHEMES: Final = ("tcp", "tls", "unix", XMPP)
"""WOLP-11: streams of lines, and XMPP."""
ATTEMPTS: Final = (0.2, 5.0, 4096)
"""WOLP-25: proofs a second that an address may try in the long run, in one go, and how many addresses are remembered."""


class WolpertingerServer(Server[Peer]):
    """A server that can also speak first, over XMPP."""

    def meet(self, address: str) -> Peer:
        """A peer at an XMPP address that has not spoken to us, over the login we have; raises ConnectFailed while there is none."""
        if not isinstance(self._listener, xmpp.XmppListener) or self._group is None:
            raise UsageError(f"{self.target}: only a server over XMPP that is in use can speak first")
        try:
            stream = self._listener.stream(address)
        except OSError as reason:
            raise ConnectFailed(f"cannot talk to {address}: {reason}") from None
        peer = self._make(stream)
        self.peers.add(peer)
        self._group.create_task(self._attend(peer, stream))
        return peer


class XmppArrival:
    """An address that somebody wrote from."""

    def __init__(self, stream: xmpp.XmppStream) -> None:
        self.host = stream.remote[0]
        self._stream = stream

    async def stream(self) -> Stream:
        """See reach.Arrival."""
        return self._stream

    def close(self) -> None:
        """See reach.Arrival."""
        self._stream.abort()


def connect(
    address: str,
    *components: type | Offer,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    login: Xmpp = DEFAULT_XMPP,
    reconnect: Backoff | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """A client of the peer at tcp:// or tls://host:port, unix:///path, or xmpp://me@domain/peer@domain; use it with `async with`.

    With `reconnect`, it authenticates anew on each connection, as far as `live.authenticate` says.
    """
    target = parse(address, None, SCHEMES)
    if tls is not None and target.scheme not in (*ENCRYPTED, XMPP):
        raise UsageError(f"{target}: a TLS context belongs to tls:// or xmpp://")
    if target.scheme == XMPP and not target.path:
        raise UsageError(f"{target} says who we are, not whom to talk to: write {target}/peer@domain")

    async def dial(target: Target, context: ssl.SSLContext | None) -> Stream:
        return await xmpp.connect(target, login, tls) if target.scheme == XMPP else await reach.connect(target, context)

    live = _offering(live, components)
    timeout = max(connect_timeout, login.login_timeout) if target.scheme == XMPP else connect_timeout
    return Client(
        target, lambda stream: Peer(Speaker.CLIENT, stream, live), tls=tls, reconnect=reconnect, connect_timeout=timeout, dial=dial
    )


def serve(
    address: str,
    *components: type | Offer,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    login: Xmpp = DEFAULT_XMPP,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> WolpertingerServer:
    """A server at tcp:// or tls://host:port (port 0: any free one), unix:///path, or xmpp://me@domain; use it with `async with`."""
    target = parse(address, None, SCHEMES)
    if target.scheme != XMPP and (target.scheme in ENCRYPTED) != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and xmpp://, and with no other")
    if target.scheme == XMPP and target.path:
        raise UsageError(f"{target}: a server waits for whoever writes: leave out {target.path}")

    async def listen(target: Target, context: ssl.SSLContext | None, accepted: Callable[[reach.Arrival], None]) -> reach.Listener:
        if target.scheme == XMPP:
            return await xmpp.listen(target, lambda stream: accepted(XmppArrival(stream)), login, tls)
        return await reach.listen(target, context, accepted)

    live = _offering(live, components)
    if live.attempts is None:
        live = msgspec.structs.replace(live, attempts=Buckets(*ATTEMPTS))
    return WolpertingerServer(target, lambda stream: Peer(Speaker.SERVER, stream, live), tls=tls, limits=limits, listen=listen)


def _offering(live: Live, components: tuple[type | Offer, ...]) -> Live:
    """All that is offered; raises UsageError now if something is declared wrongly, not when the first peer comes."""
    live = msgspec.structs.replace(live, components=(*live.components, *components))
    declared(offers(live.components))
    return live

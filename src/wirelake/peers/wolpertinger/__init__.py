"""wolpertinger live: `connect` makes a peer, `serve` one for each client.

Both work over lines of a stream or over XMPP.

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
from wirelake.peers.admission import ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.server import Server
from wirelake.peers.wolpertinger.components import Offer, declared, method, offers
from wirelake.peers.wolpertinger.options import Options
from wirelake.peers.wolpertinger.peer import Peer, PeerEvent
from wirelake.peers.wolpertinger.remote import Remote
from wirelake.protocols.rates import Buckets
from wirelake.protocols.wolpertinger.events import Ended
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.transports import reach, xmpp
from wirelake.transports.address import XMPP, Target, parse
from wirelake.transports.stream import Stream
from wirelake.transports.tls import for_client, for_server
from wirelake.transports.xmpp import Xmpp

__all__ = [
    "SCHEMES",
    "Backoff",
    "Ended",
    "Offer",
    "Options",
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
"""WOLP-25: limits of proofs by address: a second in the long run, in one go, and known addresses."""


class WolpertingerServer(Server[Peer]):
    """A server that can also open a session itself, over XMPP."""

    def meet(self, address: str) -> Peer:
        """A peer at an XMPP address that has not spoken to us, over the login we have.

        Raises ConnectFailed while there is none.
        """
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
    """An XMPP address that sent a first message."""

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
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    login: Xmpp | None = None,
    reconnect: Backoff | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """Connect to the peer at tcp:// or tls://host:port, unix:///path, or xmpp://me@domain/peer@domain.

    Use it with `async with`.

    Without `reconnect` the client gives up when its connection ends; with it, each connection authenticates again.
    """
    target = parse(address, None, SCHEMES)
    for_client(target, tls, ("tls", XMPP))
    account = login or Xmpp()
    if target.scheme == XMPP and not target.path:
        raise UsageError(f"{target} says who we are, not whom to talk to: write {target}/peer@domain")

    async def dial(target: Target, context: ssl.SSLContext | None) -> Stream:
        return await xmpp.connect(target, account, tls) if target.scheme == XMPP else await reach.connect(target, context)

    chosen = _offering(options, components)
    timeout = max(connect_timeout, account.login_timeout) if target.scheme == XMPP else connect_timeout
    return Client(
        target, lambda stream: Peer(Speaker.CLIENT, stream, chosen), tls=tls, reconnect=reconnect, connect_timeout=timeout, dial=dial
    )


def serve(
    address: str,
    *components: type | Offer,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    login: Xmpp | None = None,
    limits: ServerLimits | None = None,
) -> WolpertingerServer:
    """Serve at tcp:// or tls://host:port (port 0: any free one), unix:///path, or xmpp://me@domain.

    Use it with `async with`.
    """
    target = parse(address, None, SCHEMES)
    if target.scheme != XMPP:
        for_server(target, tls)
    account = login or Xmpp()
    if target.scheme == XMPP and target.path:
        raise UsageError(f"{target}: a server answers every address: leave out {target.path}")

    async def listen(target: Target, context: ssl.SSLContext | None, accepted: Callable[[reach.Arrival], None]) -> reach.Listener:
        if target.scheme == XMPP:
            return await xmpp.listen(target, lambda stream: accepted(XmppArrival(stream)), account, tls)
        return await reach.listen(target, context, accepted)

    chosen = _offering(options, components)
    if chosen.attempts is None:
        chosen = msgspec.structs.replace(chosen, attempts=Buckets(*ATTEMPTS))
    return WolpertingerServer(target, lambda stream: Peer(Speaker.SERVER, stream, chosen), tls=tls, limits=limits, listen=listen)


def _offering(options: Options | None, components: tuple[type | Offer, ...]) -> Options:
    """The options with these components.

    Raises UsageError now if one is declared wrongly, not when the first peer comes.
    """
    options = options or Options()
    options = msgspec.structs.replace(options, offers=(*options.offers, *components))
    declared(offers(options.offers))
    return options

"""YAMP live: `connect` makes a peer, `serve` one for each client, over any transport.

```
service = Service()
service.request("sum", lambda peer, call: sum(call.body))

async with serve("ws://127.0.0.1:8888", service) as server:
    async with connect(server.address) as peer:
        print(await peer.request("sum", [1, 2], timeout=1))
```
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from wirelake.errors import RemoteProtocolError
from wirelake.peers.admission import ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.server import Server
from wirelake.peers.yamp.group import Group, fan_out
from wirelake.peers.yamp.options import FailureHandler, Options
from wirelake.peers.yamp.outgoing_request import OutgoingRequest
from wirelake.peers.yamp.peer import Peer
from wirelake.peers.yamp.service import Call, EventHandler, ReceivedEvent, RequestHandler, Service
from wirelake.peers.yamp.udp_handshake import screen
from wirelake.protocols.yamp.events import Ended
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import DEFAULT_PORT
from wirelake.protocols.yamp.redirect import follow
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.transports import reach
from wirelake.transports.address import Target, parse
from wirelake.transports.reach import SCHEMES
from wirelake.transports.tls import for_client, for_server

__all__ = [
    "Backoff",
    "Call",
    "Ended",
    "EventHandler",
    "FailureHandler",
    "Group",
    "Options",
    "OutgoingRequest",
    "Peer",
    "ReceivedEvent",
    "RequestHandler",
    "ServerLimits",
    "Service",
    "YampServer",
    "connect",
    "fan_out",
    "serve",
]


class YampServer(Server[Peer]):
    """A server that can send an event to all its peers."""

    def broadcast(self, uri: str, body: Any = None, *, to: Callable[[Peer], bool] | None = None) -> int:
        """YAMP-46: send an event to every peer, or to those chosen; says how many got it.

        For some of them use a `Group`.
        """
        return fan_out([peer for peer in self.peers if to is None or to(peer)], uri, body)


def connect(
    address: str,
    service: Service | None = None,
    *,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = None,
    follow_redirects: bool = False,
    may_follow: Callable[[Target], bool] | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """Connect to the server at tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path.

    Use it with `async with`.

    Without `reconnect` the client gives up when its connection ends. Redirects are followed only with `follow_redirects`, within the
    limits of YAMP-22; else the error carries the url. `may_follow` may reject a target, for instance one inside your network.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if not follow_redirects:
        for_client(target, tls)
    chosen = _serving(options, service)
    return Client(
        target,
        lambda stream: Peer(Speaker.CLIENT, stream, chosen),
        tls=tls,
        reconnect=reconnect,
        connect_timeout=connect_timeout,
        follow=partial(_follow, may_follow) if follow_redirects else None,
    )


def serve(
    address: str,
    service: Service | None = None,
    *,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits | None = None,
) -> YampServer:
    """Serve at tcp://, tls://, ws://, wss:// or udp://host:port (port 0: any free one), or unix:///path.

    Use it with `async with`.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    chosen = _serving(options, service)

    async def listen(target: Target, context: ssl.SSLContext | None, accepted: Callable[[reach.Arrival], None]) -> reach.Listener:
        return await reach.listen(target, context, accepted, lambda data: screen(chosen, data), chosen.origins)

    return YampServer(
        target, lambda stream: Peer(Speaker.SERVER, stream, chosen), tls=for_server(target, tls), limits=limits, listen=listen
    )


def _serving(options: Options | None, service: Service | None) -> Options:
    """The options with this service, if one is given."""
    options = options or Options()
    return options if service is None else msgspec.structs.replace(options, service=service)


def _follow(may_follow: Callable[[Target], bool] | None, url: str, target: Target, hops: int) -> Target:
    """YAMP-22: where a redirect leads, if it may be followed."""
    found = parse(follow(url, target.scheme, hops), DEFAULT_PORT, SCHEMES)
    if may_follow is not None and not may_follow(found):
        raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: the application does not want to go there")
    return found

"""YAMP live: a client makes a peer, a server many, over any of the transports.

```
service = Service()
service.request("sum", lambda call: sum(call.body))

async with serve("ws://127.0.0.1:8888", service) as server:
    async with connect(server.address) as peer:
        print(await peer.request("sum", [1, 2], timeout=1))
```
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from wirelake.errors import RemoteProtocolError, UsageError
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.client import Client
from wirelake.peers.server import Server
from wirelake.peers.yamp.group import Group, fan_out
from wirelake.peers.yamp.options import DEFAULT_LIVE, Live
from wirelake.peers.yamp.outgoing_request import OutgoingRequest
from wirelake.peers.yamp.peer import Peer
from wirelake.peers.yamp.service import Call, ReceivedEvent, Service
from wirelake.peers.yamp.udp_handshake import screen
from wirelake.protocols.yamp.faults import Fault
from wirelake.protocols.yamp.messages import DEFAULT_PORT
from wirelake.protocols.yamp.redirect import follow
from wirelake.protocols.yamp.state_machine import Speaker
from wirelake.transports import reach
from wirelake.transports.address import ENCRYPTED, Target, parse
from wirelake.transports.reach import SCHEMES

__all__ = [
    "DEFAULT_LIVE",
    "Call",
    "Group",
    "Live",
    "OutgoingRequest",
    "Peer",
    "ReceivedEvent",
    "ServerLimits",
    "Service",
    "YampServer",
    "connect",
    "fan_out",
    "serve",
]

_FOLLOWED: Final = ("tcp", "tls", "ws", "wss")


class YampServer(Server[Peer]):
    """A server that can tell everybody something."""

    def broadcast(self, uri: str, body: Any = None, *, to: Callable[[Peer], bool] | None = None) -> int:
        """YAMP-46: send an event to every peer, or to those chosen; says how many got it. For some of them use a `Group`."""
        return fan_out([peer for peer in self.peers if to is None or to(peer)], uri, body)


def connect(
    address: str,
    service: Service | None = None,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = None,
    follow_redirects: bool = False,
    may_follow: Callable[[Target], bool] | None = None,
    connect_timeout: float = 10.0,
) -> Client[Peer]:
    """A client of the server at tcp://, tls://, ws://, wss:// or udp://host:port, or unix:///path; use it with `async with`.

    Redirects are followed only if that is wanted, and within the limits of YAMP-22; else the url is in the error.
    `may_follow` is asked before each: return False to refuse a target, for instance one inside your network.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if tls is not None and target.scheme not in ENCRYPTED and not follow_redirects:
        raise UsageError(f"{target}: a TLS context belongs to tls:// or wss://")
    live = live if service is None else msgspec.structs.replace(live, service=service)
    return Client(
        target,
        lambda stream: Peer(Speaker.CLIENT, stream, live),
        tls=tls,
        reconnect=reconnect,
        connect_timeout=connect_timeout,
        follow=partial(_follow, may_follow) if follow_redirects else None,
    )


def serve(
    address: str,
    service: Service | None = None,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> YampServer:
    """A server at tcp://, tls://, ws://, wss:// or udp://host:port (port 0: any free one), or unix:///path; use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if (target.scheme in ENCRYPTED) != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and wss://, and with no other")
    live = live if service is None else msgspec.structs.replace(live, service=service)

    async def listen(target: Target, context: ssl.SSLContext | None, accepted: Callable[[reach.Arrival], None]) -> reach.Listener:
        return await reach.listen(target, context, accepted, lambda data: screen(live.session, data))

    return YampServer(target, lambda stream: Peer(Speaker.SERVER, stream, live), tls=tls, limits=limits, listen=listen)


def _follow(may_follow: Callable[[Target], bool] | None, url: str, target: Target, hops: int) -> Target:
    """YAMP-22: where a redirect leads, if it may be followed."""
    found = parse(follow(url, target.scheme, hops), DEFAULT_PORT, _FOLLOWED)
    if may_follow is not None and not may_follow(found):
        raise RemoteProtocolError(Fault.REDIRECT_REFUSED, f"{url!r}: the application does not want to go there")
    return found

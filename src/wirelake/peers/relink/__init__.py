"""Relink live: a connector keeps one link over connection after connection, a listener hosts the links of many endpoints at one address.

```
async def take(link):
    async for message in link:
        print(message.body)

demo = Endpoint("demo", connector_id_size=4)
async with serve("tcp://127.0.0.1:5047", {demo: take}) as listener:
    async with connect(listener.address, demo) as link:
        await link.channel(b"chan").send(b"hello")  # returns when it was consumed
```

It refuses to know the protocol's rules: links and sessions keep them.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.peers.admission import DEFAULT_SERVER_LIMITS, ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.relink.channels import Channel, Inbound, Receipt, Transaction
from wirelake.peers.relink.endpoints import Connection, Connector, LinkHandler, Listener
from wirelake.peers.relink.link import Link
from wirelake.peers.relink.options import DEFAULT_LIVE, Live
from wirelake.protocols.relink.messages import DEFAULT_PORT
from wirelake.protocols.relink.options import Endpoint, Options
from wirelake.transports.address import parse
from wirelake.transports.tls import client_context

__all__ = [
    "DEFAULT_LIVE",
    "Channel",
    "Connection",
    "Connector",
    "Endpoint",
    "Inbound",
    "Link",
    "LinkHandler",
    "Listener",
    "Live",
    "Receipt",
    "ServerLimits",
    "Transaction",
    "connect",
    "serve",
]

SCHEMES: Final = ("tcp", "tls", "unix")
RECONNECT: Final = Backoff(first=0.2, most=60.0)
"""RELINK-25: how a connector tries again unless told otherwise."""


def connect(
    address: str,
    endpoint: Endpoint,
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = RECONNECT,
    connect_timeout: float = 10.0,
) -> Connector:
    """A connector to the listener at `tcp://host:port`, `tls://host:port` or `unix:/path`; use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if tls is not None and target.scheme != "tls":
        raise UsageError(f"{target}: a TLS context belongs to tls://")
    context = (tls or client_context()) if target.scheme == "tls" else None
    return Connector(target, endpoint, _lively(live), tls=context, reconnect=reconnect, connect_timeout=connect_timeout)


def serve(
    address: str,
    endpoints: Mapping[Endpoint, LinkHandler],
    *,
    live: Live = DEFAULT_LIVE,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits = DEFAULT_SERVER_LIMITS,
) -> Listener:
    """A listener at `tcp://host:port`, `tls://host:port` or `unix:/path` (port 0: any that is free); use it with `async with`."""
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if (target.scheme == "tls") != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and none otherwise")
    if len({one.name for one in endpoints}) != len(endpoints):
        raise UsageError("two endpoints of one name")
    return Listener(target, endpoints, _lively(live), tls=tls, limits=limits)


def _lively(live: Live) -> Live:
    """RELINK-25: jitter needs chance, which the room does not have."""
    options: Options = msgspec.structs.replace(live.session, random=random.random)
    return msgspec.structs.replace(live, session=options)

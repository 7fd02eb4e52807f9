"""Relink live: a connector keeps one link; a listener hosts links of many endpoints.

A link lives over successive connections.

```
async def take(link):
    async for message in link:
        print(message.body)

demo = Endpoint("demo", connector_id_size=4)
async with serve("tcp://127.0.0.1:5047", {demo: take}) as listener:
    async with connect(listener.address, demo, reconnect=Backoff()) as link:
        await link.channel(b"chan").send(b"hello")  # returns when the peer has consumed it
```
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping
from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.peers.admission import ServerLimits
from wirelake.peers.backoff import Backoff
from wirelake.peers.relink.channels import Channel, Inbound, Receipt, Transaction
from wirelake.peers.relink.endpoints import Connection, Connector, LinkHandler, Listener
from wirelake.peers.relink.link import Link
from wirelake.peers.relink.options import EventHandler, Options
from wirelake.protocols.relink.events import MessageReceived, Outcome
from wirelake.protocols.relink.messages import DEFAULT_PORT
from wirelake.protocols.relink.options import Endpoint
from wirelake.transports.address import parse
from wirelake.transports.tls import for_client, for_server

__all__ = [
    "Backoff",
    "Channel",
    "Connection",
    "Connector",
    "Endpoint",
    "EventHandler",
    "Inbound",
    "Link",
    "LinkHandler",
    "Listener",
    "MessageReceived",
    "Options",
    "Outcome",
    "Receipt",
    "ServerLimits",
    "Transaction",
    "connect",
    "serve",
]

SCHEMES: Final = ("tcp", "tls", "unix")


def connect(
    address: str,
    endpoint: Endpoint,
    *,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    reconnect: Backoff | None = None,
    connect_timeout: float = 10.0,
) -> Connector:
    """Connect to the listener at `tcp://host:port`, `tls://host:port` or `unix:///path`.

    Use it with `async with`.

    With `reconnect`, the link continues over further connections (RELINK-25). Without it, the end of the connection ends the link.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    return Connector(
        target,
        endpoint,
        _with_jitter(options),
        tls=for_client(target, tls, ("tls",)),
        reconnect=reconnect,
        connect_timeout=connect_timeout,
    )


def serve(
    address: str,
    endpoints: Mapping[Endpoint, LinkHandler],
    *,
    options: Options | None = None,
    tls: ssl.SSLContext | None = None,
    limits: ServerLimits | None = None,
) -> Listener:
    """Listen at `tcp://host:port`, `tls://host:port` or `unix:///path` (port 0: any free one).

    Use it with `async with`.
    """
    target = parse(address, DEFAULT_PORT, SCHEMES)
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        raise UsageError("two endpoints have the same name")
    return Listener(target, endpoints, _with_jitter(options), tls=for_server(target, tls), limits=limits)


def _with_jitter(options: Options | None) -> Options:
    """RELINK-25: timers with random jitter, which the session must be given from outside."""
    return msgspec.structs.replace(options or Options(), random=random.random)

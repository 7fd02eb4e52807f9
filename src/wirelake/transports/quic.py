"""Datagrams inside QUIC (RFC 9221), encrypted, between nodes with trusted certificates.

Needs `wirelake[quic]`.

One socket serves all connections, incoming and outgoing, so a peer has one address in both directions. Clients prove their address
before any state is kept for them (RFC 9000, §8.1.2). A slow peer never holds up the others: datagrams it does not take in time are
dropped and counted. Connections live while a task waits in `receive`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from aioquic.buffer import Buffer  # type: ignore[attr-defined]  # its public name, which its types forget to export
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
)
from aioquic.quic.packet import (
    QuicHeader,
    QuicPacketType,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.quic.retry import QuicRetryTokenHandler

from wirelake.errors import UsageError
from wirelake.transports.datagram import BATCH, Address, Datagram, Endpoint

__all__ = ["LONGEST", "Quic", "QuicEndpoint"]

log = logging.getLogger("wirelake.quic")

LONGEST: Final = SMALLEST_MAX_DATAGRAM_SIZE - 60
"""Bytes of a datagram that surely fit into one packet of QUIC, beside its header and proof."""
FRAMES: Final = 65_536
"""RFC 9221, §3: the longest frame we say we accept."""
ID_SIZE: Final = 8
"""Bytes of our connection ids."""


class Quic(msgspec.Struct, frozen=True):
    """How connections are made and accepted; every limit has its name here. Times are seconds."""

    cert: Path
    """Our certificate, in PEM."""
    key: Path
    ca_file: Path | None = None
    """Authorities of the certificates of others; None: those of the system."""
    verify: bool = True
    """Whether the certificates of those we connect to are checked at all."""
    server_name: str = ""
    """The name in the certificates of others; empty: each has its address there."""
    idle_timeout: float = 60.0
    """How long a connection may be silent."""
    max_connections: int = 1024
    """Connections in all, incoming and outgoing."""
    max_connections_per_host: int = 256
    """Incoming connections of one remote host."""
    evict_after: float = 1.0
    """Seconds that the longest idle incoming connection must be idle before a full endpoint ends it for a new one.

    It is one of the new one's host if that host is full, else of the host with the most. One without a finished handshake goes first.
    """
    max_waiting: int = 256
    """Datagrams that wait for one peer, while it is being connected to or is slow."""
    max_queue: int = 8192
    """Datagrams that wait here to be handed out."""
    retry_after: float = 1.0
    """How long an address is not connected to again after a failure."""


class _Link:
    """One connection."""

    def __init__(self, connection: QuicConnection, remote: Address, now: float, *, is_ours: bool) -> None:
        self.connection = connection
        self.remote = remote
        self.is_ours = is_ours
        """We connected."""
        self.is_open = False
        """The handshake is finished."""
        self.active_at = now
        """When it carried something last."""
        self.waiting: deque[bytes] = deque()
        self.ids: set[bytes] = set()

    @property
    def pending(self) -> int:
        """Datagrams that did not leave yet. The library has no public name for those it holds back."""
        return len(self.waiting) + len(self.connection._datagrams_pending)


class QuicEndpoint:
    """Datagrams over the connections of one socket."""

    kind = "quic"

    def __init__(self, under: Endpoint, quic: Quic, alpn: str) -> None:
        self.local = under.local
        self._under = under
        self._quic = quic
        self._server = _configuration(quic, alpn, is_client=False)
        self._client = _configuration(quic, alpn, is_client=True)
        self._tokens = QuicRetryTokenHandler()
        self._by_id: dict[bytes, _Link] = {}
        self._by_place: dict[Address, _Link] = {}
        self._links: set[_Link] = set()
        self._not_before: dict[Address, float] = {}
        self._queue: deque[Datagram] = deque()
        self._lost = 0
        self._unsent = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._wait: asyncio.Timeout | None = None

    @property
    def lost(self) -> int:
        """See Endpoint."""
        return self._lost + self._under.lost

    @property
    def unsent(self) -> int:
        """See Endpoint."""
        return self._unsent + self._under.unsent

    async def receive(self) -> list[Datagram]:
        """See Endpoint."""
        while not self._queue and not self._closed:
            try:
                async with asyncio.timeout_at(self._deadline()) as self._wait:
                    arrived = await self._under.receive()
            except TimeoutError:
                self._tick()
                continue
            finally:
                self._wait = None
            if not arrived:
                break
            touched = {link: None for data, source in arrived if (link := self._take(data, source)) is not None}
            for link in touched:
                self._settle(link)
            self._tick()
            await asyncio.sleep(0)  # there may be no end of packets that carry nothing
        return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]

    def send(self, data: bytes, to: Address) -> bool:
        """See Endpoint; never false."""
        link = None if self._closed or len(data) > LONGEST else self._by_place.get(to) or self._connect(to)
        if link is None or link.pending >= self._quic.max_waiting:
            self._unsent += 1
        elif link.is_open:
            link.active_at = self._loop.time()
            link.connection.send_datagram_frame(data)
            self._settle(link)
        else:
            link.waiting.append(data)
        return True

    async def ready(self) -> None:
        """See Endpoint: it always takes or drops."""

    async def close(self) -> None:
        """See Endpoint; says goodbye on every connection."""
        if not self._closed:
            self._closed = True
            for link in list(self._links):
                link.connection.close()
                self._settle(link)
            self._queue.clear()
            await self._under.close()

    # Inside.

    def _connect(self, to: Address) -> _Link | None:
        """Begin to connect; None if that failed just now, or if there are too many connections."""
        now = self._loop.time()
        if self._not_before.get(to, now) > now or not self._make_capacity(None, now):
            return None
        # One of its own: it is read again when the other side asks for a second hello, and then no other name must stand there.
        mine = replace(self._client, server_name=self._quic.server_name or to[0])
        link = self._add(QuicConnection(configuration=mine), to, now, is_ours=True)
        self._by_place[to] = link
        link.connection.connect(to, now)
        self._settle(link)
        return link

    def _make_capacity(self, host: str | None, now: float) -> bool:
        """Whether there is space for one more connection, of this host or of our own; may end an incoming one for it."""
        quic = self._quic
        hosts = Counter(link.remote[0] for link in self._links if not link.is_ours)
        is_host_full = host is not None and hosts[host] >= quic.max_connections_per_host
        if not is_host_full and len(self._links) < quic.max_connections:
            return True
        if not is_host_full and hosts:
            host = hosts.most_common(1)[0][0]
        idle = [one for one in self._links if one.remote[0] == host and not one.is_ours and now - one.active_at >= quic.evict_after]
        if not idle:
            return False
        victim = min(idle, key=lambda one: (one.is_open, one.active_at))
        log.info("closed the connection of %s:%d: there are too many", *victim.remote)
        victim.connection.close()
        self._settle(victim)
        self._forget(victim)
        return True

    def _add(self, connection: QuicConnection, remote: Address, now: float, *, is_ours: bool) -> _Link:
        link = _Link(connection, remote, now, is_ours=is_ours)
        self._links.add(link)
        self._know(link, connection.host_cid)
        return link

    def _know(self, link: _Link, name: bytes) -> None:
        link.ids.add(name)
        self._by_id[name] = link

    def _take(self, data: bytes, source: Address) -> _Link | None:
        """Give a packet to the connection it belongs to; the first of a new one makes it."""
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=ID_SIZE)
        except ValueError:
            return None
        link = self._by_id.get(header.destination_cid) or self._accept(header, len(data), source)
        if link is not None:
            link.active_at = self._loop.time()
            try:
                link.connection.receive_datagram(data, source, link.active_at)
            except Exception:  # whatever a packet does to the library, it does it to one connection
                log.exception("a packet from %s:%d broke its connection", *source)
                self._forget(link)
                return None
        return link

    def _accept(self, header: QuicHeader, size: int, source: Address) -> _Link | None:
        """RFC 9000, §5.2.2, §8.1.2: keep no state of a client before it has proved its address."""
        if size < SMALLEST_MAX_DATAGRAM_SIZE or header.version is None or header.packet_type == QuicPacketType.VERSION_NEGOTIATION:
            return None
        if header.version not in self._server.supported_versions:
            spoken = self._server.supported_versions
            self._under.send(encode_quic_version_negotiation(header.destination_cid, header.source_cid, spoken), source)
            return None
        if header.packet_type != QuicPacketType.INITIAL:
            return None
        now = self._loop.time()
        if not header.token:
            name = os.urandom(ID_SIZE)
            token = self._tokens.create_token(
                address=source, original_destination_connection_id=header.destination_cid, retry_source_connection_id=name, now=now
            )
            retry = encode_quic_retry(header.version, name, header.source_cid, header.destination_cid, token)
            self._under.send(retry, source)
            return None
        try:
            first = self._tokens.validate_token(address=source, destination_cid=header.destination_cid, token=header.token, now=now)
        except ValueError:
            return None
        if not self._make_capacity(source[0], now):
            log.info("refused a connection from %s:%d: there are too many", *source)
            return None
        connection = QuicConnection(
            configuration=self._server,
            original_destination_connection_id=first,
            retry_source_connection_id=header.destination_cid,
        )
        link = self._add(connection, source, now, is_ours=False)
        self._know(link, header.destination_cid)
        return link

    def _settle(self, link: _Link) -> None:
        """After every call: drain the events, then the output."""
        connection = link.connection
        while (event := connection.next_event()) is not None:
            match event:
                case DatagramFrameReceived():
                    self._arrived(event.data, link.remote)
                case ConnectionIdIssued():
                    self._know(link, event.connection_id)
                case ConnectionIdRetired():
                    link.ids.discard(event.connection_id)
                    self._by_id.pop(event.connection_id, None)
                case HandshakeCompleted():
                    self._opened(link)
                case ConnectionTerminated():
                    self._ended(link, event)
        for data, to in connection.datagrams_to_send(self._loop.time()):
            self._under.send(data, to)
        timer = connection.get_timer()
        if self._wait is not None and timer is not None and link in self._links and not self._wait.expired():
            when = self._wait.when()
            if when is None or timer < when:
                self._wait.reschedule(timer)

    def _arrived(self, data: bytes, source: Address) -> None:
        if len(self._queue) >= self._quic.max_queue:
            self._lost += 1
        else:
            self._queue.append((data, source))

    def _opened(self, link: _Link) -> None:
        link.is_open = True
        other = self._by_place.get(link.remote)
        if other is None or not other.is_open:
            self._by_place[link.remote] = link
            if other is not None and other is not link:  # both connected at the same time: what waits there goes out here
                link.waiting.extend(other.waiting)
                other.waiting.clear()
        while link.waiting:
            link.connection.send_datagram_frame(link.waiting.popleft())

    def _forget(self, link: _Link) -> None:
        self._links.discard(link)
        for name in link.ids:
            self._by_id.pop(name, None)
        if self._by_place.get(link.remote) is link:
            del self._by_place[link.remote]
        self._unsent += link.pending

    def _ended(self, link: _Link, event: ConnectionTerminated) -> None:
        self._forget(link)
        if not link.is_open:
            log.warning("no QUIC connection with %s:%d: %s (%d)", *link.remote, event.reason_phrase or "no reason given", event.error_code)
            if len(self._not_before) >= self._quic.max_connections:
                self._not_before.clear()
            self._not_before[link.remote] = self._loop.time() + self._quic.retry_after

    def _deadline(self) -> float | None:
        return min((timer for link in self._links if (timer := link.connection.get_timer()) is not None), default=None)

    def _tick(self) -> None:
        now = self._loop.time()
        for link in list(self._links):
            timer = link.connection.get_timer()
            if timer is not None and timer <= now:
                link.connection.handle_timer(now)
                self._settle(link)


def _configuration(quic: Quic, alpn: str, *, is_client: bool) -> QuicConfiguration:
    made = QuicConfiguration(
        alpn_protocols=[alpn],
        connection_id_length=ID_SIZE,
        idle_timeout=quic.idle_timeout,
        is_client=is_client,
        max_datagram_frame_size=FRAMES,
    )
    try:
        if not is_client:
            made.load_cert_chain(quic.cert, quic.key)
        elif not quic.verify:
            made.verify_mode = ssl.CERT_NONE
        elif quic.ca_file is not None:
            made.load_verify_locations(str(quic.ca_file))
    except (OSError, ValueError) as reason:
        raise UsageError(f"cannot use certificate {quic.cert} with key {quic.key}: {reason}") from None
    return made

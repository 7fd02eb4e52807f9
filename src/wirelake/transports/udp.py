"""Datagrams over UDP, IPv4 or IPv6, unicast or multicast, on plain sockets.

The event loop watches the sockets. Datagrams are read in batches into a queue of our own: the queue of the system is small, and a burst
would overflow it. Datagrams that the system dropped are counted where it reports them (Linux).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
import sys
from collections import deque
from typing import Final

import msgspec

from wirelake.errors import UsageError
from wirelake.transports.datagram import BATCH, Address, Datagram
from wirelake.transports.tcp import plain

__all__ = ["MAX_QUEUE", "NO_GROUPS", "SOCKET_BUFFER", "Multicast", "UdpEndpoint", "family_of", "is_multicast", "listen", "resolve"]

log = logging.getLogger("wirelake.udp")

LARGEST: Final = 65_535
"""Bytes in a datagram, at most."""
SOCKET_BUFFER: Final = 4 * 1024 * 1024
"""Bytes the system is asked to hold for us, each way; it may give less."""
MAX_QUEUE: Final = 8192
"""Datagrams that wait here to be handed out; the system's own buffer comes before that."""
SO_MEMINFO: Final = 55
"""Linux: what a socket's memory is used for, nine numbers of 32 bits; Python has no name for it."""
_MEMINFO: Final = struct.Struct("=9I")
_DROPS: Final = 8
"""The index of the number of datagrams dropped because a buffer was full."""


class Multicast(msgspec.Struct, frozen=True):
    """Which groups to listen to, and how what is sent to groups travels."""

    groups: tuple[Address, ...] = ()
    """Each a multicast address and a port, of the family of the endpoint."""
    interface: str = ""
    """The name of a network interface (`eth0`); empty: the one the system chooses."""
    ttl: int = 1
    """How many networks it may cross; 1 stays in its own."""
    loop: bool = True
    """Whether nodes of this machine receive it, too."""


NO_GROUPS: Final = Multicast()


class UdpEndpoint:
    """One socket to send from and to listen at, and one more for each group."""

    kind = "udp"

    def __init__(self, sockets: list[socket.socket], max_queue: int = MAX_QUEUE) -> None:
        self.local: Address = _address(sockets[0].getsockname())
        self.family = sockets[0].family
        self._sockets = sockets
        self._main = sockets[0]
        self._max_queue = max_queue
        self._queue: deque[Datagram] = deque()
        self._lost = 0
        self._unsent = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    @property
    def lost(self) -> int:
        """See Endpoint; 0 where the system does not report it."""
        return self._lost + sum(map(_dropped, self._sockets))

    @property
    def unsent(self) -> int:
        """See Endpoint."""
        return self._unsent

    async def receive(self) -> list[Datagram]:
        """See Endpoint."""
        while not self._closed:
            for sock in self._sockets:
                self._pull(sock)
            if self._queue:
                return [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]
            self._reading = self._loop.create_future()
            try:
                for sock in self._sockets:
                    self._loop.add_reader(sock, _wake, self._reading)
                await self._reading
            finally:
                self._reading = None
                for sock in self._sockets:
                    self._loop.remove_reader(sock)
        return []

    def send(self, data: bytes, to: Address) -> bool:
        """See Endpoint."""
        if self._closed:
            self._unsent += 1
            return True
        try:
            self._main.sendto(data, to)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as reason:  # no route, too long, forbidden: packets to other addresses still go out
            self._unsent += 1
            log.debug("cannot send %d bytes to %s: %s", len(data), to, plain(reason))
        return True

    async def ready(self) -> None:
        """See Endpoint."""
        if self._closed:
            return
        if self._writing is None:
            self._writing = self._loop.create_future()
            self._loop.add_writer(self._main, _wake, self._writing)
        waited = self._writing
        try:
            await asyncio.shield(waited)
        finally:
            if self._writing is waited:
                self._writing = None
                self._loop.remove_writer(self._main)

    async def close(self) -> None:
        """See Endpoint."""
        self.abort()

    def abort(self) -> None:
        """Close without waiting for anything; there is nothing to wait for."""
        self._closed = True
        self._lost = self.lost
        for waiting in (self._reading, self._writing):
            if waiting is not None:
                _wake(waiting)
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
            sock.close()
        self._sockets = []

    def _pull(self, sock: socket.socket) -> None:
        """Read waiting datagrams, as many as the queue takes."""
        queue, receive, free = self._queue, sock.recvfrom, range(self._max_queue - len(self._queue))
        try:
            if sock.family == socket.AF_INET:  # host and port are what the system gives
                for _ in free:
                    queue.append(receive(LARGEST))
            else:
                for _ in free:
                    data, name = receive(LARGEST)
                    queue.append((data, _address(name)))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as reason:  # some systems report that an earlier datagram was not received
            log.debug("receiving: %s", plain(reason))


async def listen(
    host: str,
    port: int,
    *,
    multicast: Multicast = NO_GROUPS,
    socket_buffer: int = SOCKET_BUFFER,
    max_queue: int = MAX_QUEUE,
) -> UdpEndpoint:
    """An endpoint at a host and port (0: any that is free); raises OSError."""
    family, local = await _resolve(host, port)
    sockets: list[socket.socket] = []
    try:
        sockets.append(_open(family, socket_buffer))
        sockets[0].bind(local)
        if multicast.groups:
            _send_by(sockets[0], multicast)
        for group in multicast.groups:
            if not is_multicast(group[0]):
                raise UsageError(f"{group[0]} is no multicast address")
            sockets.append(sock := _open(family, socket_buffer))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several nodes of one machine may listen to one group
            sock.bind((*group, 0, _interface(multicast.interface)) if family == socket.AF_INET6 else group)
            _join(sock, group[0], multicast.interface)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return UdpEndpoint(sockets, max_queue)


async def resolve(host: str, port: int, family: int = socket.AF_UNSPEC) -> Address:
    """The first address of a host, in the family that is wanted; raises OSError."""
    try:
        socket.inet_pton(family, host)
    except OSError:
        return _address((await _resolve(host, port, family))[1])
    return (host, port)  # a literal address: no lookup, which would take a thread


def family_of(host: str) -> int:
    """The family of an address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def is_multicast(host: str) -> bool:
    """Whether an address is that of a group; a name is none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_multicast
    except ValueError:
        return False


async def _resolve(host: str, port: int, family: int = socket.AF_UNSPEC) -> tuple[int, tuple[object, ...]]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
    except ValueError as reason:
        raise OSError(f"{host!r} is no host name: {reason}") from None
    return found[0][0], found[0][4]


def _open(family: int, buffer: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return sock


def _send_by(sock: socket.socket, multicast: Multicast) -> None:
    """How what this socket sends to groups travels."""
    index = _interface(multicast.interface)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, multicast.ttl)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, int(multicast.loop))
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, multicast.ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, int(multicast.loop))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _mreqn(b"\0" * 4, index))


def _join(sock: socket.socket, group: str, interface: str) -> None:
    index = _interface(interface)
    if sock.family == socket.AF_INET6:
        wanted = socket.inet_pton(socket.AF_INET6, group.partition("%")[0]) + struct.pack("@I", index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, wanted)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _mreqn(socket.inet_aton(group), index))


def _mreqn(group: bytes, index: int) -> bytes:
    """A group and the number of an interface, as ip(7) wants them."""
    return group + b"\0" * 4 + struct.pack("@i", index)


def _interface(name: str) -> int:
    """The number of an interface; 0 lets the system choose."""
    if not name:
        return 0
    try:
        return socket.if_nametoindex(name)
    except OSError:
        raise UsageError(f"there is no network interface {name!r}") from None


def _address(name: tuple[object, ...]) -> Address:
    """Host and port; the scope of a link-local address stays with its host."""
    host, port, *more = name
    if len(more) == 2 and more[1] and "%" not in str(host):
        host = f"{host}%{more[1]}"
    return (str(host), int(str(port)))


def _dropped(sock: socket.socket) -> int:
    """How many datagrams the system dropped at this socket, if it reports that."""
    if sys.platform != "linux":
        return 0
    try:
        told: int = _MEMINFO.unpack(sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))[_DROPS]
    except (OSError, struct.error):  # an old kernel
        return 0
    return told


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)

"""A live Event Mesh node: a session on a datagram endpoint.

It publishes, subscribes, tracks peers and relays.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wirelake.errors import ConnectFailed, SessionClosed, UsageError
from wirelake.peers import private_file, trust_file
from wirelake.peers.datagram_recording import DatagramRecording
from wirelake.peers.event_mesh.options import NodeMetrics, Options
from wirelake.peers.notices import NOTICE
from wirelake.peers.subscriptions import Subscription, Subscriptions
from wirelake.protocols.event_mesh.events import Delivered, Dropped, Peer, PeerChanged, SessionEvent
from wirelake.protocols.event_mesh.messages import DEFAULT_PORT, Event, Field
from wirelake.protocols.event_mesh.options import Address
from wirelake.protocols.event_mesh.packet.builder import Credentials
from wirelake.protocols.event_mesh.packet.values import field_of
from wirelake.protocols.event_mesh.security.encryption import Sealer
from wirelake.protocols.event_mesh.send_queue import Outgoing
from wirelake.protocols.event_mesh.session import Now, Session
from wirelake.transports import udp
from wirelake.transports.address import Target, parse
from wirelake.transports.datagram import Endpoint
from wirelake.transports.tcp import plain

if TYPE_CHECKING:
    from wirelake.transports.quic import Quic

__all__ = ["Handler", "Node", "Value", "node"]

log = logging.getLogger("wirelake.event_mesh")

SCHEMES: Final = ("udp", "quic", "memory")
ALPN: Final = "event-mesh/1"
"""What peers agree on inside QUIC; the specification names the transport and nothing else."""
SLICE: Final = 16
"""Datagrams taken from the session before the transport is asked whether it takes more.

At most so many overtake an urgent one.
"""
BULK: Final = 2000
"""Datagrams received in bulk after which a node has its scanner compiled, in a thread: see `peers.driver`."""
MANY: Final = 64
"""Datagrams of one read that count as bulk."""
SHARE: Final = 64
"""Events published before others get their turn, if there is no reason to wait."""

Value = str | float | bytes | dict[str, Any] | Field
"""What an event can carry; a number with a fraction is a float, another an integer."""
Handler = Callable[["Node", Delivered], Awaitable[None] | None]
"""Receives the events of a subscription, one after the other."""
OpenEndpoint = Callable[[Target, udp.Multicast], Awaitable[Endpoint]]


class Node:
    """A node that runs inside `async with`. The protocol has no message for leaving."""

    def __init__(
        self,
        target: Target,
        open_endpoint: OpenEndpoint,
        *,
        credentials: Credentials,
        options: Options | None = None,
        peers: Iterable[Target] = (),
        groups: Iterable[Target] = (),
    ) -> None:
        self.target = target
        self.options = options = options or Options()
        self.credentials = credentials
        self._open_endpoint = open_endpoint
        self._peers = tuple(peers)
        self._groups = tuple(groups)
        self._session: Session | None = None
        self._endpoint: Endpoint | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._handlers: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._recording: DatagramRecording | None = None
        self._subscriptions: Subscriptions[Delivered] = Subscriptions(options.max_inbox)
        self._held: deque[Outgoing] = deque()
        """Datagrams taken from the session that the transport did not accept yet."""
        self._unblocking: asyncio.Task[None] | None = None
        self._published = 0
        self._failed = 0

    # What its user sees.

    @property
    def address(self) -> str:
        """Where it listens, as another node wants it among its peers."""
        return str(self.target)

    @property
    def node_id(self) -> bytes:
        """§4.2: the id of this node."""
        return self.credentials.node_id

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The nodes that sent something recently."""
        return self._working().peers

    @property
    def metrics(self) -> NodeMetrics:
        """What was counted so far; also after the end."""
        if self._session is None or self._endpoint is None:
            raise SessionClosed("the node was never in use: enter it with `async with`")
        subscriptions = self._subscriptions
        return NodeMetrics(
            self._session.metrics, self._endpoint.lost, self._endpoint.unsent, subscriptions.lost, subscriptions.unheard, self._failed
        )

    def subscribe(self, pattern: str, handler: Handler | None = None) -> Subscription[Delivered]:
        """Receive events whose names match (see `protocols.topics`), with `async for` or by a handler.

        A handler is called for one event after the other. The name of an event that is sealed and not opened here is empty. A handler that
        raises is logged, and goes on with the next.
        """
        self._working()
        subscription = self._subscriptions.add(pattern)
        if handler is not None and self._group is not None:
            self._handlers = [task for task in self._handlers if not task.done()]
            self._handlers.append(self._group.create_task(self._handle(subscription, handler)))
        return subscription

    def __aiter__(self) -> AsyncIterator[Delivered]:
        """All events, from now on; `subscribe` chooses by name."""
        return aiter(self.subscribe(">"))

    async def publish(
        self,
        name: str,
        *values: Value,
        urgent: bool = False,
        compressed: bool = False,
        sealer: Sealer | None = None,
        to: Iterable[str] | None = None,
        created: float | None = None,
    ) -> int:
        """§3.3: publish an event to all nodes, or to some addresses; returns its message id.

        `created` is the time of an event that was stored before it is sent, in seconds since 1970.
        Waits while the queue is full. Raises LocalProtocolError for an event that does not fit into one packet.
        """
        fields = [field_of(value) for value in values]
        chosen = None if to is None else [await self._resolve(parse(_full(one), DEFAULT_PORT, SCHEMES)) for one in to]
        while True:
            session = self._working()
            places = session.places if chosen is None else chosen
            capacity, most = session.capacity(urgent), session.capacity(urgent, empty=True)
            if capacity >= len(places) or len(places) > most:  # in the second case the session says so
                break
            self._flush()
            if self._unblocking is not None:
                await asyncio.wait([self._unblocking])
        message_id = session.publish(
            name, fields, now=self._now(), urgent=urgent, compressed=compressed, sealer=sealer, to=chosen, created=created
        )
        self._flush()
        self._published += 1
        if self._published % SHARE == 0:
            await asyncio.sleep(0)  # who only publishes must let others live
        return message_id

    # Life.

    async def __aenter__(self) -> Node:
        if self._group is not None:
            raise UsageError("the node is in use already")
        options = self.options
        if options.trust is not None and options.trust_path is not None:
            raise UsageError("give a trust store or the path of one, not both")
        store = trust_file.load(options.trust_path) if options.trust_path is not None else options.trust
        places = [(group.host, group.port) for group in self._groups]
        try:
            self._endpoint = await self._open_endpoint(self.target, msgspec.structs.replace(options.multicast, groups=tuple(places)))
        except OSError as reason:
            raise ConnectFailed(f"cannot listen at {self.target}: {plain(reason)}") from None
        try:
            self.target = self.target._replace(port=self._endpoint.local[1])
            peers = [await self._resolve(peer) for peer in self._peers]
            self._session = Session(self.credentials, options, draw=options.draw, store=store, peers=peers, groups=places)
            if options.replay_path is not None and options.replay_path.exists():
                self._session.restore_replays(private_file.load_bytes(options.replay_path))
            if options.recorder is not None:
                self._recording = DatagramRecording(
                    options.recorder, "event_mesh", self._endpoint.kind, self._endpoint.local, options.max_recorded
                )
            self._group = await asyncio.TaskGroup().__aenter__()
        except BaseException:
            await self._endpoint.close()
            raise
        self._tasks = [self._group.create_task(self._listen(self._endpoint, self._session))]
        if options.replay_path is not None and options.replay_save_interval is not None:
            self._tasks.append(
                self._group.create_task(self._keep_replays(self._session, options.replay_path, options.replay_save_interval))
            )
        self._session.start(self._now())
        self._settle(self._session)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        group, self._group = self._group, None
        if self._timer is not None:
            self._timer.cancel()
        self._subscriptions.close()
        try:
            if self._handlers and kind is None:
                await asyncio.wait(self._handlers, timeout=self.options.linger)
        finally:
            for task in (*self._tasks, *self._handlers, *([self._unblocking] if self._unblocking else [])):
                task.cancel()
            if self._recording is not None:
                self._recording.close()
            if self._endpoint is not None:
                await self._endpoint.close()
            try:
                if group is not None:
                    await group.__aexit__(None, None, None)
            finally:
                if self._session is not None and self.options.replay_path is not None:
                    private_file.save_bytes(self.options.replay_path, self._session.export_replays())

    # Inside.

    def _working(self) -> Session:
        if self._group is None or self._session is None:
            raise SessionClosed("the node is not in use: enter it with `async with`")
        return self._session

    def _now(self) -> Now:
        return Now(asyncio.get_running_loop().time(), self.options.clock())

    async def _resolve(self, target: Target) -> Address:
        if target.scheme != self.target.scheme:
            raise UsageError(f"{target}: a node at {self.target} cannot reach it")
        if target.scheme == "memory":
            return (target.host, target.port)
        family = udp.family_of(self.target.host if self._endpoint is None else self._endpoint.local[0])
        try:
            return await udp.resolve(target.host, target.port, family)
        except OSError as reason:
            raise ConnectFailed(f"cannot find {target} from {self.target}: {plain(reason)}") from None

    async def _listen(self, endpoint: Endpoint, session: Session) -> None:
        left = BULK
        while datagrams := await endpoint.receive():
            if left > 0 and len(datagrams) >= MANY:
                left -= len(datagrams)
                if left <= 0:
                    asyncio.get_running_loop().run_in_executor(None, session.compile)
            if self._recording is not None:
                self._recording.received(datagrams)
            session.receive_all(datagrams, self._now())
            self._settle(session)
            await asyncio.sleep(0)  # there may be no end of datagrams, and subscribers want to read them

    async def _keep_replays(self, session: Session, path: Path, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            saving = asyncio.ensure_future(asyncio.to_thread(private_file.save_bytes, path, session.export_replays()))
            try:
                await asyncio.shield(saving)
            except asyncio.CancelledError:
                await asyncio.wait([saving])  # so that it cannot take the place of what is saved at the end
                raise
            except UsageError as reason:  # a full disk is no reason to stop listening; it is raised at the end
                log.warning("the replay cache was not saved: %s", reason)

    def _settle(self, session: Session) -> None:
        """After every call: drain the output, drain the events, read the deadline again."""
        self._flush()
        for event in session.events():
            if isinstance(event, Delivered) and isinstance(event.message, Event):
                self._subscriptions.deliver(event.name or "", event)
            else:
                self._report(event)
        deadline = session.deadline
        if deadline is not None and (self._timer is None or self._timer.when() > deadline):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(deadline, self._tick, session)

    def _tick(self, session: Session) -> None:
        self._timer = None
        if self._group is not None:
            session.tick(self._now())
            self._settle(session)

    def _flush(self) -> None:
        """Give the transport what the session has to say, as long as it takes it."""
        session, endpoint, held = self._session, self._endpoint, self._held
        if session is None or endpoint is None or self._unblocking is not None:
            return
        while held or session.waiting:
            if not held:
                held.extend(session.output(SLICE))
            while held:
                data, to = held[0]
                if not endpoint.send(data, to):
                    if self._group is not None:
                        self._unblocking = self._group.create_task(self._unblock(endpoint))
                    return
                held.popleft()
                if self._recording is not None:
                    self._recording.sent(data, to)

    async def _unblock(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.ready()
        finally:
            self._unblocking = None
        self._flush()

    def _report(self, event: SessionEvent) -> None:
        """Everything but events of the mesh: to callbacks, and one line into the log."""
        call: Callable[[Node, Any], None] | None = None
        match event:
            case Dropped():
                call = self.options.on_drop
                log.log(NOTICE, f"dropped a packet from %s: %s ({event.fault.name})", event.source[:2], event.fault.text)
            case PeerChanged():
                call = self.options.on_peer
                log.info("node %s was %s, is %s", event.peer.node_id.hex(), event.before.name, event.peer.state.name)
            case Delivered():
                call = self.options.on_other
            case _:
                log.warning("send queue full: a datagram to %s:%d is dropped", *event.to)
        if call is not None:
            try:
                call(self, event)
            except Exception:
                self._failed += 1
                log.exception("a callback failed for %s", type(event).__name__)

    async def _handle(self, subscription: Subscription[Delivered], handler: Handler) -> None:
        async for event in subscription:
            try:
                result = handler(self, event)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                self._failed += 1
                log.exception("the handler of %s failed for event %r", subscription.pattern, event.name)


def node(
    address: str = "udp://0.0.0.0",
    *,
    credentials: Credentials | None = None,
    options: Options | None = None,
    peers: Iterable[str] = (),
    groups: Iterable[str] = (),
    endpoint: Endpoint | None = None,
) -> Node:
    """A node at `udp://host:port` or `quic://host:port` (port 0: any free port).

    Use it with `async with`. `peers` are addresses to send to from the start, `groups` multicast addresses to send to and listen on.
    Without `credentials` it has a random node id and proves nothing. An `endpoint` that is open already takes the place of the address.
    """

    chosen = options or Options()

    async def open_endpoint(target: Target, multicast: udp.Multicast) -> Endpoint:
        if endpoint is not None:
            return endpoint
        opened = await udp.listen(
            target.host, target.port, multicast=multicast, socket_buffer=chosen.socket_buffer, max_queue=chosen.max_received
        )
        return opened if chosen.quic is None else _inside_quic(opened, chosen.quic)

    mine = parse(_full(address), DEFAULT_PORT, SCHEMES) if endpoint is None else Target(endpoint.kind, *endpoint.local)
    if endpoint is None and (mine.scheme == "memory" or (mine.scheme == "quic") != (chosen.quic is not None)):
        raise UsageError(f"{mine}: udp:// needs nothing, quic:// needs certificates (`Options.quic`), memory:// its endpoint")
    others = [parse(_full(peer, mine.scheme), DEFAULT_PORT, SCHEMES) for peer in peers]
    joined = [parse(_full(group, mine.scheme), DEFAULT_PORT, SCHEMES) for group in groups]
    who = Credentials(chosen.draw(16)) if credentials is None else credentials
    return Node(mine, open_endpoint, credentials=who, options=chosen, peers=others, groups=joined)


def _inside_quic(opened: udp.UdpEndpoint, quic: Quic) -> Endpoint:
    from wirelake.transports.quic import QuicEndpoint  # noqa: PLC0415 - an extra that most nodes live without

    return QuicEndpoint(opened, quic, ALPN)


def _full(address: str, scheme: str = "udp") -> str:
    return address if "://" in address else f"{scheme}://{address}"

"""A live Relink link: the object its user holds while connections come and go."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Protocol

from wirelake.errors import ConnectionLost, RequestTimeout, SessionClosed
from wirelake.peers.driver import Driver
from wirelake.peers.notices import NOTICE
from wirelake.peers.relink.channels import Channel, Inbound, Receipt
from wirelake.peers.relink.options import Options
from wirelake.protocols.relink.events import (
    ChannelClosed,
    LinkLost,
    LinkShutdown,
    MessageReceived,
    MessagesResolved,
    Noticed,
    PeerClosedChannel,
    PeerShutdown,
    Ponged,
    SessionEvent,
    TombstonesForgotten,
    TombstonesRefused,
)
from wirelake.protocols.relink.faults import Fault
from wirelake.protocols.relink.link.core import LinkCore as Core
from wirelake.protocols.relink.link.inbox import REFUSALS
from wirelake.protocols.relink.options import Endpoint
from wirelake.protocols.relink.session import Session

__all__ = ["Carrier", "Link"]

log = logging.getLogger("wirelake.relink")

_INCARNATION: Final = attrgetter("incarnation")
_PARTS: Final = attrgetter("parts")

LOOK: Final = 8192
"""Bytes sent between two looks at whether the connection can take more."""


class Carrier(Protocol):
    """The connection a link has now."""

    @property
    def driver(self) -> Driver: ...
    @property
    def session(self) -> Session: ...


class Link:
    """One side of a link, over as many connections as it takes."""

    def __init__(self, core: Core, options: Options) -> None:
        self.core = core
        self.options = options
        self.generation = 0
        """Grows when the link is lost: what was sent before is not on the link that is there now."""
        self.noticed: dict[Fault, int] = {}
        """How often each tolerated rule was broken."""
        self.lost: LinkLost | None = None
        """The last time the link was lost, if ever."""
        self.is_transactional = core.endpoint.transactional(core.speaker)
        """What we send is committed or rolled back."""
        self._loop = asyncio.get_running_loop()
        self._carrier: Carrier | None = None
        self._channels: dict[bytes, Channel] = {}
        self._inbounds: dict[bytes, Inbound] = {}
        self._rest = Inbound(self, automatic=options.automatic)
        self.outstanding = 0
        """Bytes of our messages that are not consumed."""
        self.max_outstanding = options.max_outstanding
        """Above that, senders wait."""
        self._max_unconsumed = options.max_unconsumed
        self._unlooked = 0
        self._capacity = asyncio.Event()
        self._waiting = 0
        self._held = 0
        self._is_held = False
        self._pings: dict[int, asyncio.Future[None]] = {}
        self._over = asyncio.Event()
        self._handlers: dict[type[SessionEvent], Callable[[Any], None]] = {
            MessageReceived: self.deliver,
            MessagesResolved: self._on_resolved,
            ChannelClosed: self._on_channel_closed,
            PeerClosedChannel: self._on_peer_closed,
            LinkLost: self._on_lost,
            LinkShutdown: self._on_shutdown,
            TombstonesForgotten: self._on_forgotten,
            TombstonesRefused: self._on_refused,
            PeerShutdown: self._on_peer_shutdown,
            Ponged: self._on_pong,
            Noticed: self._on_noticed,
        }

    # For the user.

    @property
    def endpoint(self) -> Endpoint:
        """What both sides agreed on."""
        return self.core.endpoint

    @property
    def is_connected(self) -> bool:
        """There is a connection now; without, messages wait for the next."""
        return self.core.is_connected

    @property
    def is_over(self) -> bool:
        """Both sides have shut down, or the link is lost for good."""
        return self.core.is_over

    def channel(self, channel_id: bytes = b"") -> Channel:
        """A channel to send on."""
        if channel_id not in self._channels:
            self._channels[channel_id] = Channel(self, channel_id)
        return self._channels[channel_id]

    async def multicast(self, ids: Sequence[bytes], *parts: bytes) -> list[Receipt]:
        """§2.3: one message on many channels, sent once; a receipt for each, in their order."""
        needed = Counter(ids)
        while self.is_heavy or any(self.core.outbox.free_window(one) < count <= self.options.window for one, count in needed.items()):
            await self._wait_for_change()
        size = sum(map(len, parts))
        receipts = [Receipt(one, number, size) for one, number in zip(ids, self.core.multicast(ids, parts), strict=True)]
        for receipt in receipts:
            self.channel(receipt.channel).adopt(receipt)
        if self.sent(size * len(receipts)):
            await self.ready()
        return receipts

    def __aiter__(self) -> AsyncIterator[MessageReceived]:
        """Messages of all channels that are not read with `inbound`."""
        return self._rest

    def batches(self) -> AsyncIterator[list[MessageReceived]]:
        """The same, all that wait at a time: see `Inbound.batches`."""
        return self._rest.batches()

    def inbound(self, channel_id: bytes, *, automatic: bool | None = None) -> Inbound:
        """What arrives on one channel of the peer, from now on."""
        if channel_id not in self._inbounds:
            self._inbounds[channel_id] = Inbound(self, automatic=self.options.automatic if automatic is None else automatic)
        return self._inbounds[channel_id]

    def consume(self, message: MessageReceived) -> None:
        """§3.1: mark a message as consumed, which is acknowledged to the peer.

        With transactions: it was processed.
        """
        inbox = self.core.inbox
        is_news = inbox.consume(message)  # at the time of the last receive: at worst it is acknowledged a little early
        if is_news or self._is_held or inbox.is_shut:
            self._consumed()

    def consume_many(self, messages: Sequence[MessageReceived]) -> None:
        """Mark messages as consumed, in order: quick if they are of one channel."""
        if len(set(map(_INCARNATION, messages))) > 1:
            for message in messages:
                self.consume(message)
        elif messages and (self.core.inbox.consume_run(messages) or self._is_held or self.core.inbox.is_shut):
            self._consumed()

    def refuse(self, message: MessageReceived) -> None:
        """§3.2: a committed message could not be processed."""
        self.core.settle(message, self._loop.time(), success=False)
        self._consumed()

    def _consumed(self) -> None:
        if self._is_held:
            self._balance()
        if self.core.inbox.is_shut:
            self._wake_readers()
        self.wake()

    async def ping(self, timeout: float | None = None) -> float:
        """§3.4: seconds until the pong.

        RELINK-25: fails at once without a connection, and when the connection is lost meanwhile.
        """
        if self._carrier is None or not self.is_connected:
            raise SessionClosed("there is no connection now")
        began = self._loop.time()
        answered: asyncio.Future[None] = self._loop.create_future()
        self._pings[self._carrier.session.ping(began)] = answered
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                await answered
        except TimeoutError:
            raise RequestTimeout(f"no pong in {timeout:g} s") from None
        return self._loop.time() - began

    async def close(self, timeout: float | None = None) -> bool:
        """§3.6: shut down; returns whether both sides finished in time.

        Waits until the peer has consumed all messages of ours and shuts down, too. After the timeout the link is given up, and each
        unresolved message is reported.
        """
        self.core.shutdown()
        self.wake()
        try:
            async with asyncio.timeout(self.options.close_timeout if timeout is None else timeout):
                await self._over.wait()
        except TimeoutError:
            self.abandon()
            return False
        return self.lost is None or self.lost.replaced or not self.lost.unresolved

    def abandon(self) -> None:
        """Give the link up at once: what is unresolved stays so."""
        if not self.is_over:
            self.core.lose(Fault.ABANDONED)
            self.core.is_over = True
            self.drain()
        if self._carrier is not None:
            self._carrier.session.bye("the link was given up")
            self._carrier.driver.hurry(self.options.linger)
            self.wake()

    async def leave(self) -> None:
        """Acknowledge what was consumed, and give the link up without waiting for what the peer still sends."""
        for inbound in (self._rest, *self._inbounds.values()):
            inbound.report()
        self.core.inbox.acknowledge()
        self.core.shutdown()
        self.wake()
        await asyncio.sleep(0)  # what was acknowledged is sent
        self.abandon()

    async def over(self) -> None:
        """Wait for the end of the link; raises if it was lost."""
        await self._over.wait()
        self.raise_if_lost()

    # For channels.

    @property
    def is_silent(self) -> bool:
        """§3.6: the peer has shut down and everything it sent is consumed: nothing more will come."""
        inbox = self.core.inbox
        return inbox.is_shut and not inbox.unconsumed and (not inbox.channels or not self.endpoint.id_sizes[self.core.speaker.other])

    @property
    def is_heavy(self) -> bool:
        """Too many bytes are outstanding to send more."""
        return self.outstanding >= self.max_outstanding

    def is_full(self, channel_id: bytes) -> bool:
        """RELINK-17: no message can be sent on this channel now."""
        return self.is_heavy or self.core.outbox.free_window(channel_id) <= 0

    async def wait_for_capacity(self, channel_id: bytes) -> None:
        """Wait until a message can be sent on this channel."""
        while self.is_full(channel_id):
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        if self.is_over:
            self.raise_if_lost()
            raise SessionClosed("the link is over")
        self._capacity.clear()
        await self._capacity.wait()

    def sent(self, size: int) -> bool:
        """Something was sent; says whether the sender should wait with `ready`."""
        self.outstanding += size
        if self._carrier is None:
            return False
        driver = self._carrier.driver
        self._unlooked += size
        if driver.flush_planned and self._unlooked < LOOK:
            return False
        driver.wake(self._unlooked)
        self._unlooked = 0
        return driver.busy

    async def ready(self) -> None:
        """Back-pressure: returns soon unless the peer reads too slowly."""
        if self._carrier is not None:
            await self._carrier.driver.ready()

    def wake(self) -> None:
        """Send what the link has queued."""
        if self._carrier is not None:
            self._carrier.driver.wake()

    def taken_many(self, messages: Sequence[MessageReceived]) -> None:
        """Messages were read from their queue."""
        self._waiting -= len(messages)
        self._held -= _size_of_all(messages) if self._waiting else self._held
        if self._is_held:
            self._balance()

    def raise_if_lost(self) -> None:
        """Say how the link ended, if it did not end well."""
        if self.is_over and self.lost is not None and not self.lost.replaced:
            raise ConnectionLost(f"the link was lost: {self.lost.fault.text}")

    @property
    def unread(self) -> int:
        """Messages that arrived and were not read."""
        return self._waiting

    # For connections.

    @property
    def held(self) -> int:
        """Bytes of messages that wait to be read."""
        return self._held

    def attach(self, carrier: Carrier) -> None:
        """A handshake agreed on this link; the last one wins (RELINK-11)."""
        if self._carrier is not None:
            self._carrier.driver.wake()  # it was superseded and has to notice
        self._carrier = carrier
        self._is_held = False
        self._balance()

    def detach(self, carrier: Carrier) -> None:
        """A connection ended; the link lives on."""
        if self._carrier is carrier:
            self._carrier = None
            for answered in self._pings.values():
                if not answered.done():
                    answered.set_exception(ConnectionLost("the connection was lost before the pong"))
                    answered.exception()  # retrieved, so that asyncio does not warn if no task awaits it
            self._pings.clear()

    def handle(self, event: SessionEvent) -> None:
        """Something happened."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        if self.options.on_event is not None and not isinstance(event, MessageReceived | MessagesResolved | Ponged):
            try:
                self.options.on_event(self, event)
            except Exception:
                log.exception("on_event failed for %s", type(event).__name__)

    def deliver(self, message: MessageReceived) -> None:
        """A message arrived."""
        (self._inbounds.get(message.channel, self._rest) if self._inbounds else self._rest).put(message)
        self._waiting += 1
        self._held += len(message.parts[0]) if len(message.parts) == 1 else _size(message)
        if self._waiting >= self.options.max_inbox or self._held >= self.options.max_held or self._unconsumed_too_much:
            self._balance()

    def deliver_many(self, messages: list[MessageReceived]) -> None:
        """Messages arrived."""
        if self._inbounds:
            for message in messages:
                self.deliver(message)
            return
        self._rest.put_many(messages)
        self._waiting += len(messages)
        self._held += _size_of_all(messages)
        if self._waiting >= self.options.max_inbox or self._held >= self.options.max_held or self._unconsumed_too_much:
            self._balance()

    def drain(self) -> None:
        """Handle events that arose without a connection."""
        for event in self.core.events():
            self.handle(event)

    # Inside.

    def _on_resolved(self, event: MessagesResolved) -> None:
        self.outstanding -= self._channels[event.channel].resolve(event.last - event.first + 1, event.outcome)
        self._capacity.set()

    def _on_channel_closed(self, event: ChannelClosed) -> None:
        self._channels[event.channel].closed()

    def _on_peer_closed(self, event: PeerClosedChannel) -> None:
        if event.channel in self._inbounds:
            self._inbounds[event.channel].close()

    def _on_lost(self, event: LinkLost) -> None:
        log.warning("link %d was lost with %d messages unresolved: %s", event.link_id, len(event.unresolved), event.fault.text)
        self.lost = event
        self.generation += 1
        for one in event.unresolved:
            self.outstanding -= self._channels[one.channel].resolve(1, one.outcome)
        for channel in self._channels.values():
            channel.closed()
        self._capacity.set()
        if self.is_over:
            self._end()

    def _on_forgotten(self, event: TombstonesForgotten) -> None:
        text = "link %d: the peer closes connections that announce closed channels: %d of them are forgotten (RELINK-22)"
        log.warning(text, self.core.id, len(event.channels))

    def _on_refused(self, event: TombstonesRefused) -> None:
        log.warning(
            "link %d: the peer closed %d connections right after %d closed channels were announced (RELINK-22). If it never accepts that, "
            'use Options(tombstones="forgiving") for this peer; messages on a channel whose closing was lost may then arrive twice',
            *(self.core.id, REFUSALS, len(event.channels)),
        )

    def _on_shutdown(self, _: LinkShutdown) -> None:
        self._end()

    def _on_peer_shutdown(self, _: PeerShutdown) -> None:
        self._wake_readers()

    def _on_pong(self, event: Ponged) -> None:
        answered = self._pings.pop(event.ping, None)
        if answered is not None and not answered.done():
            answered.set_result(None)

    def _on_noticed(self, event: Noticed) -> None:
        self.noticed[event.fault] = self.noticed.get(event.fault, 0) + 1
        log.log(NOTICE, f"{event.fault.name} tolerated on link %s: %s", self.core.id, event.fault.text)

    def _end(self) -> None:
        for channel in self._channels.values():
            channel.closed()
        self._wake_readers()
        self._capacity.set()
        self._over.set()

    def _wake_readers(self) -> None:
        for inbound in (self._rest, *self._inbounds.values()):
            inbound.wake()

    @property
    def _unconsumed_too_much(self) -> bool:
        # What is undecided waits for a decision behind it: to stop reading because of that would be to wait for ever.
        return self.core.inbox.waiting * 2 >= self._max_unconsumed

    def _balance(self) -> None:
        """RELINK-17: stop reading while too much waits, go on when half of it is gone."""
        if self._carrier is None:
            return
        share = 2 if self._is_held else 1
        is_too_much = self._waiting * share >= self.options.max_inbox or self._held * share >= self.options.max_held
        is_too_much = is_too_much or self._unconsumed_too_much
        if is_too_much and not self._is_held:
            self._is_held = True
            self._carrier.driver.hold()
        elif self._is_held and not is_too_much:
            self._is_held = False
            self._carrier.driver.go_on()


def _size(message: MessageReceived) -> int:
    return sum(map(len, message.parts))


def _size_of_all(messages: Sequence[MessageReceived]) -> int:
    return sum(map(len, chain.from_iterable(map(_PARTS, messages))))

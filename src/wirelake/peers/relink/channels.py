"""Channels of a live Relink link: sending, receiving, receipts and transactions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from wirelake.errors import DeliveryFailed, LocalProtocolError, RequestTimeout, UsageError
from wirelake.protocols.relink.events import MessageReceived, Outcome
from wirelake.protocols.relink.faults import Fault

if TYPE_CHECKING:
    from wirelake.peers.relink.link import Link

__all__ = ["Channel", "Inbound", "Receipt", "Transaction"]

GOOD: Final = (Outcome.CONSUMED, Outcome.COMMITTED)
"""What a sender hopes for."""
MOST: Final = 4096
"""Messages of one `post_many` that are sent before the connection is asked whether it takes more."""


class Receipt(msgspec.Struct, eq=False, gc=False):
    """What becomes of a message, or of all messages of one `post_many`: `await` it for the outcome.

    Up to a window of them is open, which the garbage collector would look through for 0.3 to 0.7 µs a message. A circle through `waiter`
    lasts no longer than the task that waits.
    """

    channel: bytes
    sequence: int
    """The number of the message, of several of the last."""
    size: int
    count: int = 1
    """Messages without an outcome."""
    outcome: Outcome | None = None
    """None so long as it is open; of several messages, the first that went wrong decides."""
    waiter: asyncio.Future[None] | None = None
    """Set when there is an outcome and a task waits for it."""
    failure: Outcome | None = None
    """The first bad outcome of one of several messages."""

    def __await__(self) -> Generator[Any, None, Outcome]:
        while self.outcome is None:
            if self.waiter is None:
                self.waiter = asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self.waiter)
        return self.outcome

    def resolve(self, count: int, outcome: Outcome) -> bool:
        """For the channel: so many messages have this outcome; returns whether that was all of them."""
        self.count -= count
        if outcome not in GOOD and self.failure is None:
            self.failure = outcome
        if self.count:
            return False
        self.outcome = self.failure or outcome
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return True


class Channel:
    """§3.1: a channel we send on; the first message opens it."""

    def __init__(self, link: Link, channel_id: bytes) -> None:
        self.id = channel_id
        self._link = link
        self._core = link.core
        self._pending: deque[Receipt] = deque()
        self._closed: asyncio.Future[None] | None = None
        self._deciding = asyncio.Lock()

    @property
    def name(self) -> str:
        """The id in hex digits, for texts."""
        return self.id.hex() or "(the only one)"

    @property
    def pending(self) -> int:
        """Messages whose outcome is open."""
        return sum(receipt.count for receipt in self._pending)

    async def send(self, *parts: bytes, timeout: float | None = None) -> None:
        """Send a message and wait until the peer has consumed it, over as many connections as that takes.

        On a channel with transactions it is committed by itself. Raises DeliveryFailed if the link is lost or the peer could not process
        it, RequestTimeout if it takes too long; the peer may still consume the message then.
        """
        try:
            async with asyncio.timeout(timeout):
                if self._link.is_transactional:
                    async with self.transaction() as transaction:
                        await transaction.post(*parts)
                    return
                outcome = await (await self.post(*parts))
        except TimeoutError:
            raise RequestTimeout(f"a message on channel {self.name} was not consumed in {timeout:g} s") from None
        if outcome not in GOOD:
            raise DeliveryFailed(outcome, f"a message on channel {self.name} was lost with its link: {outcome.value}")

    async def post(self, *parts: bytes) -> Receipt:
        """Send a message without waiting for its outcome.

        Waits while the window is full (RELINK-17) or the peer reads too slowly.
        """
        link = self._link
        if link.outstanding >= link.max_outstanding:  # `is_heavy`, without a call for every message
            await link.wait_for_capacity(self.id)
        try:
            number = self._core.send(self.id, parts)
        except LocalProtocolError as refused:
            if refused.fault is not Fault.WINDOW_FULL:
                raise
            await link.wait_for_capacity(self.id)
            number = link.core.send(self.id, parts)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        receipt = Receipt(self.id, number, size)
        self._pending.append(receipt)
        if link.sent(size):
            await link.ready()
        return receipt

    async def post_many(self, bodies: Sequence[bytes]) -> Receipt:
        """Send messages of one part each, in order, without waiting for their outcome; the receipt is for all of them.

        This is several times faster than as many calls of `post`. Waits as `post` does; cancelled then, it may have sent the first of them.
        """
        if not bodies:
            raise UsageError("no messages to send: `bodies` is empty")
        link, first = self._link, 0
        receipt = None
        while first < len(bodies):
            await link.wait_for_capacity(self.id)
            batch = bodies[first : first + min(self._core.outbox.free_window(self.id), MOST)]
            number, size = self._core.send_many(self.id, batch), sum(map(len, batch))
            if receipt is None or not receipt.count:
                receipt = Receipt(self.id, number, size, len(batch), failure=receipt.failure if receipt is not None else None)
                self._pending.append(receipt)
            else:
                receipt.sequence, receipt.size, receipt.count = number, receipt.size + size, receipt.count + len(batch)
            first += len(batch)
            if link.sent(size):
                await link.ready()
        return cast(Receipt, receipt)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """§3.2: what is posted inside is committed at the end, or rolled back if the block raises.

        Leaving the block waits for the peer's results, and raises DeliveryFailed unless all of it was processed.
        """
        if not self._link.is_transactional:
            raise UsageError("this direction of the link has no transactions: see Endpoint")
        async with self._deciding:  # decisions are ranges: two transactions cannot be mixed on one channel
            transaction = Transaction(self, self._link)
            try:
                yield transaction
            except BaseException:
                transaction.rollback()
                raise
            await transaction.commit()

    async def close(self) -> None:
        """§3.3: no more messages; waits until the peer has consumed all of them.

        The next message opens the channel again.
        """
        core = self._link.core
        if self.id not in core.outbox.channels:
            return
        if self._closed is None:
            core.close(self.id)
            self._closed = asyncio.get_running_loop().create_future()
            self._link.wake()
        await asyncio.shield(self._closed)

    # For the link.

    def adopt(self, receipt: Receipt) -> None:
        """A message that was sent on several channels is on this one, too."""
        self._pending.append(receipt)

    def resolve(self, count: int, outcome: Outcome) -> int:
        """The outcome of the oldest open messages; says how many bytes are done with them."""
        size, pending = 0, self._pending
        while count:
            receipt = pending[0]
            if receipt.count == 1 and receipt.waiter is None:  # by far the commonest
                receipt.count, receipt.outcome = 0, receipt.failure or outcome
                size += receipt.size
                count -= 1
                pending.popleft()
                continue
            part = min(count, receipt.count)
            count -= part
            if receipt.resolve(part, outcome):
                size += receipt.size
                pending.popleft()
        return size

    def closed(self) -> None:
        """The peer confirmed the closing, or the link is lost."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._closed = None


class Transaction:
    """§3.2: messages that stand or fall together."""

    def __init__(self, channel: Channel, link: Link) -> None:
        self._channel = channel
        self._link = link
        self._generation = link.generation
        self.receipts: list[Receipt] = []

    async def post(self, *parts: bytes) -> Receipt:
        """Send a message that the peer keeps until the end of the transaction."""
        self._require_link()
        receipt = await self._channel.post(*parts)
        self.receipts.append(receipt)
        self._require_link()
        return receipt

    async def commit(self) -> None:
        """For the channel: let the peer process all of it, and wait for how that went."""
        if not self.receipts:
            return
        self._require_link()
        self._link.core.commit(self._channel.id, self.receipts[-1].sequence)
        self._link.wake()
        outcomes = [await receipt for receipt in self.receipts]
        bad = next((one for one in outcomes if one not in GOOD), None)
        if bad is not None:
            raise DeliveryFailed(bad, f"a transaction of {len(outcomes)} messages went wrong: {bad.value}")

    def rollback(self) -> None:
        """For the channel: let the peer forget all of it."""
        if self.receipts and self._generation == self._link.generation and self.receipts[-1].outcome is None:
            self._link.core.rollback(self._channel.id, self.receipts[-1].sequence)
            self._link.wake()

    def _require_link(self) -> None:
        if self._generation != self._link.generation:
            raise DeliveryFailed(Outcome.FAILED, "the link was lost in the middle of a transaction: nothing of it was processed")


class Inbound:
    """`async for message in inbound`: messages of one channel of the peer, or of all other channels.

    With automatic consumption a message is consumed when the next one is requested. The link learns of all of a turn of the loop together:
    at its end, or before the reader waits. That is 0.4 µs a message instead of 0.75, and nothing is sent within a turn anyway.
    """

    def __init__(self, link: Link, *, automatic: bool) -> None:
        self._link = link
        self._automatic = automatic
        self._queue: deque[MessageReceived] = deque()
        self._changed = asyncio.Event()
        self._is_waiting = False
        self._loop = asyncio.get_running_loop()
        self._handed: list[MessageReceived] = []
        """Messages that were handed out, the last of them not consumed yet."""
        self._known = 0
        """How many of them the link knows to be read."""
        self._is_report_planned = False
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[MessageReceived]:
        """Messages, until the peer closes the channel or the link is over."""
        return self

    async def __anext__(self) -> MessageReceived:
        """The next message; the one before is consumed."""
        queue, handed = self._queue, self._handed
        if not queue:
            self._report(len(handed))
            await self._more()
        message = queue.popleft()
        handed.append(message)
        if not queue:
            self.report()
        elif not self._is_report_planned:
            self._is_report_planned = True
            self._loop.call_soon(self.report)
        return message

    async def batches(self) -> AsyncIterator[list[MessageReceived]]:
        """All messages that wait, again and again: faster than one by one where many arrive.

        With automatic consumption those of a batch are consumed when the next batch is requested.
        """
        while True:
            if not self._queue:
                try:
                    await self._more()
                except StopAsyncIteration:
                    return
            messages = list(self._queue)
            self._queue.clear()
            self._link.taken_many(messages)
            yield messages
            if self._automatic:
                self._link.consume_many(messages)

    async def _more(self) -> None:
        """Wait for a message; raises what says that there will be none."""
        while not self._queue:
            if self._is_closed:
                self._is_closed = False
                raise StopAsyncIteration
            if self._link.is_over or self._link.is_silent:
                self._link.raise_if_lost()
                raise StopAsyncIteration
            self._changed.clear()
            self._is_waiting = True
            await self._changed.wait()

    def _report(self, count: int) -> None:
        """Tell the link which messages were read, and that the first so many are consumed."""
        handed = self._handed
        self._link.taken_many(handed[self._known :])
        if self._automatic:
            if count > 0:
                self._link.consume_many(handed[:count])
            del handed[: max(count, 0)]
        else:
            handed.clear()
        self._known = len(handed)

    # For the link.

    def report(self) -> None:
        """Tell the link what was read; all of it but the last message is consumed."""
        self._is_report_planned = False
        self._report(len(self._handed) - 1)

    def put(self, message: MessageReceived) -> None:
        """A message arrived."""
        self._queue.append(message)
        if self._is_waiting:
            self._is_waiting = False
            self._changed.set()

    def put_many(self, messages: list[MessageReceived]) -> None:
        """Messages arrived."""
        self._queue += messages
        if self._is_waiting:
            self._is_waiting = False
            self._changed.set()

    def clear(self) -> None:
        """Drop what was not read: the link was given up."""
        self._queue.clear()

    def close(self) -> None:
        """No more messages on this channel, until it is opened again."""
        self._is_closed = True
        self._changed.set()

    def wake(self) -> None:
        """Something changed: look again."""
        self._changed.set()

"""A live wolpertinger peer: a session on a stream. Both sides may call and offer components."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any, get_args

import msgspec

from wirelake.errors import RequestFailed, RequestTimeout, UsageError, WirelakeError
from wirelake.peers import key_log
from wirelake.peers.live_peer import LivePeer
from wirelake.peers.subscriptions import Subscription, Subscriptions
from wirelake.peers.wolpertinger.components import Offer, declared, methods_of, name_of, offers
from wirelake.peers.wolpertinger.incoming_calls import IncomingCalls
from wirelake.peers.wolpertinger.options import Options
from wirelake.peers.wolpertinger.outgoing_calls import OutgoingCalls
from wirelake.peers.wolpertinger.remote import Remote, TypedRemote
from wirelake.protocols.wolpertinger.events import (
    Authenticated,
    AuthenticationFailed,
    CallDone,
    CallFailed,
    CallReceived,
    CallReturned,
    Ended,
    ErrorReceived,
    Failure,
    KeysAgreed,
    Noticed,
    PeerUnavailable,
    SessionEvent,
    TrustAwarded,
    TrustChanged,
    WasReset,
)
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.layer2.calls import ErrorCode
from wirelake.protocols.wolpertinger.options import Options as SessionOptions
from wirelake.protocols.wolpertinger.session import Session
from wirelake.protocols.wolpertinger.state_machine import Speaker
from wirelake.protocols.wolpertinger.trust.state import TrustState
from wirelake.transports.stream import Stream

__all__ = ["Peer", "PeerEvent"]

log = logging.getLogger("wirelake.wolpertinger")

NAMES = {
    ErrorReceived: "error",
    TrustChanged: "trust",
    TrustAwarded: "award",
    WasReset: "reset",
    PeerUnavailable: "unavailable",
    Noticed: "notice",
}
"""What a subscriber may ask for."""


_CALLS = (CallReceived, CallReturned, CallDone, CallFailed)
"""Events of calls: no subscriber gets them."""


class PeerEvent(msgspec.Struct, frozen=True):
    """Something that answers no call, as a subscriber sees it."""

    name: str
    """`error`, `trust`, `award`, `reset`, `unavailable` or `notice`."""
    event: Any
    """The event of the session."""

    @property
    def urgent(self) -> bool:
        """Nothing is more urgent than anything else."""
        return False


class Peer(LivePeer[Session, int, Ended, Fault]):
    """What one may do with a connection, and what it does by itself.

    `peer.Core` is the peer's component of that name.

    It opens with the level that `Options.authenticate` asks for.
    """

    def __init__(self, speaker: Speaker, stream: Stream, options: Options | None = None) -> None:
        options = options or Options()
        offered = offers(options.offers)
        session = Session(speaker, _session_options(stream, options, offered), draw=os.urandom)
        is_client, rate = speaker is Speaker.CLIENT, options.max_inflated_rate
        super().__init__("wolpertinger", session, stream, options, is_client=is_client, gather=True, inflated_rate=rate)
        self.speaker = speaker
        self.options = options
        self._calling = OutgoingCalls(self._session, self._driver, options.max_outgoing_calls)
        self._answering = IncomingCalls(self, self._session, self._driver, self._work, offered)
        self._subscriptions: Subscriptions[PeerEvent] = Subscriptions(options.max_inbox)
        self._authenticating: asyncio.Future[int] | None = None
        self._steps = asyncio.Lock()
        """One authentication after the other."""
        self._last = self._loop.time()
        self._handlers = {
            CallReceived: self._answering.take,
            CallReturned: self._calling.returned,
            CallDone: self._calling.done,
            CallFailed: self._calling.failed,
            Authenticated: self._on_authenticated,
            AuthenticationFailed: self._on_refused,
            KeysAgreed: self._on_keys,
            WasReset: self._on_reset,
            Noticed: self._on_notice,
            Ended: self._on_ended,
        }
        if not self._watches_idle:  # else each event has to be timed
            calls = {kind: handler for kind, handler in self._handlers.items() if kind in _CALLS}
            self._driver.handlers = dict.fromkeys(get_args(SessionEvent), self._handle) | calls
            self._note_progress((CallReceived, CallReturned, CallDone, ErrorReceived))

    # For the user.

    @property
    def trust_state(self) -> TrustState:
        """The trust levels of both sides, and whether messages are encrypted."""
        return self._session.trust_state

    def __getattr__(self, name: str) -> Remote:
        if not name[:1].isupper():
            raise AttributeError(f"a peer has no attribute {name!r}; components are written with a capital, or peer.remote({name!r})")
        return Remote(self._calling.call, name)

    def remote(self, component: str | type) -> Any:
        """A component of the peer, by name, or by a class that declares what it offers."""
        if isinstance(component, str):
            return Remote(self._calling.call, component)
        return TypedRemote(self._calling.call, name_of(component), methods_of(component))

    async def call(self, component: str, name: str, *parameters: Any, returns: bool = True, timeout: float | None = None) -> Any:
        """RemoteMethodCall: wait for the response, or for the delivery of a call that has none (WOLP-19).

        Raises RequestFailed with the code of a RemoteError, RequestTimeout, DeliveryFailed, RemoteProtocolError for a response that cannot
        be read, RequestCancelled after a reset, or what ended the session. Cancelling gives the call up here; the peer gets no message
        about it.
        """
        return await self._calling.call(component, name, parameters, returns=returns, timeout=timeout)

    async def authenticate(self, level: int, *, user: str = "", password: str = "") -> int:
        """WOLP-22 to WOLP-26: go as far as this level; raises RequestFailed if the peer does not let us."""
        async with self._steps:
            try:
                async with asyncio.timeout(self.options.authentication_timeout):
                    try:
                        return await self._authenticate(level, user, password)
                    except RequestFailed as reason:
                        if reason.body != ErrorCode.ENCRYPTION:
                            raise
                    # WOLP-22: over XMPP it may still hold keys of a session that is gone; it has just forgotten them.
                    return await self._authenticate(level, user, password)
            except RequestTimeout:  # one step was not answered
                raise
            except (TimeoutError, asyncio.CancelledError) as reason:  # half of it is nothing to rely on
                if self._session.ended is None:
                    self.reset()
                if isinstance(reason, asyncio.CancelledError):
                    raise
                raise RequestTimeout(f"no authentication in {self.options.authentication_timeout:g} s") from None

    def __aiter__(self) -> AsyncIterator[PeerEvent]:
        """All events beside calls, from now on; `subscribe` chooses by name."""
        return aiter(self.subscribe())

    def send_error(self, component: str, code: int) -> None:
        """RemoteError that answers no call."""
        self._session.send_error(component, code, self._driver.now)
        self._driver.wake()

    def reset(self) -> None:
        """WOLP-28: send a reset, and forget levels, keys and calls; the connection stays open."""
        self._session.reset(self._driver.now)
        self._driver.wake()

    def subscribe(self, pattern: str = "*") -> Subscription[PeerEvent]:
        """`async for happened in peer.subscribe("error")`.

        A slow reader loses some; `lost` counts them.
        """
        return self._subscriptions.add(pattern)

    async def run(self) -> None:
        """Live until the connection is closed; methods that still run then are cancelled."""
        async with self._work.group:
            opening = self._work.group.create_task(self._open())
            idle = self._work.group.create_task(self._watch_idle())
            try:
                await self._drive()
            finally:
                opening.cancel()
                idle.cancel()
            self._work.cancel_answering()
        del self._answering  # it refers to this object

    # Inside.

    async def _open(self) -> None:
        """What has to be done before the first call."""
        level = self.options.authenticate
        try:
            reached = await self.authenticate(level, user=self.options.user, password=self.options.password) if level else 0
        except WirelakeError as reason:
            if not self._opened.done():
                self._opened.set_exception(reason)
                self._opened.exception()  # retrieved, so that asyncio does not warn if no task awaits it
            self.close(str(reason))
        else:
            if not self._opened.done():
                self._opened.set_result(reached)

    async def _authenticate(self, level: int, user: str, password: str) -> int:
        self._require_going()
        self._authenticating = waiting = self._loop.create_future()
        try:
            self._session.authenticate(level, self._driver.now, user=user, password=password)
            self._driver.wake()
            return int(await waiting)
        finally:
            self._authenticating = None

    @property
    def _watches_idle(self) -> bool:
        return self.options.idle_timeout is not None and self.stream.kind == "xmpp" and self.speaker is Speaker.SERVER

    async def _watch_idle(self) -> None:
        """Over XMPP the end of a peer is not visible: close an idle session."""
        limit = self.options.idle_timeout
        if limit is None or not self._watches_idle:
            return
        while (left := self._last + limit - self._loop.time()) > 0 or self._session.serving:
            await asyncio.sleep(max(left, 1.0))
        self.close("nothing was said for a long time")

    def _handle(self, event: SessionEvent) -> None:
        self._last = self._loop.time()
        if (handler := self._handlers.get(type(event))) is not None:
            handler(event)
        if (name := NAMES.get(type(event))) is not None:
            self._subscriptions.deliver(name, PeerEvent(name, event))
            if self.options.on_event is not None:
                try:
                    self.options.on_event(self, event)
                except Exception:
                    log.exception("on_event failed for %s from %s", name, self.stream.remote)

    def _on_authenticated(self, event: Authenticated) -> None:
        if self._authenticating is not None and not self._authenticating.done():
            self._authenticating.set_result(event.level)

    def _on_refused(self, event: AuthenticationFailed) -> None:
        if self._authenticating is not None and not self._authenticating.done():
            self._authenticating.set_exception(_refusal(event))

    def _on_keys(self, event: KeysAgreed) -> None:
        if self.options.key_log is not None:
            try:
                key_log.append(self.options.key_log, event.keys)
            except UsageError as reason:
                log.error("the keys of the session with %s are not written down: %s", self.stream.remote, reason)

    def _on_reset(self, event: WasReset) -> None:
        log.info("the connection with %s was reset by %s", self.stream.remote, "us" if event.here else "the peer")
        self._work.cancel_answering()

    def _on_notice(self, event: Noticed) -> None:
        self._tolerate(event.fault, event.detail)

    def _on_ended(self, event: Ended) -> None:
        self._subscriptions.close()
        self._end(event, () if self._authenticating is None else (self._authenticating,))


def _refusal(event: AuthenticationFailed) -> WirelakeError:
    """Why a step failed, as what it was: an error of the peer, silence, or a refusal."""
    text = f"{event.step.value} failed: {event.fault.text}{f' ({event.why.value})' if event.why else ''}"
    if event.why in (Failure.TIMEOUT, Failure.UNDELIVERED):
        return RequestTimeout(text)
    return RequestFailed(event.code, text)


def _session_options(stream: Stream, options: Options, offered: tuple[Offer, ...]) -> SessionOptions:
    """The options for one peer: the components it may call, and whether its address is admitted."""
    host, admit = stream.remote[0], options.admit
    if options.admits is not None:
        try:
            admit = options.admits(host)
        except Exception:
            log.exception("admits failed for %s: the peer is not admitted", host)
            admit = False
    return msgspec.structs.replace(options, components=declared(offered), admit=admit, source=host)

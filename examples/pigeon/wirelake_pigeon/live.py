"""PIGEON/1 live: a session at work on a stream, as a client or in a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wirelake.capture.record.recorder import Recorder
from wirelake.peers.client import Client
from wirelake.peers.live_peer import LivePeer
from wirelake.peers.server import Server
from wirelake.transports.address import parse
from wirelake.transports.stream import Stream
from wirelake_pigeon.faults import Fault
from wirelake_pigeon.messages import DEFAULT_PORT
from wirelake_pigeon.options import Options as SessionOptions
from wirelake_pigeon.session import Acknowledged, Ended, NoteReceived, Opened, Session
from wirelake_pigeon.state_machine import Speaker

__all__ = ["Options", "Peer", "connect", "serve"]


class Options(SessionOptions, frozen=True, kw_only=True):
    """Options of a live peer; times are seconds."""

    on_note: Callable[[Peer, NoteReceived], None] | None = None
    max_in_flight: int = 1024
    max_inbox: int = 1024
    max_held: int = 1024 * 1024
    max_unsent: int = 1024 * 1024
    linger: float = 1.0
    stall_timeout: float = 60.0
    path_timeout: float | None = 120.0
    silence_timeout: float | None = 15.0
    recorder: Recorder | None = None


class Peer(LivePeer[Session, None, Ended, Fault]):
    """One end of a live session."""

    def __init__(self, speaker: Speaker, stream: Stream, options: Options) -> None:
        super().__init__("pigeon", Session(speaker, options), stream, options, is_client=speaker is Speaker.CLIENT)
        self._options = options
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._handlers = {
            Opened: self._on_opened,
            NoteReceived: self._on_note,
            Acknowledged: self._on_acknowledged,
            Ended: self._on_ended,
        }

    async def note(self, text: str) -> int:
        """Send a note, and wait for its acknowledgement; returns its number. Raises what ended the session."""
        self._require_going()
        number = self._session.note(text)
        self._acks[number] = self._loop.create_future()
        self._driver.wake(len(text))
        await self._acks[number]
        return number

    def _on_opened(self, _: Opened) -> None:
        self._opened.set_result(None)

    def _on_note(self, event: NoteReceived) -> None:
        if self._options.on_note is not None:
            self._options.on_note(self, event)

    def _on_acknowledged(self, event: Acknowledged) -> None:
        if (ack := self._acks.pop(event.number, None)) is not None:
            ack.set_result(None)

    def _on_ended(self, event: Ended) -> None:
        self._end(event, self._acks.values())
        self._acks.clear()


def connect(address: str, *, options: Options | None = None) -> Client[Peer]:
    """A client of the server at `tcp://host:port`; use it with `async with`."""
    chosen = options or Options()
    return Client(parse(address, DEFAULT_PORT), lambda stream: Peer(Speaker.CLIENT, stream, chosen))


def serve(address: str, *, options: Options | None = None) -> Server[Peer]:
    """A server at `tcp://host:port` (port 0: any free one); use it with `async with`."""
    chosen = options or Options()
    return Server(parse(address, DEFAULT_PORT), lambda stream: Peer(Speaker.SERVER, stream, chosen))

"""WebSockets (RFC 6455) on top of any stream, with the `websockets` library.

It uses the library's protocol without I/O. What is sent as one message is one binary message, in fragments if it is large. What arrives is
a stream of bytes, whatever messages they came in (YAMP-14). So many messages that arrive together cost one call, and many that leave
together one write. Whole binary messages of moderate size are read and written by `frames.py`; all else is the library's.
"""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from wirelake.extras import library
from wirelake.transports.address import ENCRYPTED, Target
from wirelake.transports.frames import LARGEST, MASK, read, size_of, write
from wirelake.transports.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MAX_FRAME", "WebSocketStream", "accept", "connect"]

FRAGMENT: Final = LARGEST
"""Bytes of a frame we send at most: known peers take no more."""
MAX_FRAME: Final = 16 * 1024 * 1024 + 1024
"""Bytes of a frame we take at most: it is held until it is whole."""
SUBPROTOCOL: Final = "yamp"
"""YAMP-14: echoed if it is offered, never asked for."""
HEAD_END: Final = b"\r\n\r\n"
"""Ends the opening handshake of a side; frames follow."""
HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds a peer may take for the opening handshake."""
NORMAL: Final = 1000
"""The code of a close after which nothing is wrong."""
NOT_TEXT: Final = 1003
"""The code of a close because of a text message."""
PONG_RETRY: Final = 0.05
"""Seconds between two attempts to send a pong that waits because the peer does not read."""
_PONG: Final = b"\x8a"
"""The first byte of a pong frame."""


class WebSocketStream:
    """A WebSocket connection."""

    def __init__(self, inner: Stream, protocol: Any, kind: str, early: bytes = b"") -> None:
        self.kind = kind
        self.local = inner.local
        self.remote = inner.remote
        self._inner = inner
        self._protocol = protocol
        self._opcodes = _library("frames").Opcode
        self._open = _library("protocol").State.OPEN
        self._apply_mask = _library("frames").apply_mask
        self._is_server = protocol.side is _library("protocol").Side.SERVER
        self._tail = b""
        """The beginning of a frame that is not all there yet."""
        self._pong = b""
        """The pong to the newest ping, if it is not sent yet."""
        self._over = False
        """The peer sends no more, or nothing that we read."""
        self._unframed = 0
        """Bytes that the library has, and that belong to no frame it has told of: it is in the middle of one."""
        self.on_unfinished: Callable[[], None] = _nothing
        """See FramedStream."""
        self._early = self._take(early)
        """What came with the end of the opening handshake."""

    async def receive(self) -> bytes:
        """See Stream; empty messages are ignored, a text message ends the connection (YAMP-14)."""
        data, self._early = self._early, b""
        while not data and not self._over:
            if self._pong:  # the peer sends pings and does not read
                try:
                    async with asyncio.timeout(PONG_RETRY):
                        arrived = await self._inner.receive()
                except TimeoutError:
                    self._push()
                    continue
            else:
                arrived = await self._inner.receive()
            if arrived:
                data = self._take(arrived)
                self._push()
                if not data:
                    self.on_unfinished()
            else:
                self._protocol.receive_eof()
                self._over = True
        return data

    def send(self, data: bytes) -> None:
        """See Stream: one message."""
        self.send_messages([data])

    def send_messages(self, messages: list[bytes]) -> None:
        """See MessageStream: each is a binary message."""
        if self._protocol.state is not self._open:
            return
        self._push()
        frames: list[bytes] = []
        for message in messages:
            if len(message) <= FRAGMENT:
                frames.append(write(message, b"" if self._is_server else os.urandom(MASK), self._apply_mask))
            else:
                frames += self._fragments(message)
        self._inner.send(b"".join(frames))

    @property
    def unfinished(self) -> int:
        """See FramedStream."""
        return len(self._tail) + self._unframed

    def discard(self) -> None:
        """See FramedStream."""
        self._over, self._tail, self._unframed = True, b"", 0
        self._protocol.reader.discard()

    @property
    def congested(self) -> bool:
        """See Stream."""
        return self._inner.congested

    @property
    def unsent(self) -> int:
        """See Stream."""
        return self._inner.unsent

    @property
    def unacknowledged(self) -> int:
        """See Stream."""
        return self._inner.unacknowledged

    @property
    def abandoned(self) -> int:
        """See Stream."""
        return self._inner.abandoned

    async def drain(self) -> None:
        """See Stream."""
        await self._inner.drain()

    def finish(self) -> None:
        """See Stream: the closing handshake begins."""
        if self._protocol.state is self._open:
            self._protocol.send_close(NORMAL)
        self._push()

    def watch_path(self, seconds: float) -> None:
        """See Stream."""
        self._inner.watch_path(seconds)

    async def close(self) -> None:
        """See Stream."""
        self.finish()
        await self._inner.close()

    def abort(self) -> None:
        """See Stream."""
        self._inner.abort()

    # Inside.

    def _fragments(self, message: bytes) -> list[bytes]:
        self._protocol.send_binary(message[:FRAGMENT], fin=False)
        last = (len(message) - 1) // FRAGMENT * FRAGMENT
        for at in range(FRAGMENT, len(message), FRAGMENT):
            self._protocol.send_continuation(message[at : at + FRAGMENT], fin=at == last)
        pieces: list[bytes] = self._protocol.data_to_send()
        return pieces

    def _take(self, arrived: bytes) -> bytes:
        """The payload of arrived bytes.

        Simple frames are read here, unless the library is in the middle of a message.
        """
        if self._over:
            return b""
        if self._unframed or self._protocol.current_size is not None or self._protocol.state is not self._open:
            return self._give(arrived)
        whole = self._tail + arrived if self._tail else arrived
        pieces, at, is_simple = read(whole, self._is_server, self._apply_mask)
        self._tail = whole[at:] if is_simple else b""
        if not is_simple and at < len(whole):
            pieces.append(self._give(whole[at:]))
        return b"".join(pieces)

    def _give(self, data: bytes) -> bytes:
        """Let the library read; returns the payload of what it tells of."""
        self._unframed += len(data)
        self._protocol.receive_data(data)
        return self._payload()

    def _payload(self) -> bytes:
        """The bytes of the binary messages that arrived."""
        pieces: list[bytes] = []
        opcodes = self._opcodes
        for frame in self._protocol.events_received():
            self._unframed -= size_of(len(frame.data), self._is_server)
            if frame.opcode is opcodes.BINARY or frame.opcode is opcodes.CONT:
                pieces.append(frame.data)
            elif frame.opcode is opcodes.TEXT:
                self._protocol.fail(NOT_TEXT, "binary messages only")
                self._over = True
                break
            elif frame.opcode is opcodes.CLOSE:
                self._over = True
        if self._protocol.parser_exc is not None:
            self._over = True
        return b"".join(pieces)

    def _push(self) -> None:
        """Give the stream below what the protocol has to say; an empty piece is the end of it.

        RFC 6455, section 5.5.3: of several pings only the newest needs an answer. While the peer does not read, that answer waits here, so
        that a flood of pings fills no memory.
        """
        pieces: list[bytes] = []
        for piece in self._protocol.data_to_send():
            if piece.startswith(_PONG):
                self._pong = piece
            else:
                pieces.append(piece)
        if self._pong and not self._inner.congested:
            pieces.insert(0, self._pong)
            self._pong = b""
        if pieces:
            if data := b"".join(pieces):
                self._inner.send(data)
            if not all(pieces):
                self._inner.finish()


async def connect(inner: Stream, target: Target, *, max_frame: int = MAX_FRAME) -> WebSocketStream:
    """The opening handshake of a client; raises OSError if there is none."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    place = f"{host}:{target.port}"
    uri = _library("uri").parse_uri(f"{target.scheme}://{place}{target.path or '/'}")
    # Some servers want to know where a client comes from, and that it is where they are.
    origin = f"{'https' if target.scheme in ENCRYPTED else 'http'}://{place}"
    protocol = _library("client").ClientProtocol(uri, origin=origin, max_size=(None, max_frame))
    protocol.send_request(protocol.connect())
    inner.send(b"".join(protocol.data_to_send()))
    _, early = await _shake_hands(inner, protocol)
    return WebSocketStream(inner, protocol, target.scheme, early)


async def accept(inner: Stream, scheme: str, *, max_frame: int = MAX_FRAME, origins: Sequence[str] = ()) -> WebSocketStream:
    """The opening handshake of a server; raises OSError if there is none.

    Pages of other hosts are refused with 403, except those of these origins (RFC 6455, section 10.2).
    """
    protocol = _library("server").ServerProtocol(select_subprotocol=_select, max_size=(None, max_frame))
    request, early = await _shake_hands(inner, protocol)
    if (foreign := _foreign_origin(request.headers, origins)) is None:
        protocol.send_response(protocol.accept(request))
    else:
        protocol.send_response(protocol.reject(HTTPStatus.FORBIDDEN, f"pages of {foreign} may not connect here\n"))
        inner.send(b"".join(protocol.data_to_send()))
        await inner.close()
        raise OSError(f"a page of {foreign} may not connect: list it in `origins`")
    inner.send(b"".join(protocol.data_to_send()))
    if protocol.handshake_exc is not None:
        await _refuse(inner, protocol.handshake_exc)
    return WebSocketStream(inner, protocol, scheme, early)


async def _shake_hands(inner: Stream, protocol: Any) -> tuple[Any, bytes]:
    """Read until the peer's half of the opening handshake is there; returns it, and the bytes behind it.

    The library gets no bytes of frames here: whether it is in the middle of a frame, only counting them tells.
    """
    seen, given = b"", 0
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            while True:
                if arrived := await inner.receive():
                    seen += arrived
                    head, end, _ = seen.partition(HEAD_END)
                    stop = len(head) + len(end)
                    protocol.receive_data(seen[given:stop])
                    given = max(given, stop)
                    if not protocol.events and given < len(seen):  # the body of a refusal
                        protocol.receive_data(seen[given:])
                        given = len(seen)
                else:
                    protocol.receive_eof()
                if protocol.handshake_exc is not None:
                    if pieces := protocol.data_to_send():
                        inner.send(b"".join(pieces))
                    await _refuse(inner, protocol.handshake_exc)
                if protocol.events:
                    return protocol.events.pop(0), seen[given:]
    except TimeoutError:
        inner.abort()
        raise OSError(f"no WebSocket handshake in {HANDSHAKE_TIMEOUT:g} s") from None
    except BaseException:
        inner.abort()
        raise


async def _refuse(inner: Stream, reason: Exception) -> None:
    await inner.close()
    raise OSError(f"no WebSocket there ({reason})") from reason


def _foreign_origin(headers: Any, origins: Sequence[str]) -> str | None:
    """The origin of a page that may not connect; None if the client is no browser, or may.

    A page may if it is from the host that it connects to, on any port, or from one of the listed origins.
    """
    given = headers.get_all("Origin")
    if not given or (len(given) == 1 and given[0] in origins):
        return None
    hosts = [_host(f"//{host}") for host in headers.get_all("Host")]
    if len(given) == len(hosts) == 1 and hosts[0] is not None and _host(given[0]) == hosts[0]:
        return None
    return ascii(", ".join(given))[1:-1]


def _host(url: str) -> str | None:
    """The host in a url, without its port; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _nothing() -> None:
    """Do nothing: no one asks for half frames."""


def _select(_protocol: object, offered: Sequence[str]) -> str | None:
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def _library(name: str) -> ModuleType:
    return library(f"websockets.{name}")

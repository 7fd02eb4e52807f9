"""A login at an XMPP server (RFC 6120, 6121) through `slixmpp`.

It has a stream for each address (WOLP-11). A stream carries lines; each line is the body of one chat message. Addresses are bare JIDs,
compared case-insensitively. A login is always inside TLS. Passwords and bodies are never logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from wirelake.errors import UsageError
from wirelake.extras import library
from wirelake.transports.stream import Address
from wirelake.transports.tcp import plain, watch_path

__all__ = ["DEFAULT_XMPP", "Login", "Xmpp", "XmppStream", "bare"]

WRITE_HIGH: Final = 1024 * 1024
"""Bytes queued for a server that does not read, above which writers wait."""
MAX_WAITING: Final = 4 * 1024 * 1024
"""Bytes of one address that wait to be received.

Further ones are dropped, and counted: their sender repeats them (WOLP-10).
"""
PARTING: Final = 2.0
"""Seconds to wait for the server's goodbye."""
_LINE: Final = str.maketrans("\r\n", "  ")
"""WOLP-6: line breaks inside a body say nothing; here a line is a message."""


class Xmpp(msgspec.Struct, frozen=True, kw_only=True):
    """How to log in. Times are seconds."""

    password: str = ""
    """Of the account; better in a file."""
    password_file: Path | None = None
    """A file whose first line is the password."""
    server: tuple[str, int] | None = None
    """Host and port to connect to, instead of what the address or DNS says of the account's domain."""
    direct_tls: bool = False
    """TLS from the first byte (usually port 5223) instead of STARTTLS. There is no login without TLS."""
    resource: str = "wirelake"
    """Distinguishes this login from others of the same account; the server makes it unique."""
    login_timeout: float = 20.0
    """How long connecting and logging in may take."""
    path_timeout: float | None = 120.0
    """How long the server may be unreachable: sent bytes without an acknowledgement, or no answer to probes of the system."""
    max_streams: int = 10_000
    """Addresses talked with at the same time; what others say is dropped."""

    def __repr__(self) -> str:
        return f"Xmpp(server={self.server!r}, resource={self.resource!r})"

    def secret(self) -> str:
        """The password, from wherever it is."""
        if self.password_file is None:
            return self.password
        try:
            return self.password_file.read_text().partition("\n")[0]
        except OSError as reason:
            raise UsageError(f"cannot read the password from {self.password_file}: {reason.strerror}") from None


DEFAULT_XMPP: Final = Xmpp()


class XmppStream:
    """What a login and one address say to each other."""

    kind = "xmpp"

    def __init__(self, owner: Login, remote: str) -> None:
        self.local: Address = (owner.account, 0)
        self.remote: Address = (remote, 0)
        self.lost = 0
        """Messages dropped because the queue was full."""
        self._owner = owner
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Event()
        self._over = False
        self._failure = ""

    def put(self, text: str) -> None:
        """A message came from there."""
        line = text.translate(_LINE).encode() + b"\n"
        if self._size + len(line) > MAX_WAITING:
            self.lost += 1
            return
        self._waiting.append(line)
        self._size += len(line)
        self._changed.set()

    def end(self, why: str = "") -> None:
        """Nothing more will come; with a reason, something broke."""
        self._over = True
        self._failure = self._failure or why
        self._changed.set()

    async def receive(self) -> bytes:
        """See Stream: whole lines."""
        while not self._waiting and not self._over:
            self._changed.clear()
            await self._changed.wait()
        if not self._waiting and self._failure:
            raise OSError(self._failure)
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        return data

    def send(self, data: bytes) -> None:
        """See Stream: each line is a message."""
        if not self._over:
            for line in data.decode().splitlines():
                self._owner.say(self.remote[0], line)

    @property
    def congested(self) -> bool:
        """See Stream: of the login, for all its streams."""
        return self.unsent > WRITE_HIGH

    @property
    def unsent(self) -> int:
        """See Stream: of the login, for all its streams."""
        return self._owner.unsent

    @property
    def unacknowledged(self) -> int:
        """See Stream: unknown for a login."""
        return 0

    @property
    def abandoned(self) -> int:
        """See Stream: unknown for a login."""
        return 0

    async def drain(self) -> None:
        """See Stream."""
        await self._owner.drain()

    def finish(self) -> None:
        """See Stream: the peer would not notice, so nothing more is received either."""
        self.end()

    def watch_path(self, seconds: float) -> None:
        """See Stream: the connection is that of the login, see `Xmpp.path_timeout`."""

    async def close(self) -> None:
        """See Stream; waits for the login to end if this was the last that kept it."""
        self.abort()
        await self._owner.left()

    def abort(self) -> None:
        """See Stream."""
        self.end("the connection was aborted")
        self._owner.forget(self)


class Login:
    """An account that is logged in until it is closed and its last stream ends."""

    def __init__(self, account: str, options: Xmpp) -> None:
        self.account = account
        """The bare JID of this side."""
        self.unheard = 0
        """Messages of addresses without a stream."""
        self._options = options
        self._streams: dict[str, XmppStream] = {}
        self._arrived: Callable[[XmppStream], None] | None = None
        self._client: Any = None
        self._closing = False
        self._started = asyncio.Event()
        self._writable = asyncio.Event()
        self._over = asyncio.Event()
        """It is not needed any more, or it was lost."""
        self._trouble = ""

    # For users of the stream.

    async def open(self, password: str, place: tuple[str, int] | None, tls: ssl.SSLContext) -> None:
        """Connect and log in; raises OSError."""
        self._client = client = _client(self, f"{self.account}/{self._options.resource}", password, tls, self._options.path_timeout)
        client.enable_direct_tls = self._options.direct_tls
        client.enable_starttls = not self._options.direct_tls
        for name, handle in {
            "session_start": self._on_start,
            "message": self._on_message,
            "message_error": self._on_bounce,
            "connection_failed": lambda reason: self.lose(_told(reason)),
            "failed_all_auth": lambda _: self.lose(self._refusal()),
            "ssl_invalid_chain": lambda reason: self.lose(_told(reason)),
            "disconnected": lambda reason: self.lose(str(reason or "the server closed the connection")),
        }.items():
            client.add_event_handler(name, handle)
        try:
            client.connect(*(place or (None, None)))
            async with asyncio.timeout(self._options.login_timeout):
                await self._started.wait()
        except TimeoutError:
            self.lose(f"no login in {self._options.login_timeout:g} s")
        except BaseException:
            await self._log_out()
            raise
        if self._over.is_set():
            await self._log_out()
            raise OSError(self._trouble)

    def stream(self, address: str) -> XmppStream:
        """A new stream to an address; raises UsageError if there is one already, OSError if the login is over."""
        name = bare(address)
        if name in self._streams:
            raise UsageError(f"there is a session with {name} already")
        if self._over.is_set():
            raise OSError(self._trouble or "the login was closed")
        self._streams[name] = found = XmppStream(self, name)
        return found

    def accept(self, arrived: Callable[[XmppStream], None]) -> None:
        """From now on, an address that writes first gets a stream, too."""
        self._arrived = arrived

    def close(self) -> None:
        """Accept no new streams, and log out with the last one."""
        self._closing = True
        self._arrived = None
        if not self._streams:
            self._over.set()

    async def over(self) -> str:
        """Wait for the end, log out, and say what the trouble was, if any."""
        await self._over.wait()
        await self._log_out()
        return self._trouble

    async def left(self) -> None:
        """A stream ended: log out if it was the last."""
        if self._over.is_set():
            await self._log_out()

    # For streams.

    def say(self, to: str, text: str) -> None:
        """Send one message."""
        if self._client is not None and self._client.transport is not None:
            message = self._client.make_message(mto=to, mbody=text, mtype="chat")
            self._client.send_raw(str(message))  # not through the library's queue, which has no end

    def forget(self, stream: XmppStream) -> None:
        """The stream of an address ended."""
        if self._streams.get(stream.remote[0]) is stream:
            del self._streams[stream.remote[0]]
        if self._closing and not self._streams:
            self._over.set()

    @property
    def unsent(self) -> int:
        """Bytes that the server has not taken yet."""
        transport = None if self._client is None else self._client.transport
        return 0 if transport is None else int(transport.get_write_buffer_size())

    async def drain(self) -> None:
        """Wait until output can be written; raises OSError if the connection broke."""
        await self._writable.wait()
        if self._over.is_set():
            raise OSError(self._trouble or "the login was closed")

    # For the library's client.

    def make_room(self, there_is: bool) -> None:
        """The server reads, or does not."""
        if there_is:
            self._writable.set()
        else:
            self._writable.clear()

    def lose(self, why: str) -> None:
        """The connection is over, or never was."""
        if not self._over.is_set():
            self._trouble = why
            self._over.set()
        self._started.set()
        self._writable.set()
        for stream in list(self._streams.values()):
            stream.end(why)

    # Inside.

    async def _log_out(self) -> None:
        """Once, and leave nothing of the library running."""
        client, self._client = self._client, None
        if client is None:
            return
        client.cancel_connection_attempt()
        try:
            await client.disconnect(wait=PARTING)
        finally:
            client.abort()
            if (task := client._run_out_filters) is not None:
                task.cancel()
                await asyncio.wait([task])

    def _refusal(self) -> str:
        """Why no way to log in was left; without TLS the library sends no password, and tries none."""
        transport = None if self._client is None else self._client.transport
        if transport is not None and transport.get_extra_info("ssl_object") is None:
            return "the server offers no TLS, and the password is not sent without it: enable TLS there, or use its port for direct TLS"
        return "the server refuses the account or its password"

    def _on_start(self, _: Any) -> None:
        self._client.send_presence()  # RFC 6121, 4.2: without it, what is sent to the bare address goes elsewhere
        self.make_room(True)
        self._started.set()

    def _on_message(self, message: Any) -> None:
        if message["type"] not in ("chat", "normal") or not message["body"]:
            return
        name = bare(str(message["from"]))
        stream = self._streams.get(name)
        if stream is None:
            if self._arrived is None or len(self._streams) >= self._options.max_streams:
                self.unheard += 1
                return
            stream = self.stream(name)
            self._arrived(stream)
        stream.put(message["body"])

    def _on_bounce(self, message: Any) -> None:
        """RFC 6120, 8.3: a message of ours cannot be delivered."""
        stream = self._streams.get(bare(str(message["from"])))
        if stream is not None:
            stream.end(f"{stream.remote[0]} cannot be reached ({message['error']['condition']})")


def bare(address: str) -> str:
    """WOLP-11: an address without its resource, as addresses are compared."""
    return address.partition("/")[0].lower()


def _told(reason: object) -> str:
    return plain(reason) if isinstance(reason, OSError) else str(reason)


def _client(owner: Login, jid: str, password: str, tls: ssl.SSLContext, path_timeout: float | None) -> Any:
    """A client of the library that reports when its connection can be written to."""
    library = _library()

    class Client(library.ClientXMPP):  # type: ignore[misc,name-defined] # the library is there only where it is needed
        """The library's client, with back-pressure."""

        def connection_made(self, transport: Any, send_event: bool = True) -> None:
            transport.set_write_buffer_limits(WRITE_HIGH)
            if path_timeout is not None:
                watch_path(transport.get_extra_info("socket"), path_timeout)
            super().connection_made(transport, send_event)

        def pause_writing(self) -> None:
            owner.make_room(False)

        def resume_writing(self) -> None:
            owner.make_room(True)

    try:
        return Client(jid, password, ssl_context=tls, loop=asyncio.get_running_loop())
    except library.InvalidJID:
        raise UsageError(f"{owner.account!r} is no XMPP address: write user@domain") from None


class _Discreet(logging.Filter):
    """Keeps what the library would write of each byte, passwords and bodies among them, out of all logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.DEBUG and "%r" not in str(record.msg)


_DISCREET: Final = _Discreet()


def _library() -> ModuleType:
    slixmpp = library("slixmpp")
    library("slixmpp.xmlstream.xmlstream")
    for name in ("slixmpp.xmlstream.xmlstream", "slixmpp.features.feature_mechanisms.mechanisms"):
        logging.getLogger(name).addFilter(_DISCREET)
    return slixmpp

"""XMPP addresses (RFC 5122): `xmpp://user@domain` logs in, a path also names a peer.

An example with a peer is `xmpp://user@domain/peer@domain`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Final

from wirelake.errors import UsageError
from wirelake.transports.address import Target
from wirelake.transports.tls import client_context
from wirelake.transports.xmpp_login import DEFAULT_XMPP, Login, Xmpp, XmppStream, bare

__all__ = ["DEFAULT_XMPP", "Login", "Xmpp", "XmppListener", "XmppStream", "bare", "connect", "listen", "login"]

log = logging.getLogger("wirelake.xmpp")

FIRST_PAUSE: Final = 0.5
"""Seconds before a listener that lost its login tries again."""
MOST_PAUSE: Final = 30.0
"""Seconds between two tries at most; they double."""


class XmppListener:
    """An account that accepts messages from any address.

    A login that is lost is made again until the listener is closed.
    """

    def __init__(self, target: Target, options: Xmpp, tls: ssl.SSLContext | None, accepted: Callable[[XmppStream], None]) -> None:
        self.port = target.port
        self._target = target
        self._options = options
        self._tls = tls
        self._accepted = accepted
        self._login: Login | None = None
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Log in; raises OSError."""
        self._login = await login(self._target, self._options, self._tls)
        self._login.accept(self._accepted)

    def stream(self, address: str) -> XmppStream:
        """A stream to an address, over the same login; raises OSError while there is none."""
        if self._login is None:
            raise OSError("not logged in at the moment")
        return self._login.stream(address)

    async def run(self) -> None:
        """See Listener: stay logged in while streams are open."""
        pause = FIRST_PAUSE
        while self._login is not None:
            trouble = await self._login.over()
            self._login = None
            while self._login is None and not self._closing.is_set():
                log.warning("%s lost its login: %s; next attempt in %.1f s", self._target, trouble, pause)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), pause)
                    return
                try:
                    await self.start()
                    pause = FIRST_PAUSE
                except OSError as reason:
                    trouble, pause = str(reason), min(pause * 2, MOST_PAUSE)

    def close(self) -> None:
        """See Listener: accept no new sessions; the login ends with the last one."""
        self._closing.set()
        if self._login is not None:
            self._login.close()


async def login(target: Target, options: Xmpp = DEFAULT_XMPP, tls: ssl.SSLContext | None = None) -> Login:
    """Log in as the account of `xmpp://user@domain[:port]`; raises OSError."""
    domain = target.host.rpartition("@")[2]
    place = options.server or ((domain, target.port) if target.port else None)
    found = Login(bare(target.host), options)
    await found.open(options.secret(), place, tls or client_context())
    return found


async def connect(target: Target, options: Xmpp = DEFAULT_XMPP, tls: ssl.SSLContext | None = None) -> XmppStream:
    """Log in, and open a stream to the address that the path names.

    The login ends with the stream. Raises OSError.
    """
    if not target.path:
        raise UsageError(f"{target} says who we are, not whom to talk to: write {target}/peer@domain")
    found = await login(target, options, tls)
    stream = found.stream(target.path.removeprefix("/"))
    found.close()
    return stream


async def listen(
    target: Target, accepted: Callable[[XmppStream], None], options: Xmpp = DEFAULT_XMPP, tls: ssl.SSLContext | None = None
) -> XmppListener:
    """Log in, and make a stream for each address that writes, until the listener is closed.

    Raises OSError.
    """
    listener = XmppListener(target, options, tls, accepted)
    await listener.start()
    return listener

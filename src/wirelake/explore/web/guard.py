"""Guard: which requests are answered at all, and the headers that keep pages from running foreign script.

A request must be for a name of this server (so that a foreign name that leads here gets nothing), must not come from another site, and
carries the token if there is one. It only reads, but for comments: the page that writes one must be of this server, and say so.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import URL, Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["COOKIE", "COSTLY", "HEADERS", "WRITABLE", "Guard", "is_loopback"]

COOKIE: Final = "wirelake-token"
"""Cookie with the token, set when a page is opened with `?token=`."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
        " form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer`, browsers would not name the origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response."""
WRITABLE: Final = frozenset({"/comments"})
"""Paths that take POST."""
COSTLY: Final = frozenset({"/export"})
"""Paths that no link of another site may lead to."""
_METHODS: Final = ("GET", "HEAD")
_LOCAL_NAMES: Final = ("localhost",)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is of this machine only."""
    if host in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware in front of all pages and files."""

    def __init__(self, app: ASGIApp, *, host: str, token: str | None = None) -> None:
        self._app = app
        self._host = host
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        answer: Callable[[Scope, Receive, Callable[[Message], Awaitable[None]]], Awaitable[None]]
        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is not answered; None if it is."""
        headers = request.headers
        if wrong := next((name for name in ("host", "origin") if not _is_address(name, headers.get(name, ""))), None):
            return PlainTextResponse(f"The header {wrong} has no host and port that can be read.", 400)
        is_writing = request.method == "POST" and request.url.path in WRITABLE
        if request.method not in _METHODS and not is_writing:
            return PlainTextResponse("This server only reads: use GET.", 405, {"allow": ", ".join(_METHODS)})
        if not self._is_own_name(headers.get("host", "")):
            return PlainTextResponse(f"This server answers requests for its own name only: {self._host}.", 421)
        if _is_foreign(headers, allows_visit=request.url.path not in COSTLY) or (is_writing and not _is_own_page(request)):
            return PlainTextResponse("This server answers no requests that another site makes.", 403)
        return None if self._token is None else self._without_token(request, self._token)

    def _is_own_name(self, host: str) -> bool:
        """Whether the Host header names this server. With a token every name may: a foreign site does not have it."""
        if self._token is not None:
            return True
        name = urlsplit(f"//{host}").hostname or ""
        return name == self._host or (is_loopback(self._host) and is_loopback(name))

    def _without_token(self, request: Request, token: str) -> Response | None:
        """The response to a request without the right token; a token in the address becomes a cookie."""
        given = request.query_params.get("token")
        if given is not None and _is_equal(given, token):
            response = RedirectResponse(_without(request.url, "token"), 303)
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return response
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if _is_equal(request.cookies.get(COOKIE, ""), token) or (scheme.lower() == "bearer" and _is_equal(bearer, token)):
            return None
        return PlainTextResponse("Open this page with ?token=… from the server's token file.", 401, {"www-authenticate": "Bearer"})


def _is_address(header: str, text: str) -> bool:
    """Whether a header can be read as a host and a port, or as an address with both."""
    try:
        return (urlsplit(f"//{text}" if header == "host" else text).port or 1) > 0
    except ValueError:  # half an IPv6 address, or a port that is no number
        return False


def _is_foreign(headers: Headers, *, allows_visit: bool) -> bool:
    """Whether another site makes the request. To follow a link from one may be allowed: that site does not see the answer."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        return True
    site = headers.get("sec-fetch-site", "none")
    is_visit = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return site not in ("none", "same-origin") and not (is_visit and allows_visit)


def _is_own_page(request: Request) -> bool:
    """Whether a page of this server makes the request: browsers name the page's origin with every POST."""
    headers = request.headers
    origin = headers.get("origin")
    return origin == f"{request.url.scheme}://{headers.get('host')}" and headers.get("sec-fetch-site", "same-origin") == "same-origin"


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _without(url: URL, name: str) -> str:
    """The address without a parameter, and without the server: it stays on this one."""
    rest = url.remove_query_params(name)
    path = f"/{rest.path.lstrip('/')}"  # two slashes would name another server
    return f"{path}?{rest.query}" if rest.query else path

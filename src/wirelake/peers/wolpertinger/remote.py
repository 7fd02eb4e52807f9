"""Components of the peer as objects.

`await peer.Core.testMethod1("x", True)` needs only names; `await peer.remote(Weather).Temperature("x")` uses the types of a class.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from wirelake.peers.wolpertinger.components import Declared, unfit
from wirelake.protocols.wolpertinger.layer2.values import DateTime, from_datetime, to_datetime

__all__ = ["Remote", "RemoteMethod", "TypedRemote"]

Caller = Callable[..., Awaitable[Any]]
"""`OutgoingCalls.call` of a peer."""


class RemoteMethod:
    """`await method(…)` waits for the response.

    `await method.tell(…)` waits for the delivery of a call that has none.
    """

    __slots__ = ("_call", "_component", "_name")

    def __init__(self, call: Caller, component: str, name: str) -> None:
        self._call = call
        self._component = component
        self._name = name

    def __call__(self, *parameters: Any, timeout: float | None = None) -> Awaitable[Any]:
        """Call a function."""
        return self._call(self._component, self._name, parameters, timeout=timeout)

    def tell(self, *parameters: Any) -> Awaitable[Any]:
        """Call a method without a response."""
        return self._call(self._component, self._name, parameters, returns=False)


class Remote:
    """A component of the peer, of which only the name is known."""

    __slots__ = ("_call", "_component")

    def __init__(self, call: Caller, component: str) -> None:
        self._call = call
        self._component = component

    def __getattr__(self, name: str) -> RemoteMethod:
        return RemoteMethod(self._call, self._component, name)


class TypedRemote:
    """A component of the peer whose class is known here.

    The class says which methods there are, which respond, and what they take.
    """

    def __init__(self, call: Caller, component: str, methods: dict[str, Declared]) -> None:
        self._call = call
        self._component = component
        self._methods = {one.attribute: one for one in methods.values()}

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        declared = self._methods.get(name)
        if declared is None:
            raise AttributeError(f"{self._component} has no method {name!r}")

        async def call(*parameters: Any, timeout: float | None = None) -> Any:
            sent = [unfit(given, kind) for given, kind in zip(parameters, declared.kinds, strict=False)]
            sent += parameters[len(sent) :]  # too many: the peer says so
            value = await self._call(self._component, declared.name, sent, returns=declared.returns, timeout=timeout)
            if declared.kind is datetime and type(value) is DateTime:
                return to_datetime(value)
            return from_datetime(value) if declared.kind is DateTime and type(value) is datetime else value

        return call

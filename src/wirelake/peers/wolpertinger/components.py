"""Components of a wolpertinger peer: classes whose annotated methods are remotely callable.

```
class Weather:
    @method(trust=3)
    async def Temperature(self, place: str, at: DateTime) -> float: ...

    @method(trust=0)
    def Report(self, place: str, degrees: float) -> None: ...
```

`-> None` is a method without a response; anything else is a function (WOLP-19). A method that declares no trust wants 4 (WOLP-20).
Component names are found in any case, method names as they are spelled.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, overload

import msgspec

from wirelake.errors import UsageError
from wirelake.protocols.wolpertinger.layer2.values import DateTime, Int32, Int64, UInt64, native, to_datetime
from wirelake.protocols.wolpertinger.options import HIGHEST_TRUST, Method

__all__ = ["Declared", "Misfit", "Offer", "declared", "method", "methods_of", "name_of", "offers", "unfit"]

F = TypeVar("F", bound=Callable[..., Any])

Fitter = Callable[[Any], Any]
"""A parameter as it came -> as the method wants it; raises Misfit."""
_MARK: Final = "__wolpertinger__"
_NUMBERS: Final = (Int32, Int64, UInt64)
_SENT_AS: Final = (*_NUMBERS, float)


class Misfit(Exception):
    """WOLP-20: parameters that a method does not take."""


class Mark(msgspec.Struct, frozen=True):
    """What `@method` says of a function."""

    name: str
    trust: int


class Declared(msgspec.Struct, frozen=True):
    """A method as its class declares it."""

    name: str
    """On the wire."""
    attribute: str
    """In Python."""
    kinds: tuple[Any, ...]
    """The annotations of its parameters."""
    fitters: tuple[Fitter, ...]
    """What makes each of them fit."""
    required: int
    """Parameters without a default."""
    kind: Any
    """What it returns; None is void."""
    trust: int

    @property
    def returns(self) -> bool:
        """WOLP-19: there is a response."""
        return self.kind is not None

    def fit(self, parameters: Sequence[Any]) -> list[Any]:
        """What the method is called with.

        Raises Misfit if there are too many, too few, or one of another type.
        """
        if not self.required <= len(parameters) <= len(self.kinds):
            raise Misfit(f"{self.name} takes {len(self.kinds)} parameters, not {len(parameters)}")
        return [fit(given) for fit, given in zip(self.fitters, parameters, strict=False)]

    def answer(self, value: Any) -> Any:
        """What it returned, as the type it promised: an `int` where `Int64` stands is sent as that."""
        return unfit(value, self.kind) if type(value) is int else value


class Offer(msgspec.Struct, frozen=True):
    """A component offered under another name than that of its class, or with its own factory."""

    of: type
    name: str = ""
    make: Callable[[Any], object] | None = None
    """Makes the instance for a peer; without it the class is called with nothing."""

    @property
    def called(self) -> str:
        """Its name on the wire."""
        return self.name or name_of(self.of)


@overload
def method(function: F, /) -> F: ...
@overload
def method(*, trust: int = HIGHEST_TRUST, name: str = "") -> Callable[[F], F]: ...
def method(function: Any = None, /, *, trust: int = HIGHEST_TRUST, name: str = "") -> Any:
    """Offer a method to peers that are trusted so much (0 to 4), under its own name or another."""
    if not 0 <= trust <= HIGHEST_TRUST:
        raise UsageError(f"a trust level is 0 to {HIGHEST_TRUST}, not {trust}")

    def mark(given: Any) -> Any:
        setattr(given, _MARK, Mark(name or given.__name__, trust))
        return given

    return mark if function is None else mark(function)


def name_of(component: type) -> str:
    """What a class is called on the wire: its attribute `component`, or its own name."""
    return str(getattr(component, "component", component.__name__))


@cache
def methods_of(component: type) -> dict[str, Declared]:
    """The methods a class offers, by their name on the wire.

    Raises UsageError for a declaration that says too little.
    """
    methods: dict[str, Declared] = {}
    for attribute, function in inspect.getmembers(component, inspect.isfunction):
        mark: Mark | None = getattr(function, _MARK, None)
        if mark is None:
            continue
        if mark.name in methods:
            raise UsageError(f"{name_of(component)} has two methods {mark.name!r}: names are not overloaded")
        methods[mark.name] = _declare(component, attribute, function, mark)
    if not methods:
        raise UsageError(f"{component.__name__} offers nothing: mark its methods with @method")
    return methods


def offers(components: Iterable[type | Offer]) -> tuple[Offer, ...]:
    """Components, each as an offer."""
    return tuple(one if isinstance(one, Offer) else Offer(one) for one in components)


def declared(offers: Iterable[Offer]) -> dict[str, dict[str, Method]]:
    """What a session must know of them; raises UsageError if two have the same name."""
    known: dict[str, dict[str, Method]] = {}
    for offer in offers:
        if offer.called.lower() in {name.lower() for name in known}:
            raise UsageError(f"two components are called {offer.called!r}; case does not tell them apart")
        known[offer.called] = {
            one.name: Method(parameters=None, returns=one.returns, trust=one.trust) for one in methods_of(offer.of).values()
        }
    return known


def _declare(component: type, attribute: str, function: Callable[..., Any], mark: Mark) -> Declared:
    hints = typing.get_type_hints(function)
    where = f"{name_of(component)}.{mark.name}"
    if "return" not in hints:
        raise UsageError(f"{where} does not say what it returns: write -> None for nothing")
    _, *parameters = inspect.signature(function).parameters.values()  # the first is self
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise UsageError(f"{where}: parameters are positional, {parameter.name!r} is not")
        if parameter.name not in hints:
            raise UsageError(f"{where} does not say what {parameter.name!r} is: annotate it, with object for anything")
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    kind = None if hints["return"] is type(None) else hints["return"]
    kinds = tuple(hints[parameter.name] for parameter in parameters)
    return Declared(mark.name, attribute, kinds, tuple(map(_fitter, kinds)), required, kind, mark.trust)


def _fitter(kind: Any) -> Fitter:
    """What makes a parameter as an annotation wants it: exactly that type; `int` takes all whole numbers."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object):
        return native
    if origin in (typing.Union, types.UnionType):
        return _either(kind, [_fitter(one) for one in inner])
    if (origin or kind) in (list, tuple):
        return _all_of(kind, origin or kind, _fitter(next(iter(inner), object)))
    taken = {int: _NUMBERS, datetime: (DateTime,)}.get(kind, (kind,))

    def fit(value: Any) -> Any:
        if type(value) not in taken:
            raise _misfit(value, kind)
        return value

    return (lambda value: to_datetime(fit(value))) if kind is datetime else fit


def _either(kind: Any, fitters: list[Fitter]) -> Fitter:
    def fit(value: Any) -> Any:
        for one in fitters:
            try:
                return one(value)
            except Misfit:
                continue
        raise _misfit(value, kind)

    return fit


def _all_of(kind: Any, make: Callable[[Iterable[Any]], Any], fitter: Fitter) -> Fitter:
    def fit(given: Any) -> Any:
        if not isinstance(given, tuple):
            raise _misfit(given, kind)
        return make(fitter(one) for one in given)

    return fit


def _misfit(given: Any, kind: Any) -> Misfit:
    return Misfit(f"{type(given).__name__} instead of {getattr(kind, '__name__', kind)}")


def unfit(given: Any, kind: Any) -> Any:
    """What is sent where this type stands: an `int` becomes the number that was promised."""
    return kind(given) if type(given) is int and kind in _SENT_AS else given

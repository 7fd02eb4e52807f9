"""Declarations: what a class must say of its methods, and what is refused before anybody calls."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from wirelake.errors import UsageError
from wirelake.peers.wolpertinger import Offer, connect, method, serve
from wirelake.peers.wolpertinger.components import Misfit, declared, methods_of, name_of
from wirelake.peers.wolpertinger.demo_component import Demo
from wirelake.protocols.wolpertinger.layer2.values import Int32, Int64, UInt64


def test_annotations_say_what_a_method_is():
    class Weather:
        component = "Wetter"

        @method(trust=3, name="GetTemperature")
        async def temperature(self, place: str, when: int = 0) -> float:
            return 1.0

        @method
        def report(self, place: str) -> None: ...

        def not_offered(self): ...

    found = methods_of(Weather)
    assert set(found) == {"GetTemperature", "report"}
    assert (found["GetTemperature"].trust, found["GetTemperature"].returns, found["GetTemperature"].required) == (3, True, 1)
    assert (found["report"].trust, found["report"].returns) == (4, False)
    assert name_of(Weather) == "Wetter"
    known = declared([Offer(Weather), Offer(Demo, "Show")])
    assert set(known) == {"Wetter", "Show"}
    assert (known["Wetter"]["report"].trust, known["Wetter"]["report"].returns) == (4, False)


def no_return(self, a: str): ...


def no_annotation(self, a) -> None: ...


def keyword_only(self, *, a: str) -> None: ...


def any_number(self, *a: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (no_return, "does not say what it returns"),
        (no_annotation, "does not say what 'a' is"),
        (keyword_only, "positional"),
        (any_number, "positional"),
    ],
)
def test_a_declaration_that_says_too_little_is_refused(function, told):
    made = type("Made", (), {"it": method(trust=0)(function)})
    with pytest.raises(UsageError, match=told):
        methods_of(made)


def test_classes_without_methods_and_names_that_clash_are_refused():
    with pytest.raises(UsageError, match="offers nothing"):
        methods_of(int)
    with pytest.raises(UsageError, match="two components are called 'demo'"):
        declared([Offer(Demo), Offer(Demo, "demo")])

    class Twice:
        @method(name="A")
        def one(self) -> None: ...

        @method(name="A")
        def two(self) -> None: ...

    with pytest.raises(UsageError, match="two methods 'A'"):
        methods_of(Twice)
    for make in (connect, serve):
        with pytest.raises(UsageError, match="two methods 'A'"):
            make("tcp://127.0.0.1:1", Twice)
    for level in (-1, 5):
        with pytest.raises(UsageError, match="0 to 4"):
            method(trust=level)


@pytest.mark.parametrize(
    ("kind", "fits", "misfits"),
    [
        (bool, [True], [1, Int32(1), "true"]),
        (int, [Int32(1), Int64(1), UInt64(1)], [True, 1.0, "1"]),
        (Int64, [Int64(1)], [Int32(1), UInt64(1), 1.0]),
        (float, [1.0], [Int32(1), True]),
        (str, ["x"], [UUID(int=1), True]),
        (UUID, [UUID(int=1)], [str(UUID(int=1))]),
        (list[str], [("a",), ()], [("a", True), "ab"]),
        (tuple[int, ...], [(Int32(1),)], [(1.0,)]),
        (str | int, ["x", Int32(1)], [1.0]),
        (object, ["x", 1.0, ()], []),
        (Any, ["x"], []),
    ],
)
def test_parameters_fit_their_annotation_exactly(kind, fits, misfits):
    def it(self, a) -> None: ...

    it.__annotations__["a"] = kind
    (one,) = methods_of(type("Made", (), {"it": method(trust=0)(it)})).values()
    for given in fits:
        assert list(one.fit([given])[0] if isinstance(given, tuple) else one.fit([given])) == list(
            given if isinstance(given, tuple) else [given]
        )
    for given in misfits:
        with pytest.raises(Misfit):
            one.fit([given])
    for count in (0, 2):
        with pytest.raises(Misfit, match="takes 1 parameters"):
            one.fit([True] * count)

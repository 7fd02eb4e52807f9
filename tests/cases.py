"""Many cases of a pure function as one test, and fewer of them in `make quick`.

`pytest.mark.parametrize` makes a test of every case: pytest collects, schedules and reports each one. Where hundreds of cases take
microseconds each, that costs more than the cases themselves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest
from hypothesis import settings

__all__ = ["QUICK_EXAMPLES", "SOAK_EXAMPLES", "TEST_EXAMPLES", "each", "examples", "seeds"]

WHOLE_EXAMPLES: Final = 100
"""What the counts of tests are for: each command runs its share of them."""
TEST_EXAMPLES: Final = 50
"""Examples of a Hypothesis test in `make test`, unless it says otherwise; the same each time."""
SOAK_EXAMPLES: Final = 1000
"""Examples of such a test in `make soak`; others each time."""
QUICK_EXAMPLES: Final = 15
"""Examples of such a test in `make quick`."""

Test = Callable[..., None]


def examples(count: int, **more: Any) -> settings:
    """Set the examples of a Hypothesis test: half as many in `make test`, fewer in `make quick`, ten times as many in `make soak`."""
    return settings(max_examples=max(1, count * settings().max_examples // WHOLE_EXAMPLES), **more)


def seeds(count: int, quick: int = 0, test: int | None = None) -> list[Any]:
    """Seeds for `pytest.mark.parametrize`: the first `quick` in `make quick`, the first `test` in `make test`, all in `make soak`.

    Without `test`, `make test` has all.
    """
    most = count if test is None else test
    marks = [() if seed < quick else (pytest.mark.slow,) if seed < most else (pytest.mark.slow, pytest.mark.long) for seed in range(count)]
    return [pytest.param(seed, marks=each) for seed, each in enumerate(marks)]


def each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Iterable[str] | Callable[[Any], object] | None = None
) -> Callable[[Test], Test]:
    """Call a test for every case; takes what `pytest.mark.parametrize` takes, and may be stacked like it.

    All cases share the test's fixtures. The first case that fails ends the test, and the error names it.
    """
    listed = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    values = list(cases)
    given = list(ids) if ids is not None and not callable(ids) else None

    def decorate(test: Test) -> Test:
        assert values, f"{test.__name__} has no cases"
        assert given is None or len(given) == len(values), f"{test.__name__} has other ids than cases"
        signature = inspect.signature(test)
        assert set(listed) <= set(signature.parameters), f"{test.__name__} does not take {listed}"

        @functools.wraps(test)
        def whole(**fixtures: object) -> None:
            for number, value in enumerate(values):
                case = dict(zip(listed, (value,) if len(listed) == 1 else value, strict=True))
                try:
                    test(**fixtures, **case)
                except Exception as error:
                    error.add_note(f"case {number}: {_name(number, value, given, ids)}")
                    raise

        rest = [one for name, one in signature.parameters.items() if name not in listed]
        whole.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return whole

    return decorate


def _name(number: int, value: Any, given: Sequence[str] | None, ids: object) -> str:
    if given is not None:
        return given[number]
    if callable(ids):
        parts = value if isinstance(value, tuple) else (value,)
        return "-".join(repr(part) if (name := ids(part)) is None else str(name) for part in parts)
    return repr(value)

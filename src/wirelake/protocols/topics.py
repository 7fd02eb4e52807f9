"""Names in levels and patterns over them: `plant.*.temperature`, `plant.>`.

For every protocol whose events have names.

A separator, by default a dot, cuts a name into levels. In a pattern, a level `*` stands for exactly one level, whatever it is, and a last
level `>` for one or more. All other text matches itself. `*` and `>` inside a longer level are refused, because they would match themselves
only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from wirelake.errors import UsageError

__all__ = ["ONE", "REST", "Topics", "check", "matches"]

ONE: Final = "*"
"""Any one level."""
REST: Final = ">"
"""All levels from here on, at least one."""
REMEMBERED: Final = 1024
"""Names whose listeners are cached; beyond this, the cache is emptied."""

T = TypeVar("T", bound=Hashable)


def check(pattern: str, separator: str = ".") -> list[str]:
    """The levels of a pattern; raises UsageError if it is none."""
    levels = pattern.split(separator)
    if not pattern:
        raise UsageError("an empty pattern matches nothing")
    for place, level in enumerate(levels, 1):
        if level == REST and place < len(levels):
            raise UsageError(f"{pattern!r}: {REST} stands for all that follows, so it must be last")
        if level not in (ONE, REST) and (ONE in level or REST in level):
            raise UsageError(f"{pattern!r}: {ONE} and {REST} stand for whole levels, not for a part of {level!r}")
    return levels


def matches(pattern: str, name: str, separator: str = ".") -> bool:
    """Whether a pattern matches a name."""
    wanted, levels = check(pattern, separator), name.split(separator)
    if wanted[-1] == REST:
        if len(levels) < len(wanted):
            return False
        wanted, levels = wanted[:-1], levels[: len(wanted) - 1]
    return len(wanted) == len(levels) and all(one in (ONE, level) for one, level in zip(wanted, levels, strict=True))


class _Branch(Generic[T]):
    """What follows a level; a pattern ends in the branches of its last level."""

    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Branch[T]] = {}
        self.here: dict[T, int] = {}
        """Listeners, each with its number of equal patterns."""


class Topics(Generic[T]):
    """A subscription index: maps patterns to listeners, and finds all listeners of a name, each once."""

    def __init__(self, separator: str = ".") -> None:
        self._separator = separator
        self._root: _Branch[T] = _Branch()
        self._known: dict[str, tuple[T, ...]] = {}

    def add(self, pattern: str, listener: T) -> None:
        """Let a listener hear of names; raises UsageError for what is no pattern."""
        branch = self._root
        for level in check(pattern, self._separator):
            branch = branch.below.setdefault(level, _Branch())
        branch.here[listener] = branch.here.get(listener, 0) + 1
        self._known.clear()

    def remove(self, pattern: str, listener: T) -> None:
        """Undo one `add`; raises UsageError if there was none."""
        path = [self._root]
        levels = check(pattern, self._separator)
        for level in levels:
            below = path[-1].below.get(level)
            if below is None:
                raise UsageError(f"nobody listens to {pattern!r}")
            path.append(below)
        if listener not in path[-1].here:
            raise UsageError(f"this listener does not listen to {pattern!r}")
        path[-1].here[listener] -= 1
        if not path[-1].here[listener]:
            del path[-1].here[listener]
        for above, level in zip(path[-2::-1], reversed(levels), strict=True):  # an empty branch is not kept
            below = above.below[level]
            if below.here or below.below:
                break
            del above.below[level]
        self._known.clear()

    def listeners(self, name: str) -> tuple[T, ...]:
        """The listeners of this name, each once, in no promised order."""
        cached = self._known.get(name)
        if cached is None:
            cached = tuple(dict.fromkeys(self._find(name)))
            if len(self._known) >= REMEMBERED:  # names come from outside: they must not fill our memory
                self._known.clear()
            self._known[name] = cached
        return cached

    def _find(self, name: str) -> Iterator[T]:
        branches = [self._root]
        for level in name.split(self._separator):
            for branch in branches:
                if REST in branch.below:
                    yield from branch.below[REST].here
            # A level that is itself `*` or `>` is no wildcard in a name: it takes the same two ways, once.
            ways = (ONE,) if level in (ONE, REST) else (level, ONE)
            branches = [branch.below[way] for branch in branches for way in ways if way in branch.below]
        for branch in branches:
            yield from branch.here

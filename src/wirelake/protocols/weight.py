"""Weight: the bytes of memory that the body of a message takes as objects, about."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from sys import getsizeof
from typing import Any, Final

__all__ = ["LONG", "NODE", "OTHER", "WIDEST", "weigh"]

NODE: Final = 80
"""Bytes of a node of a body: what an empty list takes, and its place in another."""
WIDEST: Final = 4
"""Bytes that a character of a text can take in memory."""
LONG: Final = 64
"""Bytes on the wire for each node, above which nodes are measured one by one: texts dominate."""
OTHER: Final = 20
"""Bytes of memory for each byte on the wire of a body that has objects other than the builtin ones."""

_BUILTIN: Final = frozenset({bool, bytes, dict, float, int, list, str, tuple, type(None)})


def weigh(body: Any, size: int) -> int:
    """The bytes of memory that a body takes, about, after `size` bytes on the wire.

    Nodes are counted level by level, in C: a tenth of the time that parsing takes. A body with objects of other types is not walked: they
    lead to their classes.
    """
    kind = type(body)
    if kind is bytes or body is None:
        return size
    if kind is str:
        return getsizeof(body)
    level: Sequence[Any] = (body,)
    levels = []
    nodes = 0
    while level:
        nodes += len(level)
        if nodes > size + 1 or not _BUILTIN.issuperset(map(type, level)):
            return NODE * nodes + OTHER * size
        levels.append(level)
        level = gc.get_referents(*level)
    if size > LONG * nodes:
        return sum(map(getsizeof, itertools.chain.from_iterable(levels)))
    return NODE * nodes + WIDEST * size

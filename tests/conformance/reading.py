"""Reading vectors strictly: a key that is missing, unknown or of the wrong kind is a failure, because it is an assertion not made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

LABELS: Final = frozenset({"name", "note", "source", "spec", "ruling", "description", "provenance"})
"""Words of a whole vector that say where it comes from or what it is about. They are the only words that nothing is compared with."""
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")


class Unmapped(AssertionError):
    """A vector, or a part of one, that no assertion here stands for."""


def keys(what: str, found: Mapping[str, Any], required: set[str], optional: frozenset[str] | set[str] = frozenset()) -> None:
    """Exactly these keys."""
    if not isinstance(found, Mapping):
        raise Unmapped(f"{what} is no object: {found!r}")
    missing, unknown = required - set(found), set(found) - required - set(optional)
    if missing or unknown:
        raise Unmapped(f"{what}: missing {sorted(missing)}, unknown {sorted(unknown)}")


def octets(what: str, text: Any) -> bytes:
    """Hex, lower case without spaces."""
    if not isinstance(text, str) or text != text.lower() or len(text.split()) > 1:
        raise Unmapped(f"{what} is no hex: {text!r}")
    return bytes.fromhex(text)


def same(found: Any, given: Any) -> bool:
    """Whether a vector says this value.

    Types count: `true` is not 1. A number may be its decimal text, because not every reader of JSON keeps 64 bits.
    """
    if isinstance(found, bool) or isinstance(given, bool) or found is None or given is None:
        return found is given
    if isinstance(found, int):
        if isinstance(given, str):
            return _DECIMAL.fullmatch(given) is not None and int(given) == found
        return isinstance(given, int) and given == found
    if isinstance(found, Mapping):
        return isinstance(given, Mapping) and set(found) == set(given) and all(same(found[key], given[key]) for key in found)
    if isinstance(found, list | tuple):
        return isinstance(given, list) and len(found) == len(given) and all(map(same, found, given))
    return type(found) is type(given) and found == given


def number(what: str, given: Any) -> int:
    """A number, or its decimal text."""
    if isinstance(given, str) and _DECIMAL.fullmatch(given):
        return int(given)
    if isinstance(given, bool) or not isinstance(given, int):
        raise Unmapped(f"{what} is no number: {given!r}")
    return given

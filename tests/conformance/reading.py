"""Reading vectors strictly: a key that is missing, unknown or of the wrong kind is a failure, because it is an assertion not made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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

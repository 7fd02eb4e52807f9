"""Dialects: how peers depart from the text of a protocol, as flags of its room's `Limits`.

A room names these flags in `Limits.DIALECT`. A recording carries the names of the flags that were set, so that it can be read as it was
spoken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

__all__ = ["AUTO", "Flag", "dialect", "settings"]

AUTO: Final = "auto"
"""In place of true or false: find out from what the peer says first."""
Flag = bool | Literal["auto"]


def dialect(limits: Any) -> tuple[str, ...] | None:
    """The flags that are set in some limits; None while one of them is still to be found out."""
    names: tuple[str, ...] = getattr(limits, "DIALECT", ())
    values = {name: getattr(limits, name) for name in names}
    return None if AUTO in values.values() else tuple(name for name in names if values[name])


def settings(kind: Any, chosen: Mapping[str, Any], spoken: Iterable[str]) -> dict[str, Any]:
    """What to tell `Limits` for a connection that was spoken in a dialect: a flag that somebody chose wins, unless as `auto`."""
    flags = {name: name in spoken for name in getattr(kind, "DIALECT", ())}
    return flags | {name: value for name, value in chosen.items() if name not in flags or value != AUTO}

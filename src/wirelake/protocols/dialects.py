"""Dialects: known departures from a protocol's specification, as fields of its limits.

The fields are booleans. A protocol names them in its descriptor (`dialects`). A recording carries the names of those that were set, so that
it can be decoded as it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol

__all__ = ["AUTO", "Flag", "dialect", "settings"]

AUTO: Final = "auto"
"""Instead of true or false: recognise it by the first bytes of the peer."""
Flag = bool | Literal["auto"]


class _HasDialects(Protocol):
    """Limits with flags for dialects."""

    @property
    def DIALECT(self) -> tuple[str, ...]: ...  # noqa: N802 - a constant of the class


def dialect(limits: _HasDialects) -> tuple[str, ...] | None:
    """The flags that are set in some limits; None while one of them is still to be recognised."""
    values = {name: getattr(limits, name) for name in limits.DIALECT}
    return None if AUTO in values.values() else tuple(name for name, value in values.items() if value)


def settings(names: Iterable[str], chosen: Mapping[str, object], spoken: Iterable[str]) -> dict[str, object]:
    """Fields of the limits for a connection of a dialect; `names` are the flags. A chosen flag wins, unless it is `auto`."""
    flags = {name: name in spoken for name in names}
    return flags | {name: value for name, value in chosen.items() if name not in flags or value != AUTO}

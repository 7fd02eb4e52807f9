"""Entry points: which packages offer a protocol, or commands for one, under which name.

Listing names imports none of these packages. The protocols of this package are listed here as well, so that they are found where
it runs without its metadata (shipped to executors as a zip file, for example).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from typing import Final

import msgspec

from wirelake.errors import UsageError

__all__ = ["OURS", "Entry", "entries", "entry", "normalised"]

OURS: Final = ("emp", "event_mesh", "relink", "yamp", "wolpertinger")
"""The protocols of this package, in the order of tables, pages and sniffing."""
_MODULES: Final = {"wirelake.protocols": "wirelake.protocols.{}:PROTOCOL", "wirelake.commands": "wirelake.cli.protocols.{}:COMMANDS"}
"""Group -> where the objects of this package are."""


class Entry(msgspec.Struct, frozen=True):
    """One name, and the object that a package offers for it."""

    name: str
    value: str
    """`module:attribute`."""
    distribution: str
    """The package as it was installed."""

    def load(self) -> object:
        """Import the object; raises UsageError that names the package if that fails."""
        module, _, attribute = self.value.partition(":")
        try:
            loaded: object = getattr(import_module(module), attribute)
        except Exception as error:
            if self.distribution == _US:
                raise
            raise UsageError(
                f"protocol {self.name!r} of the package {self.distribution} cannot be loaded from {self.value}: "
                f"{type(error).__name__}: {error}; repair or uninstall that package"
            ) from error
        return loaded


_US: Final = "wirelake"


def normalised(name: str) -> str:
    """A protocol's name as it is printed; on input a hyphen is as good as an underscore."""
    return name.replace("-", "_")


@cache
def entries(group: str) -> dict[str, tuple[Entry, ...]]:
    """Name -> the packages that offer it: ours in their order, then others by name.

    More than one is a conflict.
    """
    offered: dict[str, list[Entry]] = {name: [_ours(group, name)] for name in OURS}
    others = [
        Entry(normalised(point.name), point.value, point.dist.name if point.dist else "?") for point in metadata.entry_points(group=group)
    ]
    for other in sorted(others, key=lambda one: (one.name, one.distribution, one.value)):
        known = offered.setdefault(other.name, [])
        if not any(other.value == one.value for one in known):
            known.append(other)
    return {name: tuple(found) for name, found in offered.items()}


def entry(group: str, name: str) -> Entry | None:
    """The package that offers this name; None if there is none. Raises UsageError if there are several."""
    if name in OURS:
        return _ours(group, name)  # without reading the metadata of every installed package
    found = entries(group).get(name, ())
    if len(found) > 1:
        packages = ", ".join(f"{one.distribution} ({one.value})" for one in found)
        raise UsageError(f"several packages offer the protocol {name!r}: {packages}; uninstall all but one")
    return found[0] if found else None


def _ours(group: str, name: str) -> Entry:
    return Entry(name, _MODULES[group].format(name), _US)

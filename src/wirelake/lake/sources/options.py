"""Options of data sources: a source that is given one it does not know says so, instead of ignoring it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wirelake import protocols
from wirelake.errors import UsageError

__all__ = ["PATHS", "known", "ports"]

PATHS = ("path", "paths")
"""What Spark calls the arguments of `load`."""


def known(form: str, options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The options of a source, all of which are among these names; raises UsageError if one is not. Spark ignores case in names."""
    allowed = tuple(names)
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given.keys() - {*allowed, *PATHS}):
        listed = ", ".join(allowed) or "none"
        raise UsageError(f'format("{form}") has no option {name!r}: it knows {listed}, and paths as arguments of load()')
    return given


def ports(options: Mapping[str, str]) -> dict[int, str]:
    """Option `ports`: port -> protocol, as JSON; else every protocol's own."""
    try:
        given = msgspec.json.decode(options.get("ports", "null"), type=dict[int, str] | None)
    except msgspec.DecodeError as error:
        raise UsageError(f'option ports: write it as {{"6000": "emp"}}: {error}') from error
    return {port: protocols.name_of(name) for port, name in given.items()} if given else protocols.ports()

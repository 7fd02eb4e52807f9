"""Options of data sources. An unknown option is an error, not ignored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wirelake import protocols
from wirelake.errors import UsageError

__all__ = ["PATHS", "known", "ports"]

PATHS = ("path", "paths")
"""Spark's names for the arguments of `load`."""


def known(form: str, options: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Check that a source knows all options; raises UsageError. Spark ignores case in names."""
    allowed = tuple(names)
    lowered = {name.lower(): value for name, value in options.items()}
    for name in sorted(lowered.keys() - {*allowed, *PATHS}):
        listed = ", ".join(allowed) or "none"
        raise UsageError(f'format("{form}") has no option {name!r}: it knows {listed}, and paths as arguments of load()')
    return lowered


def ports(options: Mapping[str, str]) -> dict[int, str]:
    """Option `ports`: port -> protocol, as JSON. Without it, the default ports of all protocols."""
    try:
        chosen = msgspec.json.decode(options.get("ports", "null"), type=dict[int, str] | None)
    except msgspec.DecodeError as error:
        raise UsageError(f'option ports: write it as {{"6000": "emp"}}: {error}') from error
    return {port: protocols.name_of(name) for port, name in chosen.items()} if chosen else protocols.ports()

"""The protocols: five of this package, and those that other packages add.

Pure: no sockets, clocks, threads, files or Spark.

A protocol is a `Protocol` descriptor that a package declares under the entry-point group `wirelake.protocols`
(docs/adding-a-protocol.md). `names` imports none of them; `get` imports one.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from wirelake.errors import UsageError
from wirelake.protocols import entry_points
from wirelake.protocols.protocol import AnyProtocol, Protocol

__all__ = ["AnyProtocol", "Protocol", "dialect", "get", "name_of", "names", "ports", "sniff"]

_GROUP: Final = "wirelake.protocols"


def names() -> tuple[str, ...]:
    """All protocols: ours in their order, then others by name.

    A name is that of a table, and the one spelling that is printed.

    Raises UsageError if another package offers a protocol under a name of ours.
    """
    offered = entry_points.entries(_GROUP)
    for name in entry_points.OURS:
        if len(offered[name]) > 1:
            stranger = offered[name][1]
            raise UsageError(f"the package {stranger.distribution} offers a protocol {name!r}, which is one of wirelake's; uninstall it")
    return tuple(offered)


def name_of(text: str) -> str:
    """The name of a protocol as people type it, with hyphens or underscores.

    Raises UsageError with the choices.
    """
    name = entry_points.normalised(text)
    if name not in entry_points.OURS and name not in names():
        raise UsageError(f"unknown protocol {text!r}: choose one of {', '.join(names())}")
    return name


def get(name: str) -> AnyProtocol:
    """The descriptor of a protocol; imports its package.

    Raises UsageError with the choices if there is none of this name.
    """
    return _load(name_of(name))


@cache
def _load(name: str) -> AnyProtocol:
    entry = entry_points.entry(_GROUP, name)
    assert entry is not None, name  # noqa: S101 - `name_of` knows it
    loaded = entry.load()
    if not isinstance(loaded, Protocol) or loaded.name != name:
        what = f"the protocol {loaded.name!r}" if isinstance(loaded, Protocol) else f"a {type(loaded).__name__}"
        raise UsageError(f"the package {entry.distribution} declares {entry.value} as the protocol {name!r}, but it is {what}")
    return loaded


@cache
def _ports() -> dict[int, str]:
    ports: dict[int, str] = {}
    for name in names():
        port = get(name).port
        if port in ports:
            both = " and ".join(f"{one} ({_distribution(one)})" for one in (ports[port], name))
            raise UsageError(f"two protocols are recognised by port {port}: {both}; uninstall one, or give it another port")
        ports[port] = name
    return ports


def _distribution(name: str) -> str:
    found = entry_points.entry(_GROUP, name)
    return f"package {found.distribution}" if found else "no package"


def ports() -> dict[int, str]:
    """Port -> the protocol that captures are recognised as by default.

    Raises UsageError if two protocols have the same port.
    """
    return dict(_ports())


def dialect(name: str, first: bytes, /, *, is_all: bool = False) -> tuple[str, ...] | None:
    """The dialect of a stream that begins with these bytes, as names of flags of its limits.

    Returns None if more bytes are needed. With `is_all`, no more come.
    """
    recognise = get(name).recognise
    return () if recognise is None else recognise(first, is_all)


def sniff(data: bytes) -> str | None:
    """The protocol of a stream that begins with these bytes, if one of them is certain."""
    return next((protocol.name for protocol in _all() if protocol.sniff(data)), None)


@cache
def _all() -> tuple[AnyProtocol, ...]:
    return tuple(map(get, names()))

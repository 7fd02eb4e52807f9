"""What bytes mean: five rooms with the same furniture, pure of sockets, clocks, threads, files and Spark."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from wirelake.errors import UsageError

__all__ = ["PORTS", "ROOMS", "columns", "dialect", "finder", "named", "ports", "room", "sniff"]

ROOMS: Final = ("emp", "event_mesh", "relink", "yamp", "wolpertinger")
"""The protocols that can be spoken and read. A name is that of a module and of a table, and the one spelling that is printed.

On input a hyphen is as good as an underscore.
"""

PORTS: Final = {"emp": 5040, "event_mesh": 5041, "relink": 5047, "yamp": 8888, "wolpertinger": 8844}
"""Protocol -> the port that `wirelake serve` listens on unless told otherwise, and by which captures are recognised.

Only the first two are in a specification. The others have no default in addresses: `DEFAULT_PORT` of their packages is None.
"""


def named(text: str) -> str:
    """The protocol that people call so; raises UsageError if there is none."""
    name = text.replace("-", "_")
    if name not in ROOMS:
        raise UsageError(f"unknown protocol {text!r}: choose one of {', '.join(ROOMS)}")
    return name


def room(name: str) -> ModuleType:
    """The room of a protocol; importing it happens here, so that nobody pays for rooms they do not enter."""
    return import_module(f"wirelake.protocols.{named(name)}")


def columns(name: str) -> ModuleType:
    """How a protocol's messages look as table rows; needs Arrow."""
    return import_module(f"{room(name).__name__}.columns")


def finder(name: str) -> Callable[..., Any]:
    """The kernel that finds where messages of a protocol certainly begin again."""
    find: Callable[..., Any] = import_module(f"{room(name).__name__}.scanner").find
    return find


def ports() -> dict[int, str]:
    """The ports by which captures are recognised unless somebody says otherwise: port -> protocol."""
    return {port: name for name, port in PORTS.items()}


def dialect(name: str, first: bytes) -> tuple[str, ...] | None:
    """How a stream of a protocol that begins like this departs from the text, as flags of its `Limits`; None: more bytes are needed."""
    recognise: Callable[[bytes], tuple[str, ...] | None] = getattr(room(name), "recognise", lambda _: ())
    return recognise(first)


def sniff(data: bytes) -> str | None:
    """The protocol of a stream that begins like this, if one of them is certain."""
    return next((name for name in ROOMS if room(name).sniff(data)), None)

"""Where commands read and write: stdout is data, stderr is talk, `-` is stdin."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from wirelake.errors import WirelakeError

__all__ = ["Format", "InputMissing", "open_input", "print_objects", "say", "say_unrecognised"]


class Format(StrEnum):
    """How data is printed."""

    JSON = "json"
    FIELDS = "fields"
    TEXT = "text"


class InputMissing(WirelakeError):
    """A file that was named cannot be opened."""


def say(text: str) -> None:
    """Talk to the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


def say_unrecognised(size: int, lake: Path) -> None:
    """Tell of bytes that are in no protocol's table, and where they are listed."""
    if size:
        say(f"{size:,} bytes were recognised by no protocol: `wirelake query {lake} unrecognised` lists them by host and port")


@contextlib.contextmanager
def open_input(name: str) -> Iterator[BinaryIO]:
    """A file, or standard input for `-`."""
    if name == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).open("rb"))
        except OSError as reason:
            raise InputMissing(f"{name}: {reason.strerror}") from None
        yield file


def print_objects(described: dict[str, Any], form: Format, fields: list[str]) -> None:
    """One object, one line."""
    if form is Format.JSON:
        chosen = {name: described[name] for name in fields if name in described} if fields else described
        print(msgspec.json.encode(chosen).decode())
    elif form is Format.FIELDS:
        print("\t".join(_cell(described.get(name, "")) for name in fields or described))
    else:
        shown = described if not fields else {name: described[name] for name in fields if name in described}
        print("  ".join(f"{name}={_cell(value)}" for name, value in shown.items()))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""Where commands read and write: stdout is data, stderr is for people, `-` is stdin.

What a peer sent may hold escape sequences that move a terminal's cursor, forge lines, or hide text. So every text goes through
`visible`, and every JSON through `json_text`: such characters are printed as `\\x1b` or `\\u202e`, and do nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from wirelake.errors import InputMissing, WirelakeError
from wirelake.masking import mask
from wirelake.text import ACTING, visible

__all__ = [
    "AlreadyReported",
    "Format",
    "json_text",
    "open_input",
    "print_objects",
    "say",
    "say_traceback",
    "say_unrecognised",
    "spreadsheet_cell",
]

_TOO_DEEP: Final = "(nested too deep to print)"
"""Stands for a value inside which values are nested deeper than the interpreter goes."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_FORMULA: Final = ("=", "+", "-", "@")
"""First characters of a cell that a spreadsheet computes."""


class Format(StrEnum):
    """How data is printed."""

    JSON = "json"
    FIELDS = "fields"
    TEXT = "text"


def json_text(value: Any, other: Callable[[Any], Any] | None = None) -> str:
    """A value as JSON on one line, integers of any size as numbers; `other` turns what JSON does not know into what it does.

    JSON's own escapes stand for what a terminal would act on, so it reads as the same value.
    """
    try:
        text = msgspec.json.Encoder(enc_hook=other, decimal_format="number").encode(value).decode()
    except RecursionError:
        inside = value.items() if isinstance(value, dict) else ()
        flat = {key: one if _is_flat_enough(one, other) else _TOO_DEEP for key, one in inside}
        text = msgspec.json.Encoder(enc_hook=other, decimal_format="number").encode(flat or _TOO_DEEP).decode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot say
        text = json.dumps(msgspec.to_builtins(value, enc_hook=other), separators=(",", ":"))
    return text if text.isprintable() else ACTING.sub(_json_escape, text)


def _is_flat_enough(value: Any, other: Callable[[Any], Any] | None) -> bool:
    """Whether a value can be printed inside another one."""
    try:
        msgspec.json.encode([[value]], enc_hook=other)
    except RecursionError:
        return False
    return True


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def spreadsheet_cell(text: str) -> str:
    """The text so that a spreadsheet does not run it: a formula has an apostrophe before it, a number stays one."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


class AlreadyReported(WirelakeError):
    """An error that was told when it happened: only the exit code says it again."""


def say(text: str) -> None:
    """Tell the person at the terminal something, in one line, without secrets."""
    print(visible(mask(text)), file=sys.stderr, flush=True)


def say_traceback(text: str) -> None:
    """Show a traceback, indented: no line of an error's text passes for a line of ours."""
    for line in text.rstrip("\n").split("\n"):
        say(f"  {line}")


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
    if form is Format.FIELDS:
        print("\t".join(_cell(described.get(name, "")) for name in fields or described))
        return
    chosen = {name: described[name] for name in fields if name in described} if fields else described
    if form is Format.JSON:
        print(json_text(chosen))
    else:
        print("  ".join(f"{name}={_cell(value)}" for name, value in chosen.items()))


def _cell(value: Any) -> str:
    return visible(value) if isinstance(value, str) else json_text(value)

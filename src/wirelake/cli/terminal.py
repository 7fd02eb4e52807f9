"""Input and output of commands: stdout is data, stderr is for people, `-` is stdin.

Bytes from a peer may hold escape sequences that move a terminal's cursor, forge lines, or hide text. So every text goes through
`visible`, and every JSON through `json_text`: such characters are printed as `\\x1b` or `\\u202e`, and do nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
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
    "say_how_to_explain",
    "say_traceback",
    "say_unrecognised",
    "spreadsheet_cell",
]

_TOO_DEEP: Final = "(nested too deep to print)"
"""Printed in place of a value that is nested deeper than the interpreter allows."""
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_FORMULA: Final = ("=", "+", "-", "@")
"""First characters of a cell that a spreadsheet evaluates."""


class Format(StrEnum):
    """How data is printed."""

    JSON = "json"
    FIELDS = "fields"
    TEXT = "text"


def json_text(value: Any, other: Callable[[Any], Any] | None = None) -> str:
    """Encode a value as JSON on one line, integers of any size as numbers.

    `other` converts types that JSON does not have.

    Characters that a terminal would act on become JSON escapes, so that the value stays the same.
    """
    try:
        text = msgspec.json.Encoder(enc_hook=other, decimal_format="number").encode(value).decode()
    except RecursionError:
        inside = value.items() if isinstance(value, dict) else ()
        flat = {key: one if _is_flat_enough(one, other) else _TOO_DEEP for key, one in inside}
        text = msgspec.json.Encoder(enc_hook=other, decimal_format="number").encode(flat or _TOO_DEEP).decode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        text = json.dumps(msgspec.to_builtins(value, enc_hook=other), separators=(",", ":"))
    return text if text.isprintable() else ACTING.sub(_json_escape, text)


def _is_flat_enough(value: Any, other: Callable[[Any], Any] | None) -> bool:
    """Tell whether a value can be printed inside another one."""
    try:
        msgspec.json.encode([[value]], enc_hook=other)
    except RecursionError:
        return False
    return True


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def spreadsheet_cell(text: str) -> str:
    """Escape a text for a spreadsheet: a formula gets an apostrophe, a number stays a number."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


class AlreadyReported(WirelakeError):
    """An error that was printed when it happened: it only sets the exit code."""


def say(text: str) -> None:
    """Print one line to stderr, without secrets."""
    print(visible(mask(text)), file=sys.stderr, flush=True)


def say_how_to_explain(protocol: str | None, rule: str | None, clause: str | None) -> None:
    """Print the command that explains a broken rule, if the rule book has it."""
    from wirelake.rulebook.book import explain_command  # noqa: PLC0415 - most commands break no rule

    if command := explain_command(protocol, rule, clause):
        say(f"`{command}` explains the rule")


def say_traceback(text: str) -> None:
    """Print a traceback, indented, so that no line of it looks like a message of wirelake."""
    for line in text.rstrip("\n").split("\n"):
        say(f"  {line}")


def say_unrecognised(size: int, lake: Path) -> None:
    """Report bytes that no protocol recognised, and the table that lists them."""
    if size:
        say(f"{size:,} bytes were recognised by no protocol: `wirelake query {lake} unrecognised` lists them by host and port")


@contextlib.contextmanager
def open_input(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`."""
    if name == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(name).open("rb"))
        except OSError as reason:
            raise InputMissing(f"{name}: {reason.strerror}") from None
        yield file


def print_objects(described: Mapping[str, object], form: Format, fields: list[str]) -> None:
    """Print one object as one line."""
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

"""Where commands read and write: stdout is data, stderr is talk, `-` is stdin."""

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

from wirelake.errors import WirelakeError

__all__ = ["AlreadyTold", "Format", "InputMissing", "json_text", "open_input", "print_objects", "say", "visible"]


_ACTING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 controls, newline and tab included
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line breaks, changes of direction
    "\ud800-\udfff"  # lone surrogates
    "\U000e0000-\U000e007f]"  # tags
)
"""Characters that do something to a terminal or a log, or cannot be seen."""
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Format(StrEnum):
    """How data is printed."""

    JSON = "json"
    FIELDS = "fields"
    TEXT = "text"


class InputMissing(WirelakeError):
    """A file that was named cannot be opened."""


class AlreadyTold(WirelakeError):
    """An error that was told when it happened: only the exit code says it again."""


def visible(text: str) -> str:
    """The text with control characters, changes of direction and lone surrogates made visible. The result is one line."""
    return text if text.isprintable() else _ACTING.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    if found[0] in _NAMED:
        return _NAMED[found[0]]
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x1_0000 else f"\\U{code:08x}"


def json_text(value: Any, other: Callable[[Any], Any] | None = None) -> str:
    """A value as JSON on one line, integers of any size as numbers; `other` turns what JSON does not know into what it does.

    JSON's own escapes stand for what a terminal would act on, so it reads as the same value.
    """
    try:
        text = msgspec.json.Encoder(enc_hook=other, decimal_format="number").encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot say
        text = json.dumps(msgspec.to_builtins(value, enc_hook=other), separators=(",", ":"))
    return text if text.isprintable() else _ACTING.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def say(text: str) -> None:
    """Talk to the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


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

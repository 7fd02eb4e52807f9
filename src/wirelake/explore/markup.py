"""HTML, built from values: text is escaped unless it was built here.

Bytes from a wire end up in names, reasons and addresses. Nothing of that can become markup, because only `element` makes `Markup`
and everything else is text to it.

It refuses to know what a page says.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

__all__ = ["Child", "Markup", "anchor", "element", "join", "link", "text", "visible", "vouched"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"]
"""What an element may contain: text, markup, and any number of them."""

_VOID: Final = frozenset({"meta", "br", "hr", "col"})
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")
_KEPT: Final = "\n\t"
_VEILED: Final = ("C",)
"""Categories of characters that are not seen but change what is: controls, overrides of direction, lone surrogates."""


def text(value: str) -> Markup:
    """Escaped, and what would be invisible written out."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(value)))


def visible(value: str) -> str:
    """The same text with what would be invisible, or would change how its neighbours look, written out."""
    return "".join(
        one if one in _KEPT or not unicodedata.category(one).startswith(_VEILED) else one.encode("unicode_escape").decode() for one in value
    )


def vouched(value: str) -> Markup:
    """HTML from a part that escapes by itself: the chart library, or our own style sheet."""
    return Markup(value)


def anchor(*words: str) -> str:
    """The id of a place in the page: letters, digits and dashes, whatever the words are; others than these are written as hex digits."""
    return "-".join(word if _PLAIN.fullmatch(word) else f"x{word.encode('utf-8', 'surrogatepass').hex()}" for word in words)


def link(target: str, *children: Child) -> Markup:
    """A link to a place in this page, by its `anchor`: it leads nowhere else."""
    return element("a", *children, href=f"#{target}")


def join(children: Iterable[Child]) -> Markup:
    """One after the other."""
    return Markup("".join(text(child) if isinstance(child, str) else join(child) for child in children))


def element(name: str, /, *children: Child, **attributes: str | None) -> Markup:
    """An element; attributes that are None are left out, `class_` is class and `data_label` is data-label."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(children)}</{name}>")

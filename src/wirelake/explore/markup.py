"""Build HTML; text is escaped unless this module built it.

Bytes from the wire end up in names, reasons and addresses. They cannot become markup: only `element` makes `Markup`, and it escapes
everything else.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Final

import wirelake.text

__all__ = ["Child", "Markup", "anchor", "element", "join", "link", "text", "trusted", "visible"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable["Child"]
"""Contents of an element: text, markup, or any number of them."""

_VOID: Final = frozenset({"meta", "br", "hr", "col"})
_PLAIN: Final = re.compile(r"[A-Za-z0-9_]+")


def text(value: str) -> Markup:
    """Escape a text, with invisible characters written out."""
    return value if isinstance(value, Markup) else Markup(html.escape(visible(value)))


def visible(value: str) -> str:
    """Write out invisible characters, and those that change how their neighbours look. Lines and tabs stay."""
    return wirelake.text.visible(value, kept="\n\t")


def trusted(value: str) -> Markup:
    """Mark HTML as safe: that of the chart library, or our own style sheet."""
    return Markup(value)


def anchor(*words: str) -> str:
    """Make the id of a place in the page from any words: letters, digits and dashes.

    A word with others becomes hex digits.
    """
    return "-".join(word if _PLAIN.fullmatch(word) else f"x{word.encode('utf-8', 'surrogatepass').hex()}" for word in words)


def link(target: str, *children: Child) -> Markup:
    """Make a link to a place in this page, by its `anchor`."""
    return element("a", *children, href=f"#{target}")


def join(children: Iterable[Child]) -> Markup:
    """Concatenate children."""
    return Markup("".join(text(child) if isinstance(child, str) else join(child) for child in children))


def element(name: str, /, *children: Child, **attributes: str | None) -> Markup:
    """Make an element.

    Attributes that are None are left out, `class_` is class and `data_label` is data-label.
    """
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")

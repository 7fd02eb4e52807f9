"""Text from traffic, made safe to show: control characters and escape sequences become visible."""

from __future__ import annotations

__all__ = ["visible"]


def visible(text: str) -> str:
    """The same text on one line, with every character that a terminal would act on written as an escape such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)

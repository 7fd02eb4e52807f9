"""Make text from traffic safe to print: control characters become visible."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ACTING", "visible"]

ACTING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1 controls, newline and tab included
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, line breaks, changes of direction
    "\ud800-\udfff"  # lone surrogates
    "\U000e0000-\U000e007f]"  # tags
)
"""Characters that act on a terminal or a log, or are invisible."""
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, kept: str = "") -> str:
    """Write out control characters, changes of direction and lone surrogates, but for those in `kept`. Without, the result is one line."""
    return text if text.isprintable() else ACTING.sub(lambda found: found[0] if found[0] in kept else _escape(found), text)


def _escape(found: re.Match[str]) -> str:
    if found[0] in _NAMED:
        return _NAMED[found[0]]
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x1_0000 else f"\\U{code:08x}"

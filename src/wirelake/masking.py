"""Mask secrets in messages, logs, errors, progress and tables.

`mask` hides values with a secret name (`token=…`, a password in a URL), and every value registered with `keep_secret`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["MASK", "keep_secret", "keep_secrets", "looks_secret", "mask"]

MASK: Final = "***"
"""Shown in place of a secret."""
_SHORTEST: Final = 4
"""Minimum length of a value that is hidden everywhere.

A shorter one would match parts of ordinary words.
"""

_WORDS: Final = r"(?:token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|account|private)[._-]?key)"
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
_VALUE: Final = r"""(?:'[^']*'|"[^"]*"|[^\s;&,'"]*[^\s;&,'":])"""
_NAMED: Final = re.compile(rf"([\w.-]*{_WORDS}[\w.-]*=){_VALUE}", re.IGNORECASE)
_USER: Final = re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+@")

_secrets: Final[set[str]] = set()


def looks_secret(name: str) -> bool:
    """Tell whether a setting of this name is a secret."""
    return bool(_NAME.search(name))


def keep_secret(value: str) -> None:
    """Hide this value from now on."""
    if len(value) >= _SHORTEST:
        _secrets.add(value)


def keep_secrets(settings: Mapping[str, str]) -> None:
    """Hide the values of all settings whose names look secret."""
    for name, value in settings.items():
        if looks_secret(name):
            keep_secret(value)


def mask(text: str) -> str:
    """Return the text with secrets masked."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _USER.sub(rf"\g<1>{MASK}@", _NAMED.sub(rf"\g<1>{MASK}", text))

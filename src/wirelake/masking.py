"""Masking: secrets never appear in messages, logs, errors, progress or tables.

`mask` hides what looks like a secret by its name (`token=…`, a password in a URL), and every value that `keep_secret` was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["MASK", "keep_secret", "keep_secrets", "looks_secret", "mask"]

MASK: Final = "***"
"""What is shown in place of a secret."""
_SHORTEST: Final = 4
"""Characters that a value needs to be hidden wherever it occurs: a shorter one is in half of all words."""

_WORDS: Final = r"(?:token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|account|private)[._-]?key)"
_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
_VALUE: Final = r"""(?:'[^']*'|"[^"]*"|[^\s;&,'"]*[^\s;&,'":])"""
_NAMED: Final = re.compile(rf"([\w.-]*{_WORDS}[\w.-]*=){_VALUE}", re.IGNORECASE)
_USER: Final = re.compile(r"(\w+://[^\s/:@]*:)[^\s/@]+@")

_secrets: Final[set[str]] = set()


def looks_secret(name: str) -> bool:
    """Whether the value of a setting with this name is a secret."""
    return bool(_NAME.search(name))


def keep_secret(value: str) -> None:
    """Hide this value from now on, wherever it occurs."""
    if len(value) >= _SHORTEST:
        _secrets.add(value)


def keep_secrets(settings: Mapping[str, str]) -> None:
    """Hide the values of all settings whose names look secret."""
    for name, value in settings.items():
        if looks_secret(name):
            keep_secret(value)


def mask(text: str) -> str:
    """The same text without secrets."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _USER.sub(rf"\g<1>{MASK}@", _NAMED.sub(rf"\g<1>{MASK}", text))

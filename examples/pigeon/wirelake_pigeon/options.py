"""Options of a session."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake_pigeon.scanner import Limits

__all__ = ["DEFAULT_OPTIONS", "Limits", "Options"]


class Options(msgspec.Struct, frozen=True):
    """Options of a session; times are seconds."""

    limits: Limits = Limits()
    hello_timeout: float = 5.0
    """How long to wait for the peer's hello."""


DEFAULT_OPTIONS: Final = Options()

"""Options of a session. They include its limits, so that a user passes one flat object."""

from __future__ import annotations

from typing import Final

from wirelake_pigeon.scanner import Limits

__all__ = ["DEFAULT_OPTIONS", "Limits", "Options"]


class Options(Limits, frozen=True, kw_only=True):
    """Options of a session; times are seconds."""

    hello_timeout: float = 5.0
    """How long to wait for the peer's hello."""

    @property
    def limits(self) -> Limits:
        """The same object, as the limits of its messages."""
        return self


DEFAULT_OPTIONS: Final = Options()

"""The trust of either side in the other, and the session keys."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.protocols.wolpertinger.wire import Keys

__all__ = ["STRANGER", "TrustState"]


class TrustState(msgspec.Struct, frozen=True):
    """Trust levels, 0 to 4, are kept by each side for itself."""

    granted: int = 0
    """The trust level of the peer here."""
    held: int = 0
    """Our trust level there, as far as we know."""
    keys: Keys | None = None
    """WOLP-24: the session keys; everything is encrypted with them."""
    awarded: int | None = None
    """WOLP-27: the level of the peer's AwardTrustLevel; it has no effect."""

    user: str | None = None
    """WOLP-25: the user that the peer proved to be, in lower case."""

    @property
    def encrypted(self) -> bool:
        """WOLP-22: whether keys were exchanged."""
        return self.keys is not None

    def raised(self, *, granted: int = 0, held: int = 0, keys: Keys | None = None) -> TrustState:
        """The same, with at least these levels."""
        levels = {"granted": max(self.granted, granted), "held": max(self.held, held)}
        return msgspec.structs.replace(self, keys=keys or self.keys, **levels)


STRANGER: Final = TrustState()

"""What a lake was told when it was made, and holds to ever after: what its tables say must not depend on who added to it, or when.

It refuses to know what the settings are for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import LakeError
from wirelake.lake.store import journal
from wirelake.lake.tables.exchanges import LATE_SECONDS

__all__ = ["Settings", "hold", "of"]

_NAME: Final = "settings.json"


class Settings(msgspec.Struct, frozen=True):
    """One value each for the whole lake."""

    late_seconds: float = LATE_SECONDS
    """Seconds after which an answer counts as late."""


def of(lake: Path) -> Settings:
    """What the lake was told; the defaults, if it was told nothing."""
    content = journal.read(lake, _NAME)
    if content is None:
        return Settings()
    try:
        return msgspec.json.decode(content, type=Settings)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_NAME} cannot be read: {error}") from error


def hold(lake: Path, late_seconds: float | None = None) -> Settings:
    """Tell a lake that was told nothing yet; None leaves it as it is, and another value than it has is refused."""
    wanted = Settings() if late_seconds is None else Settings(late_seconds)
    if journal.read(lake, _NAME) is None:
        journal.write(lake, _NAME, msgspec.json.encode(wanted))
    settled = of(lake)
    if late_seconds is not None and settled != wanted:
        raise LakeError(
            f"{lake} counts answers as late after {settled.late_seconds:g} s, not {late_seconds:g} s: that was settled when it was made"
        )
    return settled

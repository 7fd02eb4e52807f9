"""Settings fixed when a lake is created.

Immutable, because table contents must not depend on which ingest wrote them.
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
    """The settings of a lake."""

    late_seconds: float = LATE_SECONDS
    """Seconds after which an answer counts as late."""


def of(lake: Path) -> Settings:
    """Return the settings of a lake; the defaults if it has none yet."""
    content = journal.read(lake, _NAME)
    if content is None:
        return Settings()
    try:
        return msgspec.json.decode(content, type=Settings)
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_NAME} cannot be read: {error}") from error


def hold(lake: Path, late_seconds: float | None = None) -> Settings:
    """Store the settings of a new lake.

    Raises LakeError if the lake has another value; None accepts what it has.
    """
    wanted = Settings() if late_seconds is None else Settings(late_seconds)
    if journal.read(lake, _NAME) is None:
        journal.write(lake, _NAME, msgspec.json.encode(wanted))
    stored = of(lake)
    if late_seconds is not None and stored != wanted:
        raise LakeError(
            f"{lake} counts answers as late after {stored.late_seconds:g} s, not {late_seconds:g} s: that was fixed when it was created"
        )
    return stored

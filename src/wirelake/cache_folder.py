"""The user's cache folder: what is made once there makes later runs faster. All of it may be deleted."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(name: str) -> Path | None:
    """Return the folder `wirelake/NAME` in the user's cache folder, created if there is none; None if it cannot be written.

    The cache folder of a user is that of the XDG base directory specification.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        folder = (chosen if chosen.is_absolute() else Path.home() / ".cache") / "wirelake" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only, or a user without a home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None

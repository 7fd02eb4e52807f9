"""Tidying: many small files of a silver table made one, while others read and write.

Following publishes a few small files every second or so, and every one of them costs whoever reads the table. The files that are replaced
stay for some minutes, so that whoever reads them may finish.

It refuses to change what a table says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from wirelake.lake import delta
from wirelake.lake.catalog import SILVER

__all__ = ["KEPT_SECONDS", "MANY", "SMALL_BYTES", "Tidier"]

MANY: Final = 64
"""Small files of a table that are left alone."""
SMALL_BYTES: Final = 16 * 1024 * 1024
LARGE_BYTES: Final = 64 * 1024 * 1024
"""What small files become together, at most."""
KEPT_SECONDS: Final = 300.0
"""How long files stay that were replaced."""


class Tidier:
    """Tidies one lake now and then."""

    def __init__(self, lake: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._lake = lake
        self._now = now
        self._replaced: dict[Path, float] = {}
        """Files nobody counts any more, and since when."""

    def sweep(self) -> None:
        """Remove what was replaced before anybody remembered it: nobody is reading that any more."""
        for table in SILVER:
            delta.sweep(self._lake, table)

    def tidy(self, *, always: bool = False) -> int:
        """Make small files one where there are many, or wherever there are two; says in how many tables."""
        for path, since in list(self._replaced.items()):
            if self._now() - since >= KEPT_SECONDS:
                path.unlink(missing_ok=True)
                del self._replaced[path]
        tidied = 0
        for table in SILVER:
            before = delta.files(self._lake, table)
            small = [path for path in before if path.stat().st_size < SMALL_BYTES]
            if len(small) < 2 or (len(small) <= MANY and not always):
                continue
            try:
                DeltaTable(delta.folder(self._lake, table)).optimize.compact(target_size=LARGE_BYTES, max_concurrent_tasks=1)
            except CommitFailedError:  # somebody else was faster: next time
                continue
            self._replaced |= dict.fromkeys(set(before) - set(delta.files(self._lake, table)), self._now())
            tidied += 1
        return tidied

"""Tidying: many small files of a silver table made one, while others read and write.

Following publishes a few small files every second or so, and every one of them costs whoever reads the table. The files that are replaced
stay until the next tidying, so that whoever reads them may finish.

It refuses to change what a table says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from wirelake.lake import delta
from wirelake.lake.catalog import SILVER

__all__ = ["MANY", "SMALL_BYTES", "Tidier"]

MANY: Final = 64
"""Small files of a table that are left alone."""
SMALL_BYTES: Final = 16 * 1024 * 1024
LARGE_BYTES: Final = 64 * 1024 * 1024
"""What small files become together, at most."""


class Tidier:
    """Tidies one lake now and then."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._replaced: set[Path] = set()

    def tidy(self, *, always: bool = False) -> int:
        """Make small files one where there are many, or wherever there are two; says in how many tables."""
        for path in self._replaced:
            path.unlink(missing_ok=True)
        self._replaced.clear()
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
            self._replaced |= set(before) - set(delta.files(self._lake, table))
            tidied += 1
        return tidied

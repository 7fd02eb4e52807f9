"""A lake with every table and no rows."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from wirelake.lake.store import delta, journal
from wirelake.lake.tables.catalog import TABLES


@functools.cache
def _template() -> Path:
    """Made once for all tests of this process: to create seventeen tables takes half a second."""
    kept = tempfile.TemporaryDirectory()
    atexit.register(kept.cleanup)
    lake = Path(kept.name) / "lake"
    journal.initialise(lake)
    for table in TABLES.values():
        delta.create(lake, table)
    return lake


def fresh_lake(folder: Path) -> Path:
    """Make such a lake."""
    shutil.copytree(_template(), folder)
    return folder

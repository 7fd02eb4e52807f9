"""Haste: a Spark that has little to do, and is stopped afterwards, is started so that it begins quickly.

It refuses to start anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wirelake.capture.files.source_file import is_elsewhere, local_path
from wirelake.lake.session.settings import SHORT_SESSION, SHORT_SESSION_BYTES
from wirelake.lake.store import delta
from wirelake.lake.tables import messages

__all__ = ["for_one_ingest"]


def for_one_ingest(lake: Path, files: Iterable[str]) -> dict[str, str]:
    """Settings for a session that ends with this ingest: nothing special if there is much to do, or nobody knows how much."""
    known = sum(file.size for file in delta.entries(lake, messages.TABLE))  # which may have to be read again
    for path in files:
        if is_elsewhere(path):
            return {}
        try:
            known += Path(local_path(path)).stat().st_size
        except OSError:  # it is gone in this moment: the ingest will say so
            return {}
    return dict(SHORT_SESSION) if known <= SHORT_SESSION_BYTES else {}

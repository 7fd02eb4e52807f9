"""Names of the files of gold tables.

A file `leaf-FIRST-LAST-…` has the rows of a range of hash slots, and is replaced whenever one of them changes. A file `settled-SESSION-…`
has rows of one session that only change if something becomes known of the session's past.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from wirelake.lake.store.slots import SLOTS, slot

__all__ = ["leaf_name", "session_of", "settled_name", "slots_of"]

_LEAF: Final = re.compile(r"leaf-(\d{4})-(\d{4})-[0-9a-f]+\.parquet$")
_SETTLED: Final = re.compile(r"settled-((?:[0-9a-f]{2})+)-[0-9a-f]+\.parquet$")


def leaf_name(first: int, last: int) -> str:
    """A new name for a file of these slots."""
    return f"leaf-{first:04d}-{last:04d}-{uuid.uuid4().hex}.parquet"


def settled_name(session_id: bytes) -> str:
    """A new name for a file with rows of one session."""
    return f"settled-{session_id.hex()}-{uuid.uuid4().hex}.parquet"


def session_of(path: str) -> bytes | None:
    """The session of a file with settled rows; None for any other file."""
    named = _SETTLED.search(path)
    return bytes.fromhex(named[1]) if named else None


def slots_of(path: str) -> tuple[int, int]:
    """The first and last slot of a file; one that does not say so may have rows of any slot."""
    if named := _LEAF.search(path):
        return int(named[1]), int(named[2])
    session_id = session_of(path)
    return (0, SLOTS - 1) if session_id is None else (slot(session_id), slot(session_id))

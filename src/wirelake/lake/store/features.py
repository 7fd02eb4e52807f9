"""Features of Delta Lake that a table has and this package does not honour.

Another program may turn them on: with deletion vectors, files have rows that do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["unhonoured"]

_HONOURED: Final = frozenset({"appendOnly", "invariants"})
"""What a table has that this package creates."""
_OF_READERS: Final = {2: ("columnMapping",)}
_OF_WRITERS: Final = {3: ("checkConstraints",), 4: ("changeDataFeed", "generatedColumns"), 5: ("columnMapping",), 6: ("identityColumns",)}
"""Version of the protocol -> features that it brings, besides those of earlier ones."""
_NAMED_READER, _NAMED_WRITER = 3, 7
"""From these versions on, features are named one by one."""


def unhonoured(protocol: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the features of a `protocol` action that are not honoured."""
    found = {
        *_brought(protocol.get("minReaderVersion", 1), protocol.get("readerFeatures"), _OF_READERS, _NAMED_READER, "reader"),
        *_brought(protocol.get("minWriterVersion", 1), protocol.get("writerFeatures"), _OF_WRITERS, _NAMED_WRITER, "writer"),
    }
    return tuple(sorted(found - _HONOURED))


def _brought(version: int, names: Iterable[str] | None, known: Mapping[int, tuple[str, ...]], named: int, side: str) -> Iterable[str]:
    if version > named:
        return [f"{side} version {version}"]
    return names or () if version == named else [name for number, more in known.items() if number <= version for name in more]

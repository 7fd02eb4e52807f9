"""What decoding may be told. It travels to tasks as JSON, so it holds no keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from wirelake import protocols
from wirelake.protocols import dialects

__all__ = ["DecodeOptions"]


class DecodeOptions(msgspec.Struct, frozen=True):
    """What decoding may be told."""

    rooms: dict[str, dict[str, Any]] = {}
    """Protocol -> what its `Limits` are told. What is not named is as the room has it, or as the recording says for its dialect."""
    json_bodies: bool = True
    """Fill `body_json` where a body is a JSON object or array."""
    max_raw: int = 1024 * 1024
    """Bytes of one row of `quarantine`; longer stretches take several."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Bytes of decoded rows that a task holds before it writes them. Bodies that inflate to more together are decoded in several batches;
    one that alone inflates to more is over the limit, as if its room's limit were this. Decoding takes about ten times this memory."""

    def limits(self, protocol: str, spoken: Iterable[str] = ()) -> Any:
        """The limits of one room for connections of a dialect; what `rooms` says of the dialect wins."""
        kind = protocols.room(protocol).Limits
        return msgspec.convert(dialects.settings(kind, self.rooms.get(protocol, {}), spoken), kind)

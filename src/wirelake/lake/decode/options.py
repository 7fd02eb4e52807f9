"""Options of decoding. They travel to tasks as JSON, so they hold no keys."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wirelake import protocols
from wirelake.protocols import dialects
from wirelake.protocols.protocol import Limits

__all__ = ["DecodeOptions"]


class DecodeOptions(msgspec.Struct, frozen=True):
    """How captures are decoded."""

    protocol_limits: dict[str, dict[str, object]] = msgspec.field(default_factory=dict, name="rooms")
    """Protocol -> fields of its limits. Other fields have their default, or the dialect that the recording names."""
    json_bodies: bool = True
    """Fill `body_json` where a body is a JSON object or array."""
    max_raw: int = 1024 * 1024
    """Bytes of one row of `quarantine`; longer ranges take several."""
    max_batch_bytes: int = 64 * 1024 * 1024
    """Bytes of decoded rows that a task holds before it writes them.

    Bodies that inflate to more together are decoded in several batches; one that alone inflates to more is over the limit, as if its
    protocol's limit were this. Decoding takes about ten times this memory.
    """

    def limits(self, protocol: str, spoken: Iterable[str] = ()) -> Limits:
        """The limits of one protocol for connections of a dialect.

        Flags in `protocol_limits` win over the dialect.
        """
        descriptor = protocols.get(protocol)
        flags = dialects.settings(descriptor.dialects, self.protocol_limits.get(protocol, {}), spoken)
        return msgspec.convert(flags, descriptor.limits)

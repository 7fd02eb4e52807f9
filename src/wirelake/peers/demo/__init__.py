"""Record traffic for the demo: loopback peers of every protocol; some break rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wirelake.peers.demo import emp, event_mesh, relink, wolpertinger, yamp

__all__ = ["KEYS", "record"]

KEYS = (event_mesh.KEYS, wolpertinger.KEYS)
"""Key files among the recordings: for verifying packets, and for decryption."""

_SHARES = {emp: 1.0, event_mesh: 0.25, relink: 0.5, yamp: 0.25, wolpertinger: 0.25}
"""Traffic generator -> its share of the requested volume; a mesh of three nodes multiplies messages."""


async def record(folder: Path, messages: int, progress: Callable[[int, int], None] = lambda _done, _total: None) -> list[Path]:
    """Make about so many requests, and other demo traffic; returns the recordings."""
    recordings, before = [], 0
    total = sum(int(messages * share) for share in _SHARES.values())
    for generator, share in _SHARES.items():
        so_far = before
        recordings += await generator.record(folder, int(messages * share), lambda done, _, so_far=so_far: progress(so_far + done, total))
        before += int(messages * share)
    return recordings

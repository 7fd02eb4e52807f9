"""A fingerprint of the ports, limits and decryption keys that each batch was decoded with.

It shows when options can no longer take effect. The options themselves, such as session keys, are never written to the lake.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from wirelake.errors import LakeError
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.store import delta, journal
from wirelake.lake.tables import ledger

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["differently", "fingerprint", "note"]

_NAME: Final = "decoded.json"
_UNKNOWN: Final = ""
"""Of batches that an older wirelake read."""


class _Since(msgspec.Struct, frozen=True, array_like=True):
    batch: int
    """The first batch that was decoded so; all up to the next entry were."""
    fingerprint: str


def fingerprint(options: DecodeOptions, ports: Mapping[int, str], keyring: Keyring | None, keys: TrustStore | None = None) -> str:
    """Stands for these options: the same for equal ones, another for others. Of `keys` only those count that decrypt."""
    pairs = [(one.key.hex(), one.iv.hex()) for one in keyring or ()]
    if keys is not None:
        pairs += [(key_id.hex(), key.hex()) for key_id, key in keys.encryption.items()]
    text = msgspec.json.encode([options, sorted(ports.items()), sorted(pairs)], order="deterministic")
    return blake2b(text, digest_size=16).hexdigest()


def _known(lake: Path) -> list[_Since]:
    content = journal.read(lake, _NAME)
    try:
        return [] if content is None else msgspec.json.decode(content, type=list[_Since])
    except msgspec.DecodeError as error:
        raise LakeError(f"{lake} is damaged: {journal.FOLDER}/{_NAME} cannot be read: {error}") from error


def note(lake: Path, batch: int, how: str) -> None:
    """Write down how a batch, and those after it, are going to be decoded.

    Numbers of batches that were given up are used again.
    """
    known = _known(lake)
    kept = [one for one in known if one.batch < batch]
    if (kept[-1].fingerprint if kept else _UNKNOWN) != how:
        kept.append(_Since(batch, how))
    if kept != known:
        journal.write(lake, _NAME, msgspec.json.encode(kept))


def differently(lake: Path, sources: Mapping[str, bytes], how: str, *, certain: bool = False) -> list[str]:
    """Those of these sources (path -> id) that the lake has, and that were decoded with other options.

    Partly is enough. With `certain`, only sources whose options the lake knows.
    """
    if not sources:
        return []
    known = _known(lake)
    ledger_entries = delta.dataset(lake, ledger.TABLE).to_table(columns=["source_id", "batch"])
    batches: dict[bytes, set[int]] = {}
    for row in ledger_entries.group_by(["source_id", "batch"]).aggregate([]).to_pylist():
        batches.setdefault(row["source_id"], set()).add(row["batch"])

    def decoded(batch: int) -> str:
        return next((one.fingerprint for one in reversed(known) if one.batch <= batch), _UNKNOWN)

    same = {how, _UNKNOWN} if certain else {how}
    return [path for path, source in sources.items() if any(decoded(batch) not in same for batch in batches.get(source, ()))]

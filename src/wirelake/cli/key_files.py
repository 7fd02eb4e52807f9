"""Files of `--keys`: trust files of Event Mesh and key logs of wolpertinger.

The first byte distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake.errors import UsageError, WirelakeError

if TYPE_CHECKING:
    from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring
    from wirelake.protocols.wolpertinger.wire import Keys

__all__ = ["keys_in"]


def keys_in(paths: Iterable[Path]) -> tuple[TrustStore | None, Keyring | None]:
    """Read a trust store and session keys from these files; None for a kind that none of them has.

    Raises UsageError.
    """
    files = list(paths)
    if not files:
        return None, None
    from wirelake.peers import key_log, private_file, trust_file  # noqa: PLC0415 - imports protocols, for keys only
    from wirelake.protocols.event_mesh.security.trust import TrustStore  # noqa: PLC0415
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring  # noqa: PLC0415

    trusted: list[Key] = []
    opening: list[tuple[bytes, bytes]] = []
    sessions: list[Keys] = []
    kinds = set()
    for path in files:
        is_trust_file = private_file.load_bytes(path).lstrip().startswith(b"{")
        kinds.add(is_trust_file)
        if is_trust_file:
            store = trust_file.load(path)
            trusted += store
            opening += store.encryption.items()
        else:
            sessions += key_log.load(path)
    try:
        merged = TrustStore(trusted)
        for key_id, key in opening:
            merged.add_encryption(key_id, key)
        return merged if True in kinds else None, Keyring(sessions) if False in kinds else None
    except UsageError:
        raise
    except WirelakeError as reason:
        raise UsageError(f"--keys: {reason}") from None

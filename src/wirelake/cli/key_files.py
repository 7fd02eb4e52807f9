"""Files of `--keys`: trust files of Event Mesh and key logs of wolpertinger.

The first byte distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wirelake.errors import UsageError, WirelakeError
from wirelake.peers import key_log, private_file, trust_file
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.protocols.wolpertinger.trust.keyring import Keyring
from wirelake.protocols.wolpertinger.wire import Keys

__all__ = ["keys_in"]


def keys_in(paths: Iterable[Path]) -> tuple[TrustStore | None, Keyring | None]:
    """Read a trust store and session keys from these files; None for a kind that none of them has.

    Raises UsageError.
    """
    trusted: list[Key] = []
    sessions: list[Keys] = []
    kinds = set()
    for path in paths:
        is_trust_file = private_file.load_bytes(path).lstrip().startswith(b"{")
        kinds.add(is_trust_file)
        if is_trust_file:
            trusted += trust_file.load(path)
        else:
            sessions += key_log.load(path)
    try:
        return TrustStore(trusted) if True in kinds else None, Keyring(sessions) if False in kinds else None
    except UsageError:
        raise
    except WirelakeError as reason:
        raise UsageError(f"--keys: {reason}") from None

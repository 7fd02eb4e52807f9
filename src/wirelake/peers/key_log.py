"""Key logs of wolpertinger sessions, as files that only their owner may read.

See `protocols.wolpertinger.trust.keyring`.
"""

from __future__ import annotations

import os
from pathlib import Path

from wirelake.errors import UsageError
from wirelake.peers.private_file import PRIVATE, load_bytes
from wirelake.protocols.wolpertinger.trust.keyring import Keyring, log_line, read_log
from wirelake.protocols.wolpertinger.wire import Keys

__all__ = ["append", "load", "make"]


def load(path: str | Path) -> Keyring:
    """The keys in a file; raises UsageError if it is no key log, or if others may read it."""
    content = load_bytes(path)
    try:
        return read_log(content)
    except UsageError as reason:
        raise UsageError(f"{path}: not a key log: {reason}") from None


def make(path: str | Path) -> None:
    """Check that keys can be written there.

    Raises UsageError if not, or if the file is no key log.
    """
    _write(path, b"")
    load(path)


def append(path: str | Path, keys: Keys) -> None:
    """Append the keys of one session, in one write.

    A missing file is created, readable for its owner only.
    """
    _write(path, log_line(keys))


def _write(path: str | Path, line: bytes) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        try:
            os.write(number, line)
        finally:
            os.close(number)
    except OSError as reason:
        raise UsageError(f"{path}: {reason.strerror}") from None

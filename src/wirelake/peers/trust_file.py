"""Trust stores and credentials of nodes as JSON files that only their owner may read.

A file is replaced atomically: written and synced beside the old one, then renamed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from wirelake.errors import UsageError, WirelakeError
from wirelake.protocols.event_mesh.packet.builder import Credentials
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

__all__ = ["load", "load_bytes", "load_credentials", "save", "save_bytes", "save_credentials"]

_FORMAT: Final = "wirelake-trust-1"
_NODE_FORMAT: Final = "wirelake-node-1"
PRIVATE: Final = 0o600


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One key; bytes are hex."""

    node_id: str
    auth_key_id: str | None = None
    secret: str | None = None
    public_key: str | None = None
    valid_from: int = 0
    revoked_from: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    format: str
    keys: list[_Entry]


class _Node(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file of a node's own credentials; bytes are hex."""

    format: str
    node_id: str
    auth_key_id: str | None = None
    secret: str | None = None
    seed: str | None = None
    with_public_key: bool = False


def load_credentials(path: str | Path) -> Credentials:
    """The credentials in a file; raises UsageError if it holds none, or if others may read it."""
    try:
        found = msgspec.json.decode(load_bytes(path), type=_Node)
        if found.format != _NODE_FORMAT:
            raise UsageError(f"{path}: not the credentials of a node: {found.format[:40]!r}")
        return Credentials(
            bytes.fromhex(found.node_id), _octets(found.auth_key_id), _octets(found.secret), _octets(found.seed), found.with_public_key
        )
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as reason:
        raise UsageError(f"{path}: not the credentials of a node: {reason}") from None


def save_credentials(path: str | Path, own: Credentials) -> None:
    """Write a node's own credentials, as `save` writes a store."""
    node = _Node(_NODE_FORMAT, own.node_id.hex(), _text(own.auth_key_id), _text(own.secret), _text(own.seed), own.with_public_key)
    save_bytes(path, msgspec.json.format(msgspec.json.encode(node)) + b"\n")


def load(path: str | Path) -> TrustStore:
    """The store in a file; raises UsageError if it is none, or if others may read it."""
    content = load_bytes(path)
    try:
        found = msgspec.json.decode(content, type=_File)
        if found.format != _FORMAT:
            raise UsageError(f"{path}: not a trust store of this version: {found.format[:40]!r}")
        return TrustStore(_key(one) for one in found.keys)
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as reason:
        raise UsageError(f"{path}: not a trust store: {reason}") from None
    except WirelakeError as reason:
        raise UsageError(f"{path}: {reason}") from None


def save(path: str | Path, store: TrustStore) -> None:
    """Write a store atomically, readable by its owner only."""
    save_bytes(path, msgspec.json.format(msgspec.json.encode(_File(_FORMAT, [_entry(key) for key in store]))) + b"\n")


def load_bytes(path: str | Path) -> bytes:
    """What a private file holds; raises UsageError if it cannot be read, or if others may."""
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"{path}: not a file")
            if mode & 0o077:
                raise UsageError(f"{path}: others may read or write this file: chmod 600 {path}")
            return file.read()
    except OSError as reason:
        raise UsageError(f"{path}: {reason.strerror}") from None


def save_bytes(path: str | Path, content: bytes) -> None:
    """Replace a private file: written and synced beside it under another name, then renamed."""
    path = Path(path)
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    except OSError as reason:
        raise UsageError(f"{path}: {reason.strerror}") from None
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(file.fileno(), PRIVATE)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException as reason:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        if isinstance(reason, OSError):
            raise UsageError(f"{path}: {reason.strerror}") from None
        raise


def _key(entry: _Entry) -> Key:
    return Key(
        bytes.fromhex(entry.node_id),
        _octets(entry.auth_key_id),
        _octets(entry.secret),
        _octets(entry.public_key),
        entry.valid_from,
        entry.revoked_from,
    )


def _octets(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _entry(key: Key) -> _Entry:
    return _Entry(key.node_id.hex(), _text(key.auth_key_id), _text(key.secret), _text(key.public_key), key.valid_from, key.revoked_from)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.hex()

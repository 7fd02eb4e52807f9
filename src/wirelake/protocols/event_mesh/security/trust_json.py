"""A trust store as JSON, both ways: the content of the files of `wirelake keys`."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.errors import UsageError, WirelakeError
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

__all__ = ["read_store", "write_store"]

_FORMAT: Final = "wirelake-trust-1"


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


def read_store(content: bytes) -> TrustStore:
    """The store in the content of a file; raises UsageError if it is none."""
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.format != _FORMAT:
            raise UsageError(f"not a trust store of this version: {file.format[:40]!r}")
        return TrustStore(_key(entry) for entry in file.keys)
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as reason:
        raise UsageError(f"not a trust store: {reason}") from None
    except WirelakeError as reason:
        raise UsageError(str(reason)) from None


def write_store(store: TrustStore) -> bytes:
    """The content of a file for a store."""
    return msgspec.json.format(msgspec.json.encode(_File(_FORMAT, [_entry(key) for key in store]))) + b"\n"


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

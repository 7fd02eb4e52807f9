"""A trust store as JSON, both ways: the content of the files of `wirelake keys`."""

from __future__ import annotations

from typing import Final

import msgspec

from wirelake.errors import UsageError, WirelakeError
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

__all__ = ["NODE_FORMAT", "read_store", "write_store"]

_FORMAT: Final = "wirelake-trust-1"
NODE_FORMAT: Final = "wirelake-node-1"
"""The format of a node's own credentials, which `peers.trust_file` reads."""
_KEY_LOG: Final = b"wolpertinger "


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One key; bytes are hex."""

    node_id: str
    auth_key_id: str | None = None
    secret: str | None = None
    public_key: str | None = None
    valid_from: int = 0
    revoked_from: int | None = None


class _EncryptionEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One key that opens payloads; bytes are hex."""

    key_id: str
    key: str


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The whole file."""

    format: str
    keys: list[_Entry]
    encryption: list[_EncryptionEntry] = []


class _Head(msgspec.Struct):
    """What tells files apart."""

    format: str = ""


def read_store(content: bytes) -> TrustStore:
    """The store in the content of a file; raises UsageError if it is none."""
    if content.startswith(_KEY_LOG):
        raise UsageError("a log of wolpertinger's session keys, not a trust file of Event Mesh (see `wirelake keys`)")
    try:
        head = msgspec.json.decode(content, type=_Head)
        if head.format == NODE_FORMAT:
            raise UsageError("the keys of one node itself, for --own: give the trust file that `wirelake keys generate` made with it")
        if head.format != _FORMAT:
            raise UsageError(f"not a trust store of this version: {head.format[:40]!r}")
        file = msgspec.json.decode(content, type=_File)
        store = TrustStore(_key(entry) for entry in file.keys)
        for entry in file.encryption:
            store.add_encryption(bytes.fromhex(entry.key_id), bytes.fromhex(entry.key))
        return store
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as reason:
        raise UsageError(f"not a trust store: {reason}") from None
    except WirelakeError as reason:
        raise UsageError(str(reason)) from None


def write_store(store: TrustStore) -> bytes:
    """The content of a file for a store."""
    opening = [_EncryptionEntry(key_id.hex(), key.hex()) for key_id, key in store.encryption.items()]
    return msgspec.json.format(msgspec.json.encode(_File(_FORMAT, [_entry(key) for key in store], opening))) + b"\n"


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

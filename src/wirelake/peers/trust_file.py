"""Trust stores and credentials of nodes as JSON files that only their owner may read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from wirelake.errors import UsageError
from wirelake.peers.private_file import load_bytes, save_bytes
from wirelake.protocols.event_mesh.packet.builder import Credentials
from wirelake.protocols.event_mesh.security.trust import TrustStore
from wirelake.protocols.event_mesh.security.trust_json import NODE_FORMAT, read_store, write_store

__all__ = ["load", "load_credentials", "save", "save_credentials"]


class _Head(msgspec.Struct):
    """What tells files apart."""

    format: str = ""


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
        content = load_bytes(path)
        if (head := msgspec.json.decode(content, type=_Head)).format != NODE_FORMAT:
            raise UsageError(f"{path}: not the keys of a node itself (--own), which `wirelake keys generate` makes: {head.format[:40]!r}")
        found = msgspec.json.decode(content, type=_Node)
        return Credentials(
            bytes.fromhex(found.node_id), _octets(found.auth_key_id), _octets(found.secret), _octets(found.seed), found.with_public_key
        )
    except UsageError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as reason:
        raise UsageError(f"{path}: not the credentials of a node: {reason}") from None


def save_credentials(path: str | Path, own: Credentials) -> None:
    """Write a node's own credentials, as `save` writes a store."""
    node = _Node(NODE_FORMAT, own.node_id.hex(), _text(own.auth_key_id), _text(own.secret), _text(own.seed), own.with_public_key)
    save_bytes(path, msgspec.json.format(msgspec.json.encode(node)) + b"\n")


def load(path: str | Path) -> TrustStore:
    """The store in a file; raises UsageError if it is none, or if others may read it."""
    content = load_bytes(path)
    try:
        return read_store(content)
    except UsageError as reason:
        raise UsageError(f"{path}: {reason}") from None


def save(path: str | Path, store: TrustStore) -> None:
    """Write a store atomically, readable by its owner only."""
    save_bytes(path, write_store(store))


def _octets(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.hex()

"""`wirelake keys`: manage the trust files and node files of Event Mesh."""

from __future__ import annotations

import secrets
import sys
import time
import uuid
from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import seconds_of
from wirelake.cli.terminal import Format, print_objects, say
from wirelake.errors import LocalProtocolError, UsageError
from wirelake.peers import trust_file
from wirelake.protocols.event_mesh.packet.builder import Credentials, public_key_of
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

__all__ = ["keys"]

_TRUST = click.argument("trust", type=click.Path(path_type=Path))
_NODE = click.option("--node", "node", required=True, metavar="UUID", help="The node.")
_KEY_ID = click.option("--key-id", "key_id", metavar="HEX", help="The key's id, 4 bytes in hex; without it, the node's default.")


@click.group()
def keys() -> None:
    """Generate, import, list and revoke keys of Event Mesh nodes.

    A trust file has the public keys and shared secrets of other nodes. A node file has the keys of one node itself. Both are created with
    permissions for their owner only, and are refused if others may read them.
    """


@keys.command()
@click.argument("own", type=click.Path(path_type=Path))
@_TRUST
@click.option("--node", "node", metavar="UUID", help="The node; by default a new one.")
@_KEY_ID
@click.option("--hmac", "with_hmac", is_flag=True, help="A shared secret of 32 bytes, for HMAC-SHA256.")
@click.option("--ed25519", "with_signature", is_flag=True, help="A key pair, for Ed25519 signatures; the default.")
@click.option("--with-public-key", "with_public_key", is_flag=True, help="Send the public key in every packet, for who has no TRUST.")
@click.option("--force", "force", is_flag=True, help="Replace OWN if it exists.")
def generate(
    own: Path,
    trust: Path,
    node: str | None,
    key_id: str | None,
    with_hmac: bool,
    with_signature: bool,
    with_public_key: bool,
    force: bool,
) -> int:
    """Generate the keys of a node: its own go to OWN, the others' part to TRUST, which is created if needed.

    Give TRUST to every node that is to trust this one; OWN stays with the node.
    """
    if own.exists() and not force:
        raise UsageError(f"{own} exists already; --force replaces it")
    if with_public_key and with_hmac and not with_signature:
        raise UsageError("--with-public-key needs --ed25519: an HMAC has no public key")
    node_id = uuid.uuid4().bytes if node is None else _node_id(node)
    auth_key_id = None if key_id is None else _key_id(key_id)
    if auth_key_id is None and (with_signature or not with_hmac):
        auth_key_id = bytes(3) + b"\x01"  # EMM-18: a signature without a key id would have to bring its key along
    seed = secrets.token_bytes(32) if with_signature or not with_hmac else None
    secret = secrets.token_bytes(32) if with_hmac else None
    store = trust_file.load(trust) if trust.exists() else TrustStore()
    _add(store, Key(node_id, auth_key_id, secret, None if seed is None else public_key_of(seed)), trust)
    trust_file.save_credentials(own, Credentials(node_id, auth_key_id, secret, seed, with_public_key))
    trust_file.save(trust, store)
    print(uuid.UUID(bytes=node_id))
    say(f"{own} is for the node itself; {trust} is for the nodes that trust it")
    return ExitCode.OK


@keys.command("import")
@_TRUST
@_NODE
@_KEY_ID
@click.option("--public-key", "public_key", metavar="HEX", help="An Ed25519 public key, 32 bytes in hex.")
@click.option("--secret", "secret", is_flag=True, help="Read a shared secret in hex from standard input.")
@click.option(
    "--encryption",
    "encryption",
    is_flag=True,
    help="Read a key that opens sealed payloads in hex from standard input; --node is its key id.",
)
@click.option("--from", "since", metavar="TIME", help="The key is valid from this time on; older ones of the same id end there.")
def import_(trust: Path, node: str, key_id: str | None, public_key: str | None, secret: bool, encryption: bool, since: str | None) -> int:
    """Add a key of another node to TRUST, which is created if needed."""
    if public_key is None and not secret and not encryption:
        raise UsageError("give --public-key, or --secret or --encryption and the key on standard input")
    store = trust_file.load(trust) if trust.exists() else TrustStore()
    if encryption:
        if public_key is not None or secret or key_id is not None or since is not None:
            raise UsageError("--encryption takes --node alone: a key that opens payloads verifies nothing, and holds at all times")
        try:
            store.add_encryption(_node_id(node), _octets(sys.stdin.readline().strip(), "--encryption"))
        except LocalProtocolError as reason:
            raise UsageError(f"{trust}: {reason}") from None
        trust_file.save(trust, store)
        return ExitCode.OK
    shared = _octets(sys.stdin.readline().strip(), "--secret") if secret else None
    key = Key(_node_id(node), _key_id(key_id), shared, None if public_key is None else _octets(public_key, "--public-key"))
    if since is None:
        _add(store, key, trust)
    else:
        try:
            store.rotate(key, int(seconds_of(since, "--from")))
        except LocalProtocolError as reason:
            raise UsageError(f"{trust}: {reason}") from None
    trust_file.save(trust, store)
    return ExitCode.OK


@keys.command("list")
@_TRUST
@click.option(
    "-T", "--format", "form", type=click.Choice(Format, case_sensitive=False), default=Format.JSON, show_default=True, help="How to print."
)
def list_(trust: Path, form: Format) -> int:
    """Print the keys in TRUST, one per line; secrets are never shown."""
    store = trust_file.load(trust)
    for key_id in store.encryption:
        print_objects({"encryption_key_id": str(uuid.UUID(bytes=key_id))}, form, [])
    for key in store:
        described = {
            "node_id": str(uuid.UUID(bytes=key.node_id)),
            "auth_key_id": None if key.auth_key_id is None else key.auth_key_id.hex(),
            "hmac": key.secret is not None,
            "public_key": None if key.public_key is None else key.public_key.hex(),
            "valid_from": key.valid_from,
            "revoked_from": key.revoked_from,
        }
        print_objects(described, form, [])
    return ExitCode.OK


@keys.command()
@_TRUST
@_NODE
@_KEY_ID
@click.option("--at", "at", metavar="TIME", help="Time from which on the key is revoked; now by default.")
def revoke(trust: Path, node: str, key_id: str | None, at: str | None) -> int:
    """Revoke a key from a time on; `wirelake ingest --keys` then finds the packets in a lake that fail now."""
    store = trust_file.load(trust)
    try:
        revoked = store.revoke(_node_id(node), _key_id(key_id), int(time.time() if at is None else seconds_of(at, "--at")))
    except LocalProtocolError as reason:
        raise UsageError(f"{trust}: {reason}") from None
    trust_file.save(trust, store)
    say(f"the key is revoked from {revoked.revoked_from} on")
    return ExitCode.OK


def _add(store: TrustStore, key: Key, path: Path) -> None:
    try:
        store.add(key)
    except LocalProtocolError as reason:
        raise UsageError(f"{path}: {reason}") from None


def _node_id(text: str) -> bytes:
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        raise UsageError(f"--node {text}: not a UUID") from None


def _key_id(text: str | None) -> bytes | None:
    return None if text is None else _octets(text, "--key-id")


def _octets(text: str, flag: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"{flag}: not an even number of hex digits") from None

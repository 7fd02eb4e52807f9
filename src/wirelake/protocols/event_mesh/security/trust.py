"""Trust: keys of each node, when they are valid, and when a packet's own key counts.

Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from enum import Enum
from typing import Final

import msgspec

from wirelake.errors import LocalProtocolError, UsageError
from wirelake.protocols.event_mesh.faults import Fault

__all__ = ["NODE_ID_SIZE", "SHORTEST_SECRET", "FirstKeys", "FirstUse", "Key", "Policy", "Trust", "TrustStore", "is_weak"]

SHORTEST_SECRET: Final = 16
"""EMM-32: bytes of an HMAC key, at least; 32 are recommended."""
NODE_ID_SIZE: Final = 16
AUTH_KEY_ID_SIZE: Final = 4
PUBLIC_KEY_SIZE: Final = 32
ENCRYPTION_KEY_SIZE: Final = 32
_PRIME: Final = (1 << 255) - 19
_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        _PRIME - 1,
        int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"),
        int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"),
    }
)
"""EMM-32: the y of every point of small order.

A signature under such a key says nothing about who made it.
"""


class Trust(Enum):
    """EMM-17: how trust in a packet was obtained."""

    NONE = "none"
    """There is neither HMAC nor signature."""
    STORE = "store"
    """By a key that was known before."""
    IN_BAND = "in-band"
    """By the key the packet itself brought: proves only that its sender has the private half."""
    FIRST_USE = "first-use"
    """By the packet's own key, accepted on first use because none was known."""


class Key(msgspec.Struct, frozen=True):
    """§4.2, 0x18: one key of a node; times are seconds since 1970."""

    node_id: bytes
    auth_key_id: bytes | None = None
    """None: the node's default, for packets without an Auth Key ID (EMM-18)."""
    secret: bytes | None = None
    """The HMAC secret."""
    public_key: bytes | None = None
    """The Ed25519 public key."""
    valid_from: int = 0
    revoked_from: int | None = None
    """From this time on nothing is accepted by this key."""


FirstUse = Callable[[bytes, bytes | None, bytes], bool]
"""(node id, auth key id, public key) -> whether to trust a key nothing is known about, by which a packet is signed.

To remember it is the caller's to do: `FirstKeys` does.
"""


class FirstKeys:
    """EMM-17: trusts the first proven key of a node and key id, and no other after it; a `FirstUse` that remembers."""

    def __init__(self, capacity: int = 65_536) -> None:
        """With `capacity` keys remembered, no further one is trusted."""
        self._keys: dict[tuple[bytes, bytes | None], bytes] = {}
        self._capacity = capacity

    def __call__(self, node_id: bytes, auth_key_id: bytes | None, public_key: bytes) -> bool:
        """Whether this is the first key of this pair, or the one that was."""
        pair = node_id, auth_key_id
        if pair not in self._keys and len(self._keys) < self._capacity:
            self._keys[pair] = public_key
        return self._keys.get(pair) == public_key


class Policy(msgspec.Struct, frozen=True):
    """The checks of a receiver beyond the form of a packet."""

    trust: Trust = Trust.STORE
    """EMM-17: STORE, or explicitly IN_BAND or FIRST_USE."""
    first_use: FirstUse | None = None
    freshness: bool = True
    """EMM-24: whether authenticated packets must be of about now."""
    unauthenticated_freshness: bool = False
    """EMM-24: whether the others must be, too."""
    unauthenticated: bool = True
    """Whether packets without HMAC and signature are accepted at all."""

    def __post_init__(self) -> None:
        if self.trust is Trust.NONE or (self.trust is Trust.FIRST_USE) != (self.first_use is not None):
            raise UsageError("a policy trusts the store, keys in band, or on first use with a `first_use` callback")


def is_weak(public_key: bytes) -> bool:
    """EMM-32: whether an Ed25519 key is of small order, or not written the one way there is."""
    y = int.from_bytes(public_key, "little") & ((1 << 255) - 1)
    return y >= _PRIME or y in _SMALL_ORDER


class TrustStore:
    """§4.2: keys by (node id, auth key id), and encryption keys by key id.

    Several keys of one pair follow each other in time, so there is never a choice.
    """

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys: dict[tuple[bytes, bytes | None], list[Key]] = {}
        self._nodes: dict[bytes, list[Key]] = {}
        self._encryption: dict[bytes, bytes] = {}
        self.own_keys = Trust.STORE
        """EMM-17: how a history is judged whose packets bring keys along; see `trusting`. A live receiver has its `Policy`."""
        self.first_use: FirstUse | None = None
        """For FIRST_USE: what decides; None: it is decided later, from all of history."""
        self.is_partial = False
        """Whether no keys were given: then only packets are judged that bring all keys along that they need."""
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[Key]:
        return (key for keys in self._keys.values() for key in keys)

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def __repr__(self) -> str:
        """Keys do not belong into logs."""
        return f"TrustStore({len(self)} keys, {len(self._encryption)} encryption keys)"

    @property
    def encryption(self) -> Mapping[bytes, bytes]:
        """EMM-13: the keys that open sealed payloads, by key id."""
        return self._encryption

    @property
    def only_opens(self) -> bool:
        """Whether it has encryption keys, and nothing to verify with."""
        return bool(self._encryption) and not self._keys

    def trusting(self, own_keys: Trust, *, first_use: FirstUse | None = None, is_partial: bool = False) -> TrustStore:
        """The same keys, for a history whose packets' own keys are trusted so."""
        store = copy(self)
        store.own_keys, store.first_use, store.is_partial = own_keys, first_use, is_partial
        return store

    def add_encryption(self, key_id: bytes, key: bytes) -> None:
        """Add a key that opens sealed payloads; a key id without a key of its own is the node id (EMM-16).

        Raises LocalProtocolError if it is malformed, or if the key id has another key.
        """
        if len(key_id) != NODE_ID_SIZE or len(key) != ENCRYPTION_KEY_SIZE:
            raise LocalProtocolError(Fault.FIELD_LENGTH, f"an encryption key has {ENCRYPTION_KEY_SIZE} bytes, and its id {NODE_ID_SIZE}")
        if self._encryption.setdefault(key_id, key) != key:
            raise LocalProtocolError(
                Fault.KEY_MISMATCH, f"key id {key_id.hex()} has another encryption key: give each key an id of its own"
            )

    def add(self, key: Key) -> None:
        """Add a key.

        Raises LocalProtocolError if it is malformed or weak, or if another key of its pair holds at the same time.
        """
        _check(key)
        held = self._keys.get((key.node_id, key.auth_key_id), [])
        for other in held:
            if key.valid_from < _end(other) and other.valid_from < _end(key):
                raise LocalProtocolError(Fault.KEY_MISMATCH, "another key of this node and key id holds at the same time: revoke it first")
        self._put(key.node_id, key.auth_key_id, sorted([*held, key], key=lambda one: one.valid_from))

    def revoke(self, node_id: bytes, auth_key_id: bytes | None, at: int) -> Key:
        """Accept nothing by the latest key of this pair from `at` on.

        A revocation is never taken back or put off.
        """
        held = self._keys.get((node_id, auth_key_id))
        if not held:
            raise LocalProtocolError(Fault.UNKNOWN_KEY, _name(node_id, auth_key_id))
        revoked = msgspec.structs.replace(held[-1], revoked_from=min(at, _end(held[-1])))
        self._put(node_id, auth_key_id, [*held[:-1], revoked])
        return revoked

    def rotate(self, key: Key, at: int, overlap: int = 0) -> None:
        """Let `key` hold from `at` on, and every older key of its node no longer than `overlap` seconds more.

        A key of the same pair cannot overlap with the one it replaces: it ends at `at`.
        """
        fresh = msgspec.structs.replace(key, valid_from=at)
        _check(fresh)
        for pair in [pair for pair in self._keys if pair[0] == key.node_id]:
            self.revoke(*pair, at if pair[1] == key.auth_key_id else at + overlap)
        self.add(fresh)

    def lookup(self, node_id: bytes, auth_key_id: bytes | None, now: float) -> Key | None:
        """EMM-18: the one key of this pair at this time: the last that has begun, be it revoked or not."""
        held = self._keys.get((node_id, auth_key_id))
        if held is None:
            return None
        if held[-1].valid_from <= now:  # nearly always
            return held[-1]
        return next((key for key in reversed(held) if key.valid_from <= now), None)

    def of_node(self, node_id: bytes, now: float) -> list[Key]:
        """EMM-17: every key of a node that has begun, be it revoked or not."""
        return [key for key in self._nodes.get(node_id, ()) if key.valid_from <= now]

    def _put(self, node_id: bytes, auth_key_id: bytes | None, keys: list[Key]) -> None:
        self._keys[node_id, auth_key_id] = keys
        self._nodes[node_id] = [key for pair, held in self._keys.items() if pair[0] == node_id for key in held]


def _end(key: Key) -> float:
    return float("inf") if key.revoked_from is None else key.revoked_from


def _name(node_id: bytes, auth_key_id: bytes | None) -> str:
    return f"node {node_id.hex()}, key id {'none' if auth_key_id is None else auth_key_id.hex()}"


def _check(key: Key) -> None:
    """EMM-11, EMM-32: sizes, and strength."""
    name = _name(key.node_id, key.auth_key_id)
    if len(key.node_id) != NODE_ID_SIZE or (key.auth_key_id is not None and len(key.auth_key_id) != AUTH_KEY_ID_SIZE):
        raise LocalProtocolError(Fault.FIELD_LENGTH, f"{name}: 16 bytes and 4 bytes are needed")
    if key.secret is None and key.public_key is None:
        raise LocalProtocolError(Fault.UNKNOWN_KEY, f"{name}: neither secret nor public key")
    if key.secret is not None and len(key.secret) < SHORTEST_SECRET:
        raise LocalProtocolError(Fault.WEAK_KEY, f"{name}: a secret of {len(key.secret)} bytes, {SHORTEST_SECRET} are the least")
    if key.public_key is not None:
        if len(key.public_key) != PUBLIC_KEY_SIZE:
            raise LocalProtocolError(Fault.FIELD_LENGTH, f"{name}: a public key has {PUBLIC_KEY_SIZE} bytes")
        if is_weak(key.public_key):
            raise LocalProtocolError(Fault.WEAK_KEY, f"{name}: a public key of small order")

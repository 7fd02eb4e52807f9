"""Verifies a received datagram, in the order of EMM-28: form, HMAC, signature, time, replay.

The result names the sender, its key and how trust was obtained; or the one rule for which the packet is dropped. Nothing here answers on
the wire (EMM-30).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import msgspec

from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import CLOCK_SKEW_ALLOWANCE, REPLAY_WINDOW, Message
from wirelake.protocols.event_mesh.scanner import (
    AUTH_KEY_ID,
    HMAC,
    NODE_ID,
    PART_COLUMNS,
    PUBLIC_KEY,
    ROW_COLUMNS,
    SIGNATURE,
    SIGNED,
    TIMESTAMP,
    scan,
    walk,
)
from wirelake.protocols.event_mesh.security.canonical import canonical, mac
from wirelake.protocols.event_mesh.security.replay import ReplayCache
from wirelake.protocols.event_mesh.security.trust import Key, Policy, Trust, TrustStore, is_weak
from wirelake.protocols.event_mesh.wire import message
from wirelake.protocols.kernel import FAULT, FAULT_AT, START, active, array, compiled, positions, table

__all__ = ["Identity", "Receiver", "Rejected", "Scanned", "Verified", "authenticate", "freshness", "node_id_of", "signed_at"]

DEFAULT_POLICY: Final = Policy()
NO_SOURCE: Final = b""
BATCH: Final = 64
"""Datagrams scanned in one go at most."""


class Identity(msgspec.Struct, frozen=True, gc=False):
    """§5.3: the sender of a packet, and the proof of it."""

    trust: Trust
    node_id: bytes | None = None
    """The node id in the packet; proven only if it is authenticated."""
    auth_key_id: bytes | None = None
    """The key id under which the key was found.

    None for a node's default, and for a key that was not in the store.
    """
    hmac: bool = False
    """The HMAC was right."""
    signature: bool = False
    """The signature was right."""
    public_key: bytes | None = None
    """The key the signature was right for."""

    @property
    def authenticated(self) -> bool:
        """Whether anything was proven at all."""
        return self.hmac or self.signature


class Verified(msgspec.Struct, frozen=True, gc=False):
    """A packet that passed every check."""

    message: Message
    identity: Identity
    time: int
    """EMM-24: when it was signed, or created if it does not say; seconds since 1970."""
    fresh: bool
    """Whether that was held against the clock."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A packet that is dropped, and the first rule it breaks."""

    fault: Fault
    offset: int
    node_id: bytes | None = None
    """The sender that it names, proven or not; None if that cannot be read."""


Scanned = tuple[bytes, list[int], list[int]]
"""A scanned datagram: the block it is in, its row, and the parts of all rows of the block."""


def node_id_of(scanned: Scanned) -> bytes | None:
    """The sender that a datagram names; None if it names none, or cannot be read."""
    block, row, _ = scanned
    return _slice(block, row[NODE_ID], 16)


class Receiver:
    """All that a receiver needs to check datagrams.

    The caches are separate, so that unproven entries never displace proven ones.
    """

    def __init__(
        self,
        store: TrustStore,
        policy: Policy = DEFAULT_POLICY,
        limits: Limits = DEFAULT_LIMITS,
        replays: ReplayCache | None = None,
        unproven: ReplayCache | None = None,
    ) -> None:
        self.store = store
        self.policy = policy
        self.replays = ReplayCache() if replays is None else replays
        self.unproven = ReplayCache(16_384) if unproven is None else unproven
        """EMM-23: for packets that prove nothing."""
        self._limits = limits.for_scan()
        self._scan, self._walk = active(scan), active(walk)
        self._rows = table(BATCH, ROW_COLUMNS)
        self._parts = table(BATCH * limits.max_parts, PART_COLUMNS)
        self._run_of, self._ends = table(BATCH, 1), table(BATCH, 1)
        self._compiled: tuple[Any, Any, Any, Any, Any, Any] | None = None
        """What `compile` made and `scanned` has not taken yet."""

    def receive(self, data: bytes, now: float, source: bytes = NO_SOURCE) -> Verified | Rejected:
        """Judge one datagram that arrived at this time from this source, which is any bytes that name it."""
        (scanned,) = self.scanned((data,))
        return self.judge(scanned, now, lambda: source)

    def compile(self) -> None:
        """Compile the scanners, or load them from Numba's cache, and use them from then on.

        This takes a second, so it is for a thread. It does nothing without Numba, or where it is done.
        """
        if not isinstance(self._rows, list):
            return
        try:
            import numpy as np  # noqa: PLC0415 - see `kernel.compiled`

            scanners = compiled(scan), compiled(walk)
        except ImportError:
            return
        rows, parts, run_of, ends = (np.zeros(len(one), np.int64) for one in (self._rows, self._parts, self._run_of, self._ends))
        nothing, nowhere = np.frombuffer(b"", np.uint8), np.zeros(0, np.int64)
        scanners[0](nothing, 0, 0, rows, parts, self._limits)
        scanners[1](nothing, nowhere, nowhere, 0, 0, rows, run_of, parts, ends, self._limits)
        self._compiled = (*scanners, rows, parts, run_of, ends)

    def _adopt(self) -> None:
        """Use what `compile` made, between two batches."""
        if self._compiled is not None:
            self._scan, self._walk, self._rows, self._parts, self._run_of, self._ends = self._compiled
            self._compiled = None

    def scanned(self, datagrams: Sequence[bytes]) -> Iterator[Scanned]:
        """Scan many datagrams in one call, because a call costs more than a datagram."""
        for first in range(0, len(datagrams), BATCH):
            some = datagrams[first : first + BATCH]
            block = b"".join(some)
            self._adopt()
            fast = not isinstance(self._rows, list)
            data = array(block, compiled=fast)
            if len(some) == 1:
                count, used, _, _ = self._scan(data, 0, len(block), self._rows, self._parts, self._limits)
            else:
                stops = list(accumulate(map(len, some)))
                places = positions([0, *stops[:-1]], compiled=fast), positions(stops, compiled=fast)
                count, used, _, _ = self._walk(data, *places, 0, 0, self._rows, self._run_of, self._parts, self._ends, self._limits)
            rows, parts = _plain(self._rows[: count * ROW_COLUMNS]), _plain(self._parts[: used * PART_COLUMNS])
            for row in range(0, count * ROW_COLUMNS, ROW_COLUMNS):
                yield block, rows[row : row + ROW_COLUMNS], parts

    def judge(self, scanned: Scanned, now: float, source: Callable[[], bytes] = lambda: NO_SOURCE) -> Verified | Rejected:
        """Verify a datagram that arrived at this time.

        `source` names its origin, and is called only if no node id does.
        """
        data, row, parts = scanned
        start = row[START]
        if row[FAULT]:
            return Rejected(Fault(row[FAULT]), row[FAULT_AT] - start, node_id_of(scanned))
        identity = authenticate(data, row, parts, self.store, self.policy, now)
        if isinstance(identity, Rejected):
            return Rejected(identity.fault, identity.offset - start, identity.node_id) if start else identity
        proven = identity.authenticated
        time = signed_at(data, row)
        checked = self.policy.freshness if proven else self.policy.unauthenticated_freshness
        fault = freshness(time, now) if checked else None
        if fault is None:
            message_id = data[start + 1 : start + 5]
            if proven and identity.node_id is not None:
                fault = self.replays.admit(identity.node_id + message_id, time, now)
            elif identity.node_id is not None:
                fault = self.unproven.admit(b"n" + identity.node_id + message_id, time, now)
            else:  # EMM-23: best effort
                fault = self.unproven.admit(b"s" + source() + message_id, time, now)
        if fault is not None:
            return Rejected(fault, 0, identity.node_id)
        return Verified(message(data, row, parts), identity, time, checked)


def authenticate(
    data: bytes, row: Sequence[int], parts: Sequence[int], store: TrustStore, policy: Policy, now: float
) -> Identity | Rejected:
    """EMM-17, EMM-18, EMM-27: check HMAC, then signature, of a packet without faults with known keys."""
    at = row[NODE_ID]
    node_id = data[at : at + 16] if at >= 0 else None
    if row[HMAC] < 0 and row[SIGNATURE] < 0:
        return Identity(Trust.NONE, node_id) if policy.unauthenticated else Rejected(Fault.NOT_AUTHENTICATED, row[START], node_id)
    if node_id is None:  # EMM-19; the scanner does not let it through
        return Rejected(Fault.MISSING_NODE_ID, row[START])
    at = row[AUTH_KEY_ID]
    auth_key_id = data[at : at + 4] if at >= 0 else None
    known = store.lookup(node_id, auth_key_id, now)
    covered = canonical(data, row, parts)
    if row[HMAC] >= 0:
        fault = _check_hmac(data, row, covered, known, now)
        if fault is not None:
            return Rejected(fault, row[HMAC] - 2, node_id)
        if row[SIGNATURE] < 0:
            return Identity(Trust.STORE, node_id, auth_key_id, hmac=True)
    in_band = _slice(data, row[PUBLIC_KEY], 32)
    if in_band is None:
        # EMM-18: without a key id a signature brings its key itself
        key, trust = (None if known is None or auth_key_id is None else known), Trust.STORE
        if key is None or key.public_key is None:
            return Rejected(Fault.UNKNOWN_KEY, row[SIGNATURE] - 2, node_id)
        if _is_revoked(key, data, row, now):
            return Rejected(Fault.REVOKED_KEY, row[SIGNATURE] - 2, node_id)
        public_key = key.public_key
    else:
        judged = _judge_in_band(in_band, data, row, known, store, policy, now)
        if isinstance(judged, Fault):
            return Rejected(judged, row[PUBLIC_KEY] - 2, node_id)
        (key, trust), public_key = judged, in_band
    if not _is_signed_by(public_key, data[row[SIGNATURE] : row[SIGNATURE] + 64], covered):
        return Rejected(Fault.SIGNATURE_MISMATCH, row[SIGNATURE] - 2, node_id)
    if trust is Trust.FIRST_USE and policy.first_use is not None and not policy.first_use(node_id, auth_key_id, public_key):
        return Rejected(Fault.UNTRUSTED_KEY, row[PUBLIC_KEY] - 2, node_id)
    found_under = key.auth_key_id if key is not None else auth_key_id if row[HMAC] >= 0 else None
    return Identity(trust, node_id, found_under, hmac=row[HMAC] >= 0, signature=True, public_key=public_key)


def _check_hmac(data: bytes, row: Sequence[int], covered: bytes, key: Key | None, now: float) -> Fault | None:
    """§5.1: in constant time, by the one key there is: never by another after a mismatch (EMM-18)."""
    if key is None or key.secret is None:
        return Fault.UNKNOWN_KEY
    if key.revoked_from is not None and _is_revoked(key, data, row, now):
        return Fault.REVOKED_KEY
    if not hmac.compare_digest(mac(key.secret, covered), data[row[HMAC] : row[HMAC] + 32]):
        return Fault.HMAC_MISMATCH
    return None


def _judge_in_band(
    in_band: bytes, data: bytes, row: Sequence[int], known: Key | None, store: TrustStore, policy: Policy, now: float
) -> tuple[Key | None, Trust] | Fault:
    """EMM-17: the stored key that equals a packet's own key, and its trust; or the fault."""
    if is_weak(in_band):  # EMM-32
        return Fault.WEAK_KEY
    node_id, auth_key_id = data[row[NODE_ID] : row[NODE_ID] + 16], _slice(data, row[AUTH_KEY_ID], 4)
    candidates = store.of_node(node_id, now) if auth_key_id is None else [known] if known is not None else []
    candidates = [key for key in candidates if key.public_key is not None]
    equal = [key for key in candidates if key.public_key == in_band]
    for key in equal:
        if not _is_revoked(key, data, row, now):
            return key, Trust.STORE
    if equal:  # what is known to be revoked is not to be trusted by any policy
        return Fault.REVOKED_KEY
    if policy.trust is Trust.IN_BAND:
        return None, Trust.IN_BAND
    if candidates:
        return Fault.KEY_MISMATCH
    return (None, Trust.FIRST_USE) if policy.trust is Trust.FIRST_USE else Fault.UNTRUSTED_KEY


def _is_revoked(key: Key, data: bytes, row: Sequence[int], now: float) -> bool:
    """Whether a packet arrives, or is dated, at the time of revocation or later.

    The arrival counts, too, because a thief of the key could date a packet back.
    """
    return key.revoked_from is not None and max(now, signed_at(data, row)) >= key.revoked_from


def freshness(time: int, now: float) -> Fault | None:
    """EMM-24: not older than the replay window, not further ahead than clocks may differ."""
    if time < now - REPLAY_WINDOW:
        return Fault.STALE
    if time > now + CLOCK_SKEW_ALLOWANCE:
        return Fault.FUTURE
    return None


def signed_at(data: bytes, row: Sequence[int]) -> int:
    """EMM-24: when a packet was signed, else when it was created."""
    return int.from_bytes(data[row[SIGNED] : row[SIGNED] + 8]) if row[SIGNED] >= 0 else row[TIMESTAMP] % (1 << 64)


def _slice(data: bytes, at: int, size: int) -> bytes | None:
    return data[at : at + size] if at >= 0 else None


def _plain(cells: Any) -> list[int]:
    values: list[int] = cells if isinstance(cells, list) else cells.tolist()
    return values


@lru_cache(maxsize=4096)
def _loaded(public_key: bytes) -> Any:
    """A public key as the library wants it; None if it is no point of the curve."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - only who verifies pays for it

    try:
        return Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError:
        return None


def _is_signed_by(public_key: bytes, signature: bytes, covered: bytes) -> bool:
    """EMM-32: plain Ed25519; the library refuses a signature whose S is not canonical."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see _loaded

    key = _loaded(public_key)
    if key is None:
        return False
    try:
        key.verify(signature, covered)
    except InvalidSignature:
        return False
    return True

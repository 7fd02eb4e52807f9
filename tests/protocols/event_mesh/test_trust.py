"""The trust store: one key of a pair at any time, rotation, revocation, and keys too weak to be stored."""

from __future__ import annotations

import pytest
from tests.protocols.event_mesh.speech import AUTH, NODE, OTHER_NODE, PUBLIC, SECRET

from wirelake.errors import LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.security.trust import FirstKeys, Key, TrustStore, is_weak

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
NEW = bytes.fromhex("00000002")


def refused(key: Key, store: TrustStore | None = None) -> Fault:
    with pytest.raises(LocalProtocolError) as caught:
        (store or TrustStore()).add(key)
    return caught.value.fault


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (Key(NODE[:15], AUTH, SECRET), Fault.FIELD_LENGTH),
        (Key(NODE, AUTH[:3], SECRET), Fault.FIELD_LENGTH),
        (Key(NODE, AUTH), Fault.UNKNOWN_KEY),
        (Key(NODE, AUTH, SECRET[:15]), Fault.WEAK_KEY),
        (Key(NODE, AUTH, public_key=PUBLIC[:31]), Fault.FIELD_LENGTH),
        (Key(NODE, AUTH, public_key=bytes(32)), Fault.WEAK_KEY),
    ],
)
def test_what_is_no_key_is_not_stored(key, fault):
    assert refused(key) is fault


def test_sixteen_bytes_are_a_secret():
    assert len(TrustStore([Key(NODE, AUTH, SECRET[:16])])) == 1


def recovered(y: int, odd: int) -> tuple[int, int] | None:
    """The point of the curve with this y, by the book (RFC 8032, 5.1.3)."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return (P - x if x % 2 != odd else x), y


def doubled(point: tuple[int, int]) -> tuple[int, int]:
    x, y = point
    t = D * x * x * y * y % P
    return 2 * x * y * pow(1 + t, -1, P) % P, (y * y + x * x) * pow(1 - t, -1, P) % P


def is_small(y: int) -> bool:
    point = recovered(y % P, 0)
    if point is None:
        return False
    for _ in range(3):
        point = doubled(point)
    return point == (0, 1)


def test_every_key_of_small_order_is_weak():
    """EMM-32: eight times a point of small order is nothing; these are all the y there are, and both signs of each."""
    known = [0, 1, P - 1]
    known += [int.from_bytes(bytes.fromhex(one), "little") for one in ("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",)]
    known.append(P - known[-1])
    for y in known:
        assert is_small(y)
        for sign in (0, 1 << 255):
            assert is_weak((y | sign).to_bytes(32, "little"))
    assert not is_small(int.from_bytes(PUBLIC, "little") & (2**255 - 1))
    assert not is_weak(PUBLIC)


def test_a_key_not_written_the_one_way_there_is_is_weak():
    for y in range(P, 2**255):
        assert is_weak(y.to_bytes(32, "little"))
    assert not is_weak((P - 2).to_bytes(32, "little"))


def test_one_key_of_a_pair_at_any_time():
    store = TrustStore([Key(NODE, AUTH, SECRET, valid_from=100, revoked_from=200)])
    for begins, ends in ((0, None), (0, 101), (199, None), (150, 160)):
        assert refused(Key(NODE, AUTH, SECRET, valid_from=begins, revoked_from=ends), store) is Fault.KEY_MISMATCH
    store.add(Key(NODE, AUTH, bytes(32), valid_from=200))
    store.add(Key(NODE, AUTH, bytes(16), valid_from=0, revoked_from=100))
    assert [store.lookup(NODE, AUTH, now).secret for now in (0, 99, 100, 199, 200, 10**9)] == [
        *([bytes(16)] * 2),
        *([SECRET] * 2),
        *([bytes(32)] * 2),
    ]
    assert store.lookup(NODE, AUTH, -1) is None
    assert len(store) == len(list(store)) == 3


def test_lookups_are_by_pair():
    store = TrustStore([Key(NODE, AUTH, SECRET), Key(NODE, None, bytes(32)), Key(OTHER_NODE, AUTH, bytes(16))])
    assert store.lookup(NODE, AUTH, 0).secret == SECRET
    assert store.lookup(NODE, None, 0).secret == bytes(32)
    assert store.lookup(OTHER_NODE, None, 0) is None
    assert [key.secret for key in store.of_node(NODE, 0)] == [SECRET, bytes(32)]
    assert store.of_node(bytes(16), 0) == []


def test_a_revocation_is_never_put_off():
    store = TrustStore([Key(NODE, AUTH, SECRET)])
    assert store.revoke(NODE, AUTH, 100).revoked_from == 100
    assert store.revoke(NODE, AUTH, 200).revoked_from == 100
    assert store.revoke(NODE, AUTH, 50).revoked_from == 50
    assert store.of_node(NODE, 60)[0].revoked_from == 50
    with pytest.raises(LocalProtocolError) as caught:
        store.revoke(NODE, NEW, 1)
    assert caught.value.fault is Fault.UNKNOWN_KEY


def test_rotation_ends_the_old_after_an_overlap():
    store = TrustStore([Key(NODE, AUTH, SECRET), Key(OTHER_NODE, AUTH, SECRET)])
    store.rotate(Key(NODE, NEW, bytes(32)), at=100, overlap=60)
    assert store.lookup(NODE, AUTH, 0).revoked_from == 160
    assert store.lookup(NODE, NEW, 99) is None
    assert store.lookup(NODE, NEW, 100).secret == bytes(32)
    assert store.lookup(OTHER_NODE, AUTH, 100).revoked_from is None
    store.rotate(Key(NODE, NEW, bytes(16)), at=200, overlap=60)
    assert [store.lookup(NODE, NEW, now).secret for now in (199, 200)] == [bytes(32), bytes(16)]
    with pytest.raises(LocalProtocolError):
        store.rotate(Key(NODE, NEW, b"short"), at=300)
    assert store.lookup(NODE, NEW, 300).revoked_from is None, "a rotation that fails changes nothing"


def test_the_first_key_of_a_node_is_trusted_and_no_other():
    first, other = bytes(32), bytes(range(32))
    keys = FirstKeys()
    assert [keys(NODE, AUTH, key) for key in (first, other, first)] == [True, False, True]
    assert keys(NODE, None, other), "another key id is another key"


def test_first_keys_are_bounded():
    keys = FirstKeys(capacity=1)
    assert keys(NODE, AUTH, bytes(32))
    assert not keys(OTHER_NODE, AUTH, bytes(32))
    assert keys(NODE, AUTH, bytes(32))

"""A trust store as a file: private, whole or not at all, and nothing else taken for one."""

from __future__ import annotations

import os
import stat

import pytest

from wirelake.errors import UsageError
from wirelake.peers.private_file import load_bytes, save_bytes
from wirelake.peers.trust_file import load, save
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore

NODE, AUTH = bytes(range(16)), b"\0\0\0\1"
KEYS = [Key(NODE, AUTH, bytes(32), revoked_from=5), Key(NODE, AUTH, bytes(16), valid_from=5), Key(NODE, None, bytes(range(32)))]


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "trust.json"
    save(path, TrustStore(KEYS))
    assert list(load(path)) == KEYS
    save(path, TrustStore())
    assert list(load(path)) == []
    assert os.listdir(tmp_path) == ["trust.json"]  # noqa: PTH208 - names, and nothing left beside it


def test_only_its_owner_may_read_it_whatever_the_mask(tmp_path):
    path = tmp_path / "trust.json"
    before = os.umask(0)
    try:
        save(path, TrustStore(KEYS))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load(path)
    save(path, TrustStore(KEYS))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "trust.json"
    save(path, TrustStore(KEYS))
    before = path.read_bytes()

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsageError, match="No space left"):
        save_bytes(path, b"new")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["trust.json"]  # noqa: PTH208 - nothing left beside it


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": "other", "keys": []}',
        b'{"format": "wirelake-trust-1", "keys": [{"node_id": "zz"}]}',
        b'{"format": "wirelake-trust-1", "keys": [{"node_id": "00"}]}',
        b'{"format": "wirelake-trust-1", "keys": [], "more": 1}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_trust_store_is_refused(tmp_path, content):
    path = tmp_path / "trust.json"
    save_bytes(path, content)
    with pytest.raises(UsageError, match=r"trust\.json"):
        load(path)


def test_what_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_bytes(tmp_path / "missing")
    with pytest.raises(UsageError):
        load_bytes(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        save_bytes(tmp_path / "no" / "where", b"")

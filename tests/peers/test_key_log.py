"""Key logs as files: only their owner reads them, and they grow line by line."""

from __future__ import annotations

import stat

import pytest
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.cli.key_files import keys_in
from wirelake.errors import UsageError
from wirelake.peers import key_log, trust_file
from wirelake.protocols.event_mesh.security.trust import Key, TrustStore
from wirelake.protocols.wolpertinger.wire import Keys

OTHER = Keys(bytes(32), bytes(16))
NODE = Key(bytes(16), None, bytes(range(32)))


def test_a_log_that_is_made_is_private_and_grows(tmp_path):
    path = tmp_path / "keys"
    key_log.append(path, KEYS)
    key_log.append(path, OTHER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(key_log.load(path)) == [KEYS, OTHER]


def test_files_are_told_apart_by_how_they_begin(tmp_path):
    key_log.append(tmp_path / "log", KEYS)
    key_log.append(tmp_path / "more", OTHER)
    trust_file.save(tmp_path / "trust", TrustStore([NODE]))
    trusted, sessions = keys_in([tmp_path / "log", tmp_path / "trust", tmp_path / "more"])
    assert list(trusted) == [NODE]
    assert list(sessions) == [KEYS, OTHER]
    assert keys_in([]) == (None, None)
    assert keys_in([tmp_path / "trust"])[1] is None


@pytest.mark.parametrize("content", [b"nonsense", b"wolpertinger 00 00\n"])
def test_what_is_no_log_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "keys"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        keys_in([path])
    assert str(path) in str(caught.value)


def test_a_log_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "keys"
    key_log.append(path, KEYS)
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        key_log.load(path)
    with pytest.raises(UsageError):
        key_log.append(tmp_path / "nowhere" / "keys", KEYS)

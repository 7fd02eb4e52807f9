"""HMAC-SHA256 as the standard library has it, for keys of every size."""

from __future__ import annotations

import hmac

import pytest

from wirelake.protocols.event_mesh.security.canonical import mac


@pytest.mark.parametrize("size", [0, 1, 16, 32, 63, 64, 65, 200])
def test_it_is_the_librarys(size):
    secret = bytes(at % 256 for at in range(size))
    for length in (0, 1, 55, 56, 64, 548):
        assert mac(secret, bytes(length)) == hmac.digest(secret, bytes(length), "sha256")


def test_rfc_4231_case_2():
    found = mac(b"Jefe", b"what do ya want for nothing?")
    assert found.hex() == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"

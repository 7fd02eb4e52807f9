"""TLS contexts: EMP-42 wants 1.2 or newer, and the peer checked unless somebody says otherwise."""

from __future__ import annotations

import ssl
import warnings

import pytest
from tests.transports.certificates import Authority

from wirelake.errors import UsageError
from wirelake.transports.tls import client_context, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.sign("localhost", "127.0.0.1")


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> str | None:
    """A handshake in memory; the version agreed on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version()


def old(context: ssl.SSLContext) -> ssl.SSLContext:
    """The same context at TLS 1.1, with the weak algorithms that needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def test_both_sides_agree_on_a_modern_version(authority, certificate):
    assert shake(client_context(ca_file=authority.files.cert), server_context(*certificate)) in ("TLSv1.2", "TLSv1.3")


def test_versions_before_1_2_are_refused_by_both_sides(authority, certificate):  # EMP-42
    for ours in (client_context(ca_file=authority.files.cert), client_context(verify=False), server_context(*certificate)):
        assert ours.minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError) as caught:
        shake(client_context(ca_file=authority.files.cert), old(server_context(*certificate)))
    assert "VERSION" in caught.value.reason or "PROTOCOL" in caught.value.reason
    with pytest.raises(ssl.SSLError) as caught:
        shake(old(client_context(ca_file=authority.files.cert)), server_context(*certificate))
    assert "VERSION" in caught.value.reason or "PROTOCOL" in caught.value.reason


def test_two_old_ends_would_agree_so_the_refusal_is_ours(authority, certificate):
    assert shake(old(client_context(ca_file=authority.files.cert)), old(server_context(*certificate))) == "TLSv1.1"


def test_the_peer_and_its_name_are_checked_by_default(authority, certificate):  # EMP-42
    context = client_context(ca_file=authority.files.cert)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(context, server_context(*certificate), "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(client_context(), server_context(*certificate))
    assert shake(client_context(verify=False), server_context(*certificate), "elsewhere.example")


def test_a_server_may_want_certificates_of_its_clients(authority, certificate):
    context = server_context(*certificate, client_ca_file=authority.files.cert)
    mine = authority.sign("a client", file="client")
    trusted = client_context(ca_file=authority.files.cert, cert=mine.cert, key=mine.key)
    assert shake(trusted, context)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake(client_context(ca_file=authority.files.cert), context)


def test_files_that_cannot_be_used_are_named(tmp_path, certificate):
    missing, nonsense = tmp_path / "missing.pem", tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate")
    for path in (missing, nonsense):
        for attempt in (
            lambda path=path: client_context(ca_file=path),
            lambda path=path: client_context(cert=path),
            lambda path=path: server_context(path),
            lambda path=path: server_context(certificate.cert, path),
            lambda path=path: server_context(*certificate, client_ca_file=path),
        ):
            with pytest.raises(UsageError, match=path.name) as caught:
                attempt()
            assert "cannot" in str(caught.value)

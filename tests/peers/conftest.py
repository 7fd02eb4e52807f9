"""Every transport, with certificates made on the spot."""

from __future__ import annotations

import ssl

import pytest
from tests.transports.certificates import Authority

from wirelake.transports.tls import client_context, server_context


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server with a good certificate, and of a client that trusts it."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return server_context(*authority.sign("localhost", "127.0.0.1")), client_context(ca_file=authority.files.cert)

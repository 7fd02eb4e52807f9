"""TLS as EMP-42 and common sense want it: 1.2 or newer, the peer's certificate and name checked unless somebody says otherwise aloud."""

from __future__ import annotations

import ssl
from pathlib import Path

from wirelake.errors import UsageError

__all__ = ["client_context", "server_context"]


def client_context(
    *, ca_file: str | Path | None = None, verify: bool = True, cert: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """A context that checks the server against the system's authorities, or those in `ca_file`."""
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as reason:
        raise UsageError(f"cannot read certificate authorities from {ca_file}: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert is not None:
        _load(context, cert, key)
    return context


def server_context(cert: str | Path, key: str | Path | None = None, *, client_ca_file: str | Path | None = None) -> ssl.SSLContext:
    """A context with the server's certificate; with `client_ca_file` clients must show one, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key)
    if client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(str(client_ca_file))
        except OSError as reason:
            raise UsageError(f"cannot read certificate authorities from {client_ca_file}: {reason}") from None
    return context


def _load(context: ssl.SSLContext, cert: str | Path, key: str | Path | None) -> None:
    try:
        context.load_cert_chain(str(cert), None if key is None else str(key))
    except OSError as reason:
        raise UsageError(f"cannot use certificate {cert} with key {key or cert}: {reason}") from None

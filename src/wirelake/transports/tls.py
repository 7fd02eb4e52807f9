"""TLS contexts (EMP-42): version 1.2 or newer, certificate and host name verified.

Verification can be switched off.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from wirelake.errors import UsageError
from wirelake.transports.address import ENCRYPTED, Target

__all__ = ["client_context", "for_client", "for_server", "server_context"]


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


def for_client(target: Target, tls: ssl.SSLContext | None, schemes: tuple[str, ...] = ENCRYPTED) -> ssl.SSLContext | None:
    """The context a client was given; raises UsageError if the scheme of its address has no use for one."""
    if tls is not None and target.scheme not in schemes:
        raise UsageError(f"{target}: a TLS context belongs to {' or '.join(f'{scheme}://' for scheme in schemes)}")
    return tls


def for_server(target: Target, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context a server was given.

    Raises UsageError if its scheme needs one and there is none, or the other way round.
    """
    if (target.scheme in ENCRYPTED) != (tls is not None):
        raise UsageError(f"{target}: give a TLS context with tls:// and wss://, and with no other")
    return tls


def _load(context: ssl.SSLContext, cert: str | Path, key: str | Path | None) -> None:
    try:
        context.load_cert_chain(str(cert), None if key is None else str(key))
    except OSError as reason:
        raise UsageError(f"cannot use certificate {cert} with key {key or cert}: {reason}") from None

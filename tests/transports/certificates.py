"""Certificates for tests, made on the spot: an authority, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificate(NamedTuple):
    """Files in PEM."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; `cert` is what clients trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = _build(self._name, self._key, self._name, self._key, [], is_authority=True)
        self.files = _write(folder / name, self._certificate, self._key)

    def sign(self, *names: str, file: str = "server") -> Certificate:
        """A certificate for these names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        return _write(self._folder / file, _build(_name(names[0]), key, self._name, self._key, list(names)), key)


def self_signed(folder: Path, *names: str) -> Certificate:
    """A certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _write(folder / "alone", _build(_name(names[0]), key, _name(names[0]), key, list(names)), key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _build(subject, key, issuer, signer, names, is_authority=False) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if is_authority:  # Python 3.13 refuses an authority that does not say what its key is for
        others = (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        )
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(others, False))
        builder = builder.add_extension(usage, critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    files = Certificate(stem.with_suffix(".pem"), stem.with_suffix(".key"))
    files.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files.key.write_bytes(key.private_bytes(*form))
    return files

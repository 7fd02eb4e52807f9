"""WOLP-24, WOLP-25: ECDH key agreement, and proofs that a secret is known.

Random bytes come in as a function `random(size)`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from wirelake.errors import RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault

__all__ = [
    "IV_SIZE",
    "TOKEN_SIZE",
    "Curve",
    "PrivateKey",
    "PublicKey",
    "cluster_proof",
    "curve_of",
    "is_same",
    "make_key",
    "private_key",
    "public_blob",
    "read_blob",
    "read_iv",
    "read_text",
    "session_key",
    "to_text",
    "user_proof",
]

IV_SIZE: Final = 16
"""WOLP-24: exactly."""
TOKEN_SIZE: Final = 32
"""WOLP-25: random bytes of a token."""
ITERATIONS: Final = 1000
PROOF_SIZE: Final = 64
_HEADER: Final = 8

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


class Curve(Enum):
    """WOLP-24: the curves a blob may be on, by its first four bytes."""

    P256 = b"ECK1"
    P384 = b"ECK3"
    P521 = b"ECK5"

    @property
    def size(self) -> int:
        """Bytes of a coordinate."""
        return _SIZES[self]


_SIZES: Final = {Curve.P256: 32, Curve.P384: 48, Curve.P521: 66}
_CURVES: Final[dict[Curve, ec.EllipticCurve]] = {Curve.P256: ec.SECP256R1(), Curve.P384: ec.SECP384R1(), Curve.P521: ec.SECP521R1()}
_NAMES: Final = {curve.name: name for name, curve in _CURVES.items()}
_ORDERS: Final = {
    Curve.P256: 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551,
    Curve.P384: (1 << 384) - 0x389CB27E0BC8D220A7E5F24DB74F58851313E695333AD68D,
    Curve.P521: (1 << 521) - 0x5AE79787C40D069948033FEB708F65A2FC44A36477663B851449048E16EC79BF7,
}
"""How many points each curve has."""


def make_key(curve: Curve, random: Callable[[int], bytes]) -> PrivateKey:
    """WOLP-24: make a fresh key.

    8 bytes more than the curve needs are drawn, so that no key is likelier than another.
    """
    drawn = int.from_bytes(random(curve.size + 8), "big")
    return ec.derive_private_key(drawn % (_ORDERS[curve] - 1) + 1, _CURVES[curve])


def private_key(curve: Curve, number: bytes) -> PrivateKey:
    """A key that is known already, by its number in big-endian order."""
    return ec.derive_private_key(int.from_bytes(number, "big"), _CURVES[curve])


def curve_of(key: PublicKey | PrivateKey) -> Curve:
    """WOLP-24: the curve a key is on, which is where it is answered."""
    return _NAMES[key.curve.name]


def public_blob(key: PrivateKey) -> bytes:
    """WOLP-24: the ECCPUBLICBLOB of a key: curve, coordinate size (little-endian), X and Y (big-endian)."""
    curve = curve_of(key)
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return curve.value + curve.size.to_bytes(4, "little") + point[1:]


def read_blob(blob: bytes) -> PublicKey:
    """WOLP-24: the key of a blob.

    Raises RemoteProtocolError unless it is exactly one point of a known curve.
    """
    try:
        curve = Curve(blob[:4])
    except ValueError:
        raise RemoteProtocolError(Fault.KEY_INVALID, f"unknown kind of key {blob[:4]!r}") from None
    size = int.from_bytes(blob[4:_HEADER], "little")
    if size != curve.size:
        raise RemoteProtocolError(Fault.KEY_INVALID, f"coordinates of {size} bytes on {curve.name}")
    try:
        return PublicKey.from_encoded_point(_CURVES[curve], b"\x04" + blob[_HEADER:])
    except (ValueError, UnsupportedAlgorithm):
        raise RemoteProtocolError(Fault.KEY_INVALID, f"{len(blob) - _HEADER} bytes that are no point of {curve.name}") from None


def session_key(own: PrivateKey, peers: PublicKey) -> bytes:
    """WOLP-24: the AES-256 key of a session: SHA-256 of the shared X.

    X is big-endian, as long as the curve's coordinates.
    """
    if curve_of(own) is not curve_of(peers):
        raise RemoteProtocolError(Fault.KEY_INVALID, f"a key on {curve_of(peers).name} answers one on {curve_of(own).name}")
    return hashlib.sha256(own.exchange(ec.ECDH(), peers)).digest()


def cluster_proof(cluster_key: bytes, token: bytes) -> bytes:
    """WOLP-25: what proves that the cluster key is known.

    The password is the key's hexadecimal text in lower case.
    """
    return _proof(cluster_key.hex().encode(), token)


def user_proof(password: str, token: bytes) -> bytes:
    """WOLP-25: what proves that a user's password (as UTF-8) is known."""
    return _proof(password.encode(), token)


def is_same(proof: bytes, expected: bytes) -> bool:
    """WOLP-25: compares in a time that does not tell where two proofs differ."""
    return hmac.compare_digest(proof, expected)


def to_text(data: bytes) -> str:
    """WOLP-24, WOLP-25: keys, tokens and proofs travel as base64 in a string."""
    return base64.b64encode(data).decode()


def read_text(text: str) -> bytes:
    """The bytes of a base64 text; raises RemoteProtocolError if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(Fault.KEY_INVALID, "not base64") from None


def read_iv(text: str) -> bytes:
    """WOLP-24: the IV the caller chose."""
    iv = read_text(text)
    if len(iv) != IV_SIZE:
        raise RemoteProtocolError(Fault.KEY_INVALID, f"an IV of {len(iv)} bytes")
    return iv


def _proof(password: bytes, token: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha1", password, token, ITERATIONS, PROOF_SIZE)

"""Datagrams said byte by byte, right and wrong, without the code under test."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

NODE = bytes.fromhex("00112233445566778899aabbccddeeff")
OTHER_NODE = bytes.fromhex("ffeeddccbbaa99887766554433221100")
AUTH = bytes.fromhex("00000001")
SECRET = bytes(range(32))
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
NONCE = bytes(range(0xA0, 0xAC))
NOW = 1_700_000_010
MADE = 1_700_000_000


def tlv(kind: int, value: bytes = b"", length: int | None = None) -> bytes:
    return bytes((kind, len(value) if length is None else length)) + value


def packet(
    payload: bytes = b"",
    kind: int = 3,
    flags: int = 0,
    *,
    version: int = 1,
    message_id: int = 0xDEADBEEF,
    made: int = MADE,
    size: int | None = None,
) -> bytes:
    announced = len(payload) if size is None else size
    return bytes((version,)) + message_id.to_bytes(4) + bytes((flags, kind)) + made.to_bytes(8) + announced.to_bytes(2) + payload


name = tlv(1, b"temp.changed")
node = tlv(0x14, NODE)
auth = tlv(0x18, AUTH)
key = tlv(0x13, PUBLIC)
subs = tlv(1, b"\x01") + tlv(3, NONCE)
metadata = tlv(0x11, subs)


def maced(fields: bytes = name + node + auth, secret: bytes = SECRET, **more: int) -> bytes:
    """A packet of ascending fields with its HMAC."""
    covered = packet(fields, size=len(fields) + 34, **more)
    return covered + tlv(0x10, hmac.new(secret, covered, hashlib.sha256).digest())


def signed(fields: bytes = name + node + auth, seed: bytes = SEED, covered: bytes | None = None, **more: int) -> bytes:
    """A packet with its signature; `covered` are the fields in canonical order if that differs."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    size = len(fields) + 66
    said = packet(fields, size=size, **more)
    return said + tlv(0x12, Ed25519PrivateKey.from_private_bytes(seed).sign(packet(covered or fields, size=size, **more)))


SPOKEN = {
    "event": packet(name),
    "hello": packet(tlv(4, b"caps") + node, 1),
    "heartbeat": packet(node + tlv(0x15, MADE.to_bytes(8)), 2),
    "other": packet(b"", 0x7F),
    "urgent": packet(name, flags=1),
    "numbers": packet(name + tlv(2, b"\x80\x00\x00\x00") + tlv(3, b"\x7f\xc0\x00\x01")),
    "unknown": packet(name + tlv(0x20, b"future") + tlv(0xFF)),
    "long": packet(name + tlv(4, bytes(255)) + tlv(4)),
    "text": packet(tlv(1, "ångström ☃ 𝄞".encode()) + tlv(5, b'{"a": "\xc3\xa9"}')),
    "encrypted": packet(tlv(4, bytes(36)) + metadata + node, flags=2),
    "chacha": packet(tlv(4, bytes(36)) + tlv(0x11, tlv(1, b"\x02") + tlv(4, NONCE)) + node + tlv(0x16, NONCE), flags=2),
    "keyed": packet(tlv(4, bytes(36)) + tlv(0x11, subs + tlv(5, NODE)) + node + tlv(0x17, NODE), flags=2),
    "compressed": packet(tlv(4, b"zz"), flags=4),
    "hmac": maced(),
    "signed": signed(),
    "in band": signed(name + node + key, covered=name + key + node),
}
"""One of each, without a fault."""


def mutations(data: bytes) -> Iterator[bytes]:
    """Every byte one off, zero and full; every cut; one byte more; every pair of neighbours swapped."""
    for at in range(len(data)):
        for byte in {(data[at] + 1) % 256, (data[at] - 1) % 256, data[at] ^ 0x80, 0, 0xFF} - {data[at]}:
            yield data[:at] + bytes((byte,)) + data[at + 1 :]
        yield data[:at]
        yield data[:at] + data[at + 1 :]
        if at and data[at] != data[at - 1]:
            yield data[: at - 1] + data[at : at + 1] + data[at - 1 : at] + data[at + 1 :]
    yield data + b"\x00"

"""Encrypted and compressed payloads: the profile of EMM-13 and EMM-14.

The fields to hide are encoded, compressed and encrypted into one binary value. Encryption metadata, ids and proofs stay in clear. The
caller supplies nonces; a nonce must never be used twice with one key.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.event_mesh.faults import Fault
from wirelake.protocols.event_mesh.limits import DEFAULT_LIMITS, Limits
from wirelake.protocols.event_mesh.messages import VERSION, Algorithm, EventType, Field, FieldType, Flag, Message, SubType
from wirelake.protocols.event_mesh.packet.builder import ordered
from wirelake.protocols.event_mesh.packet.values import event_type, first, is_security, values
from wirelake.protocols.event_mesh.scanner import PART_COLUMNS, ROW_COLUMNS, scan
from wirelake.protocols.event_mesh.wire import encode_fields, fields
from wirelake.protocols.kernel import FAULT, FAULT_AT

__all__ = ["REKEY_AFTER", "Opened", "Sealed", "Sealer", "compress", "inner_fields", "is_broken", "unseal"]

KEY_SIZE: Final = 32
NONCE_SIZE: Final = 12
KEY_ID_SIZE: Final = 16
REKEY_AFTER: Final = 1 << 32
"""EMM-13: payloads sealed by one key with random nonces of 96 bits, at most (NIST SP 800-38D, §8.3)."""
LARGEST: Final = 0xFFFF
"""The largest payload that a header can announce."""
INNER: Final = 0xFF
"""An event type of which nothing is required."""
_AAD: Final = struct.Struct(">BIBBQ")
_NEEDED: Final[dict[int, FieldType]] = {EventType.EVENT: FieldType.STRING, EventType.HELLO: FieldType.BINARY}
"""EMM-20: the data field that is looked for inside."""


class Sealed(msgspec.Struct, frozen=True):
    """The fields that `build` takes in place of the hidden ones."""

    flags: int
    fields: tuple[Field, ...]


class Opened(msgspec.Struct, frozen=True):
    """A hidden payload that was looked at."""

    plain: bytes | None
    """EMM-13: the fields inside, as on the wire; None: it was not opened."""
    odd: int = 0
    """A bit of `oddities`."""


def aad(event_type: int, message_id: int, timestamp: int, flags: int) -> bytes:
    """EMM-13: the header but for the payload length, which is bound to the ciphertext."""
    return _AAD.pack(VERSION, message_id, flags, event_type, timestamp)


def compress(hidden: Sequence[Field], flags: int = 0) -> Sealed:
    """EMM-14: fields as one compressed binary value."""
    packed = zlib.compress(encode_fields(ordered(_data_only(hidden))), 9)
    return Sealed(flags | Flag.COMPRESSED, (Field(FieldType.BINARY, packed),))


class Sealer:
    """EMM-13: one encryption key in use; counts what it sealed."""

    def __init__(self, key: bytes, algorithm: int = Algorithm.AES_256_GCM, key_id: bytes | None = None, limit: int = REKEY_AFTER) -> None:
        if len(key) != KEY_SIZE:
            raise LocalProtocolError(Fault.WEAK_KEY, f"an encryption key has {KEY_SIZE} bytes")
        self._cipher = _cipher(algorithm, key)
        self._algorithm = algorithm
        self._key_id = key_id
        self._limit = limit
        self.sealed = 0
        """Payloads sealed so far; pass it on to the next Sealer of this key."""

    def seal(
        self,
        hidden: Sequence[Field],
        nonce: bytes,
        *,
        event_type: int,
        message_id: int,
        timestamp: int,
        flags: int = 0,
        compressed: bool = False,
    ) -> Sealed:
        """Hide fields.

        The packet must be built with the same type, id and time, and with the flags this returns.
        """
        if self.sealed >= self._limit:
            raise LocalProtocolError(Fault.REKEY_NEEDED, f"{self.sealed} payloads")
        if len(nonce) != NONCE_SIZE:
            raise LocalProtocolError(Fault.SUB_FIELD_LENGTH, f"a nonce has {NONCE_SIZE} bytes")
        plain = encode_fields(ordered(_data_only(hidden)))
        flags |= Flag.ENCRYPTED
        if compressed:
            flags |= Flag.COMPRESSED
            plain = zlib.compress(plain, 9)
        self.sealed += 1
        try:
            header = aad(event_type, message_id, timestamp, flags)
        except struct.error as reason:
            raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, str(reason)) from None
        ciphertext = self._cipher.encrypt(nonce, plain, header)
        carrier = SubType.IV if self._algorithm == Algorithm.AES_256_GCM else SubType.NONCE  # EMM-15
        metadata = [Field(SubType.ALGORITHM, bytes((self._algorithm,))), Field(carrier, nonce)]
        if self._key_id is not None:
            metadata.append(Field(SubType.KEY_ID, self._key_id))
        return Sealed(flags, (Field(FieldType.BINARY, ciphertext), Field(FieldType.ENCRYPTION, encode_fields(metadata))))


def unseal(message: Message, keys: Mapping[bytes, bytes], limits: Limits = DEFAULT_LIMITS) -> tuple[Field, ...]:
    """The hidden fields of a message; `keys` are by key id.

    Raises DecodeError. Of a message that hides nothing: its own data fields.
    """
    if not message.flags & (Flag.ENCRYPTED | Flag.COMPRESSED):
        return tuple(field for field in message.fields if not is_security(field.type))
    carried = values(message.fields, FieldType.BINARY)
    if len(carried) != 1:
        raise DecodeError(Fault.SEALED_CARRIAGE, 0, f"{len(carried)} binary values")
    hidden = carried[0]
    if message.flags & Flag.ENCRYPTED:
        hidden = _decrypt(message, hidden, keys)
    if message.flags & Flag.COMPRESSED:
        hidden = _inflate(hidden, limits.max_inflated_size)
    found = inner_fields(hidden, limits)
    needed = _NEEDED.get(event_type(message))
    if needed is not None and all(field.type != needed for field in found):
        raise DecodeError(Fault.MISSING_REQUIRED_FIELD, 0, "inside")
    return found


def is_broken(fault: Fault, message: Message) -> bool:
    """Whether a payload that `unseal` refused breaks the profile; False if an application may have its own way (EMM-13, EMM-14).

    A key held here means that the profile was agreed on: what it should open, and does not, was changed. A limit stays a limit.
    """
    if message.flags & Flag.ENCRYPTED:
        return fault not in (Fault.UNDECRYPTABLE, Fault.SEALED_CARRIAGE)
    return fault is Fault.INFLATED_OVER_LIMIT


def inner_fields(plain: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Field, ...]:
    """EMM-13: read hidden fields by the rules of clear ones; offsets of faults count from their start."""
    if len(plain) > LARGEST:  # that many bytes are more fields than any packet may have
        raise DecodeError(Fault.TLV_COUNT, 0, f"{len(plain)} bytes")
    header = aad(INNER, 0, 0, 0) + len(plain).to_bytes(2)
    row, parts = [0] * ROW_COLUMNS, [0] * (PART_COLUMNS * limits.max_parts)
    scan(header + plain, 0, len(header) + len(plain), row, parts, (LARGEST, limits.max_tlv_count, 0))
    if row[FAULT] in (Fault.TLV_OVERRUN, Fault.TLV_COUNT):
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT] - len(header), "inside")
    inner = fields(header + plain, row, parts)
    if any(is_security(field.type) for field in inner):
        raise DecodeError(Fault.SECURITY_FIELD_SEALED, 0)
    if row[FAULT]:
        raise DecodeError(Fault(row[FAULT]), row[FAULT_AT] - len(header), "inside")
    return inner


def _decrypt(message: Message, ciphertext: bytes, keys: Mapping[bytes, bytes]) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only who decrypts pays for it

    metadata = first(message.fields, FieldType.ENCRYPTION) or b""
    inside = {kind: value for kind, value in _pairs(metadata)}  # noqa: C416 - the names say what it is
    algorithm = inside.get(SubType.ALGORITHM, b"\x00")[0]
    if algorithm not in tuple(Algorithm):
        raise DecodeError(Fault.UNDECRYPTABLE, 0, f"algorithm {algorithm}")
    # EMM-16: the metadata's own key id wins, then 0x17, then the node id.
    key_id = inside.get(SubType.KEY_ID) or first(message.fields, FieldType.KEY_ID) or first(message.fields, FieldType.NODE_ID)
    key = keys.get(key_id) if key_id is not None else None
    if key is None or len(key) != KEY_SIZE:
        raise DecodeError(Fault.UNDECRYPTABLE, 0, f"no key {key_id.hex() if key_id else ''}")
    nonce = inside[SubType.IV] if algorithm == Algorithm.AES_256_GCM else inside[SubType.NONCE]
    header = aad(event_type(message), message.message_id, message.timestamp, message.flags)
    try:
        plain: bytes = _cipher(algorithm, key).decrypt(nonce, ciphertext, header)
    except InvalidTag:
        raise DecodeError(Fault.DECRYPTION_FAILED, 0) from None
    return plain


def _inflate(packed: bytes, most: int) -> bytes:
    """EMM-14: one zlib stream, nothing after it, and no more than we agreed to."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(packed, most + 1)
    except zlib.error as reason:
        raise DecodeError(Fault.DEFLATE_INVALID, 0, str(reason)) from None
    if len(plain) > most:
        raise DecodeError(Fault.INFLATED_OVER_LIMIT, 0, f"over {most} bytes")
    if not stream.eof or stream.unused_data:
        raise DecodeError(Fault.DEFLATE_INVALID, 0, "bytes after the end" if stream.eof else "cut")
    return plain


def _data_only(hidden: Sequence[Field]) -> Sequence[Field]:
    if any(is_security(field.type) for field in hidden):
        raise LocalProtocolError(Fault.SECURITY_FIELD_SEALED)
    return hidden


def _pairs(value: bytes) -> list[tuple[int, bytes]]:
    """The fields inside encryption metadata that the scanner accepted."""
    found, at = [], 0
    while at < len(value):
        found.append((value[at], value[at + 2 : at + 2 + value[at + 1]]))
        at += 2 + value[at + 1]
    return found


def _cipher(algorithm: int, key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305  # noqa: PLC0415 - only who encrypts pays for it

    if algorithm == Algorithm.AES_256_GCM:
        return AESGCM(key)
    if algorithm == Algorithm.CHACHA20_POLY1305:
        return ChaCha20Poly1305(key)
    raise LocalProtocolError(Fault.UNDECRYPTABLE, f"algorithm {algorithm}")

"""Texts of wolpertinger to messages and back.

`decode` and `encode` convert one text, `opened` and `sealed` payloads. A payload is packed, encrypted, written as base64 and split, in this
order (WOLP-7); `layer1/fragments.py` splits. `scanner.py` reads metadata.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from wirelake.errors import DecodeError, LocalProtocolError
from wirelake.protocols.gzip import deflate, inflate
from wirelake.protocols.kernel import FAULT, FAULT_AT, KIND
from wirelake.protocols.wolpertinger.faults import UNREADABLE, Fault
from wirelake.protocols.wolpertinger.layer1.lines import Lines, measure
from wirelake.protocols.wolpertinger.messages import HIGHEST_ID, Encryption, Envelope, Message, Result, TextKind
from wirelake.protocols.wolpertinger.scanner import (
    DEFAULT_LIMITS,
    ENCRYPTION,
    FRAGMENT_COUNT,
    FRAGMENT_INDEX,
    GZIP,
    MESSAGE_ID,
    PAYLOAD,
    PAYLOAD_LENGTH,
    RESULT,
    Limits,
    find,
    is_text,
    scan,
    sniff,
    walk,
)

__all__ = [
    "BLANKS",
    "DEFAULT_LIMITS",
    "Keys",
    "Limits",
    "Sealed",
    "base64_length",
    "buffer",
    "decode",
    "encode",
    "encode_line",
    "encode_plain",
    "envelope",
    "find",
    "from_base64",
    "is_text",
    "message",
    "opened",
    "scan",
    "sealed",
    "sniff",
    "walk",
]

BLANKS: Final = b" \t\r\n"
"""WOLP-6: what is ignored in base64."""
KEY_SIZE: Final = 32
BLOCK_SIZE: Final = 16
"""WOLP-8: bytes of an AES-256 key, and of a block and the IV."""


class Keys(msgspec.Struct, frozen=True):
    """WOLP-8: the keys of a KeyExchange.

    The IV is the same for all messages of both directions, and nothing protects integrity.
    """

    key: bytes
    iv: bytes

    def __post_init__(self) -> None:
        if len(self.key) != KEY_SIZE or len(self.iv) != BLOCK_SIZE:
            raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"a key of {len(self.key)} bytes and an IV of {len(self.iv)}")

    def __repr__(self) -> str:
        """Keep keys out of logs."""
        return "Keys(…)"

    @property
    def cipher(self) -> Cipher[CBC]:
        """AES-256-CBC."""
        return Cipher(AES(self.key), CBC(self.iv))


# Members of enums that every text reads.
_ENCRYPTIONS: Final = {one.value: one for one in Encryption}
_MESSAGE: Final = TextKind.MESSAGE.value
_RESULT: Final = TextKind.RESULT.value
_CLEAR: Final = Encryption.NONE


class Sealed(msgspec.Struct, frozen=True):
    """A payload as it is sent: base64, and its metadata."""

    text: bytes
    gzip: int | None
    encryption: Encryption


def message(data: bytes, row: Sequence[int], parts: Sequence[int] = ()) -> Message:  # noqa: ARG001 - as in every protocol
    """Build the message of a scanned row; raises DecodeError if it cannot be read.

    Total over rows that the scanner accepted.
    """
    fault = row[FAULT]
    if fault and fault in UNREADABLE:
        raise DecodeError(Fault(fault), row[FAULT_AT])
    return Result(row[RESULT], row[MESSAGE_ID]) if row[KIND] == _RESULT else envelope(data, row)


def envelope(data: bytes, row: Sequence[int]) -> Envelope:
    """Build the message or fragment of a row that is readable and no result."""
    at, gzip, encryption = row[PAYLOAD], row[GZIP], _ENCRYPTIONS[row[ENCRYPTION]]
    payload = data[at : at + row[PAYLOAD_LENGTH]]
    if row[KIND] == _MESSAGE:
        return Envelope(row[MESSAGE_ID], payload, None if gzip < 0 else gzip, encryption)
    return Envelope(row[MESSAGE_ID], payload, None if gzip < 0 else gzip, encryption, row[FRAGMENT_INDEX], row[FRAGMENT_COUNT])


def decode(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The one text that `data` is, with a line feed behind it or without.

    Raises DecodeError for anything else.
    """
    return message(data, measure(data, 0, len(data) - data.endswith(b"\n"), limits))


def buffer(limits: Limits = DEFAULT_LIMITS) -> Lines:
    """A buffer that cuts a stream into lines."""
    return Lines(limits)


def encode(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """WOLP-2: the text of a message, keys in order, without a line feed.

    Raises LocalProtocolError for what a field cannot hold.
    """
    if not 0 <= message.message_id <= HIGHEST_ID:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"message_id {message.message_id}")
    if isinstance(message, Result):
        if message.code < 0:
            raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"code {message.code}")
        return b"result:%d;message_id:%d;" % (message.code, message.message_id)
    if message.encryption is Encryption.UNKNOWN or b"\n" in message.payload or b";" in message.payload:
        raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, "an unknown encryption, or a payload that is no base64 in one line")
    index, count = message.fragment_index, message.fragment_count
    text = b""
    if index is not None or count is not None:
        if index is None or count is None or not 0 <= index < count <= limits.max_fragments:
            raise LocalProtocolError(Fault.FRAGMENT_OUT_OF_RANGE, f"fragment {index} of {count}")
        text = b"fragment_index:%d;fragment_count:%d;" % (index, count)
    text += b"message_id:%d;" % message.message_id
    if message.gzip is not None:
        if message.gzip < 0:
            raise LocalProtocolError(Fault.FIELD_OUT_OF_RANGE, f"gzip {message.gzip}")
        text += b"gzip:%d;" % message.gzip
    if message.encryption:
        text += b"secure:aes;" if message.encryption is Encryption.SECURE_AES else b"encryption:aes;"
    text += message.payload
    if len(text) > limits.max_text_size:  # WOLP-29
        raise LocalProtocolError(Fault.TEXT_OVER_LIMIT, f"{len(text)} bytes, limit {limits.max_text_size}")
    return text


def encode_plain(message_id: int, payload: bytes, limits: Limits) -> bytes:
    """The text of a whole message that is neither compressed nor encrypted, as `encode` writes it.

    What sessions send most often is written by this alone, without a message made for it first. `payload` is not base64 yet.
    """
    text = b"message_id:%d;%b" % (message_id, binascii.b2a_base64(payload, newline=False))
    if len(text) > limits.max_text_size:  # WOLP-29
        raise LocalProtocolError(Fault.TEXT_OVER_LIMIT, f"{len(text)} bytes, limit {limits.max_text_size}")
    return text


def encode_line(message: Message, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """WOLP-11: the bytes of a message in a stream: its text and a line feed."""
    return encode(message, limits) + b"\n"


def sealed(payload: bytes, keys: Keys | None, *, compress: bool = False) -> Sealed:
    """WOLP-7: compress a payload if requested, encrypt it if there are keys, write it as base64."""
    gzip = None
    if compress:
        payload = deflate(payload)
        gzip = len(payload)
    if keys is not None:
        padding = BLOCK_SIZE - len(payload) % BLOCK_SIZE
        encryptor = keys.cipher.encryptor()
        payload = encryptor.update(payload + bytes((padding,)) * padding) + encryptor.finalize()
    return Sealed(binascii.b2a_base64(payload, newline=False), gzip, Encryption.NONE if keys is None else Encryption.AES)


def base64_length(size: int) -> int:
    """Return how many characters of base64 stand for so many bytes, padding included."""
    return (size + 2) // 3 * 4


def from_base64(text: bytes) -> bytes:
    """WOLP-6: decode base64, blanks ignored; raise DecodeError for anything else.

    The standard library accepts padding behind a whole group (`AAAA=`) even in its strict mode, so the length is compared, too.
    """
    try:
        payload = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as reason:
        if len(plain := text.translate(None, BLANKS)) != len(text):
            return from_base64(plain)
        raise DecodeError(Fault.BASE64_INVALID, 0, str(reason)) from None
    if len(text) != base64_length(len(payload)):
        raise DecodeError(Fault.BASE64_INVALID, 0, "Excess padding")
    return payload


def opened(text: bytes, gzip: int | None, encryption: Encryption, keys: Keys | None, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """WOLP-7: undo `sealed` for a whole payload.

    Raises DecodeError, whose offset counts from the start of the payload.

    WOLP-8: of an encrypted payload that is base64, everything that can go wrong is one fault, without a detail.
    """
    payload = from_base64(text)
    if encryption is _CLEAR:
        return payload if gzip is None else _inflated(payload, gzip, limits.max_inflated_size)
    plain = _decrypted(payload, None if encryption is Encryption.UNKNOWN else keys)
    if plain is not None and gzip is not None:
        try:
            plain = _inflated(plain, gzip, limits.max_inflated_size)
        except DecodeError:
            plain = None
    if plain is None:
        raise DecodeError(Fault.ENCRYPTION_FAILED, 0)
    return plain


def _decrypted(payload: bytes, keys: Keys | None) -> bytes | None:
    """WOLP-8: undo AES-256-CBC and PKCS#7; None for every error."""
    if keys is None or not payload or len(payload) % BLOCK_SIZE:
        return None
    decryptor = keys.cipher.decryptor()
    padded = decryptor.update(payload) + decryptor.finalize()
    padding = padded[-1]
    if not 1 <= padding <= BLOCK_SIZE or padded[-padding:] != bytes((padding,)) * padding:
        return None
    return padded[:-padding]


def _inflated(packed: bytes, length: int, most: int) -> bytes:
    """WOLP-7: gzip undone: one or more members of exactly this length, nothing before, between or after."""
    if length != len(packed):
        raise DecodeError(Fault.GZIP_INVALID, 0, f"{len(packed)} bytes, {length} were said")
    return inflate(packed, most, invalid=Fault.GZIP_INVALID, over_limit=Fault.INFLATED_OVER_LIMIT)

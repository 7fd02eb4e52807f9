"""Session keys from a key log, to decrypt recorded sessions (WOLP-8).

A key log is lines of `wolpertinger KEY IV`, in hex, so that it can be written by appending; empty lines and those that begin with `#` are
skipped. A key log does not say which key belongs to which session: the keyring tries them, and one block is enough to decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from wirelake.errors import DecodeError, UsageError, WirelakeError
from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.messages import Encryption
from wirelake.protocols.wolpertinger.wire import BLOCK_SIZE, Keys, Limits, from_base64, opened

__all__ = ["NAME", "Keyring", "log_line", "read_log"]

NAME: Final = "wolpertinger"
"""The first word of a line in a key log."""
_GZIP: Final = b"\x1f\x8b\x08"
_BOM: Final = b"\xef\xbb\xbf"
_PRINTABLE: Final = bytes(range(0x20, 0x7F)) + b"\t\r\n"


class Keyring:
    """Keys to try, each by a fingerprint that reveals nothing about it."""

    def __init__(self, keys: Iterable[Keys] = ()) -> None:
        self._keys = {blake2b(one.key + one.iv, digest_size=8).digest(): one for one in keys}

    def __iter__(self) -> Iterator[Keys]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        """Keep keys out of logs."""
        return f"Keyring({len(self._keys)} keys)"

    def open(self, text: bytes, gzip: int | None, encryption: Encryption, limits: Limits, last: bytes | None) -> tuple[bytes, bytes] | None:
        """Decrypt a payload; return it with the fingerprint of its key. None: no key opens it.

        `last` names the key to try first. Raises DecodeError for what no key opens: no base64, no whole blocks, another algorithm; and for
        what a key opens only in part.
        """
        payload = from_base64(text)
        if encryption is Encryption.UNKNOWN or not payload or len(payload) % BLOCK_SIZE:
            raise DecodeError(Fault.ENCRYPTION_FAILED, 0)
        if last is not None and last in self._keys:  # nearly always
            try:
                plain = opened(text, gzip, encryption, self._keys[last], limits)
            except DecodeError:
                plain = b""
            if _begins_document(plain[:BLOCK_SIZE]):
                return plain, last
        first = payload[:BLOCK_SIZE]
        for name, keys in self._keys.items():
            if _makes_sense(first, keys, is_packed=gzip is not None):
                return opened(text, gzip, encryption, keys, limits), name
        return None


def _makes_sense(first: bytes, keys: Keys, *, is_packed: bool) -> bool:
    """Whether the first block of a message decrypts to the beginning of gzip or of a document.

    A false positive has a chance of one in millions.
    """
    decryptor = Cipher(AES(keys.key), ECB()).decryptor()  # noqa: S305 - one block, by itself
    block = decryptor.update(first) + decryptor.finalize()
    plain = bytes(one ^ other for one, other in zip(block, keys.iv, strict=True))
    return plain.startswith(_GZIP) if is_packed else _begins_document(plain)


def _begins_document(block: bytes) -> bool:
    """Whether a block is the beginning of XML, or all of it with the padding."""
    start = block.removeprefix(_BOM).lstrip()
    return start.startswith(b"<") and not start.translate(None, _PRINTABLE).strip(bytes(range(1, BLOCK_SIZE + 1)))


def read_log(content: bytes) -> Keyring:
    """The keys of a key log; raises UsageError that names the line, and nothing of what is in it."""
    keys = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            name, key, iv = line.decode("ascii").split()
            if name != NAME:
                raise UsageError(f"line {number}: it begins with another word than {NAME}")
            keys.append(Keys(bytes.fromhex(key), bytes.fromhex(iv)))
        except UsageError:
            raise
        except (ValueError, WirelakeError):
            raise UsageError(f"line {number}: `{NAME} KEY IV` is needed, 32 and 16 bytes in hex") from None
    return Keyring(keys)


def log_line(keys: Keys) -> bytes:
    """The line of a key log for these keys."""
    return f"{NAME} {keys.key.hex()} {keys.iv.hex()}\n".encode()

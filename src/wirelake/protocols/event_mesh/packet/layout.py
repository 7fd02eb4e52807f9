"""Columns of a scanned row and of its parts.

The other protocols have them in `scanner.py`. Here the scanner is two modules, `scanner.py` and `encryption_metadata.py`, and both need
them. `scanner.py` exports them all, so other modules import them from there, as in every protocol.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.kernel import SHARED

__all__ = [
    "ALGORITHM",
    "AUTH_KEY_ID",
    "CANONICAL",
    "ENCRYPTION",
    "FLAGS",
    "HMAC",
    "IV",
    "IV_LENGTH",
    "KEY_ID",
    "KEY_ID_SIZE",
    "MESSAGE_ID",
    "NAME",
    "NODE_ID",
    "NONCE",
    "NONCE_SIZE",
    "NONE",
    "ODDITIES",
    "ODD_KEY",
    "ODD_OPEN",
    "ODD_ORDER",
    "PART_COLUMNS",
    "PART_LENGTH",
    "PART_PARENT",
    "PART_START",
    "PART_TYPE",
    "PUBLIC_KEY",
    "ROW_COLUMNS",
    "SIGNATURE",
    "SIGNED",
    "SUB_KEY_ID",
    "TIMESTAMP",
]

# A row: the shared columns, then these. A place is the offset of a field's value, -1 without that field or if its length is wrong.
MESSAGE_ID: Final = SHARED
FLAGS: Final = SHARED + 1
TIMESTAMP: Final = SHARED + 2
"""The 64 bits of the header's timestamp, as a signed number."""
HMAC: Final = SHARED + 3
"""Place of 0x10; the places of 0x11 to 0x18 follow in the order of their numbers."""
ENCRYPTION: Final = SHARED + 4
SIGNATURE: Final = SHARED + 5
PUBLIC_KEY: Final = SHARED + 6
NODE_ID: Final = SHARED + 7
SIGNED: Final = SHARED + 8
"""Place of 0x15, when the payload was signed."""
NONCE: Final = SHARED + 9
KEY_ID: Final = SHARED + 10
AUTH_KEY_ID: Final = SHARED + 11
NAME: Final = SHARED + 12
"""Place of the first piece of the first string."""
ALGORITHM: Final = SHARED + 13
"""The algorithm of the encryption metadata, -1 without one."""
IV: Final = SHARED + 14
"""Place of the IV or nonce of the encryption metadata."""
IV_LENGTH: Final = SHARED + 15
SUB_KEY_ID: Final = SHARED + 16
"""Place of the key identifier of the encryption metadata."""
CANONICAL: Final = SHARED + 17
"""If what is signed stands on the wire in one piece, from the header on: its length; else 0."""
ODDITIES: Final = SHARED + 18
"""Bits for what is tolerated: see ODD_ORDER, ODD_OPEN and ODD_KEY."""
ROW_COLUMNS: Final = SHARED + 19

# A part: one field, or one field inside encryption metadata; in the order of the wire.
PART_START: Final = 0
PART_LENGTH: Final = 1
"""Bytes of the value, which is two bytes after the start."""
PART_TYPE: Final = 2
PART_PARENT: Final = 3
"""0, or the type of the field it is inside of."""
PART_COLUMNS: Final = 4

ODD_ORDER: Final = 1
"""EMM-5: not in the order of a sender."""
ODD_OPEN: Final = 2
"""EMM-10: a value that ends with a full piece."""
ODD_KEY: Final = 4
"""EMM-33: a public key without a signature."""

NONCE_SIZE: Final = 12
KEY_ID_SIZE: Final = 16
NONE: Final = 1 << 30
"""More than any fault: the smaller one counts."""

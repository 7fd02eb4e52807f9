"""Fields of wolpertinger texts: pairs of metadata, payload, line feed (WOLP-1, WOLP-11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.bytes.layout import Tiling, text_of
from wirelake.protocols.kernel import KIND, LENGTH, START
from wirelake.protocols.wolpertinger.messages import Encryption, ResultCode, TextKind
from wirelake.protocols.wolpertinger.scanner import (
    COLON,
    ENCRYPTION,
    FRAGMENT_COUNT,
    FRAGMENT_INDEX,
    GZIP,
    MESSAGE_ID,
    ODD_BLANKS,
    ODDITIES,
    PAYLOAD,
    PAYLOAD_LENGTH,
    RESULT,
    SEMICOLON,
)
from wirelake.protocols.wolpertinger.wire import BLANKS

__all__ = ["REST", "lay_out"]

REST: Final = "line feed"
"""The name of bytes that are left."""
_TYPES: Final = {kind.value: kind.name.lower() for kind in TextKind}
_RESULTS: Final = {code.value: code.name.lower() for code in ResultCode}
_ENCRYPTIONS: Final = {Encryption.AES.value: "aes", Encryption.SECURE_AES.value: "aes", Encryption.UNKNOWN.value: "unknown"}


def lay_out(cut: Tiling, data: bytes, row: Sequence[int], parts: Sequence[int]) -> None:  # noqa: ARG001 - as in every protocol
    """Cut a scanned text into its fields; a pair is one field, with its colon and semicolon."""
    kind, begin, payload = row[KIND], row[START], row[PAYLOAD]
    is_result = kind == TextKind.RESULT.value
    cut.put("size", row[LENGTH])
    if kind in _TYPES:
        cut.put("type", _TYPES.get(kind, ""))
    while begin < payload:
        end = begin
        while end < payload and data[end] != SEMICOLON:
            end += 1
        colon = begin
        while colon < end and data[colon] != COLON:
            colon += 1
        cut.pair(colon, min(end + 1, payload))
        begin = end + 1
    cut.put("text_id", row[MESSAGE_ID])
    if is_result:
        cut.put("result_code", row[RESULT])
        if row[RESULT] in _RESULTS:
            cut.put("result_name", _RESULTS.get(row[RESULT], ""))
    if row[GZIP] >= 0:
        cut.put("gzip", row[GZIP])
    if row[ENCRYPTION] in _ENCRYPTIONS:
        cut.put("encryption", _ENCRYPTIONS.get(row[ENCRYPTION], ""))
        if not is_result:
            cut.put("decrypted", False)
    if row[FRAGMENT_INDEX] >= 0:
        cut.put("fragment_index", row[FRAGMENT_INDEX])
    if row[FRAGMENT_COUNT] >= 0:
        cut.put("fragment_count", row[FRAGMENT_COUNT])
    if is_result:
        cut.take("payload", row[PAYLOAD_LENGTH], text_of, column="result_payload")
    else:
        cut.take("payload", row[PAYLOAD_LENGTH], text_of)
    odd = row[ODDITIES]
    if not is_result and _has_blanks(data, payload, payload + row[PAYLOAD_LENGTH]):
        odd |= ODD_BLANKS
    cut.put("oddities", odd)


def _has_blanks(data: bytes, start: int, stop: int) -> bool:
    """WOLP-6: whether there are blanks in base64."""
    return any(blank in data[start:stop] for blank in BLANKS)

"""Fields of wolpertinger texts: pairs of metadata, payload, line feed (WOLP-1, WOLP-11)."""

from __future__ import annotations

from collections.abc import Sequence

from wirelake.explore.bytes.layout import Field, Tiling, text_of
from wirelake.protocols.kernel import LENGTH, START
from wirelake.protocols.wolpertinger.scanner import PAYLOAD, PAYLOAD_LENGTH

__all__ = ["fields"]


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:  # noqa: ARG001 - as in every protocol
    """Return the fields of a scanned text; a pair is one field, with its colon and semicolon."""
    cut = Tiling(data, row[START], row[START] + row[LENGTH])
    while cut.at < row[PAYLOAD]:
        end = data.find(b";", cut.at, row[PAYLOAD]) + 1 or row[PAYLOAD]
        key, _, value = data[cut.at : end].rstrip(b";").partition(b":")
        cut.until(text_of(key.lower()) or "pair", end, text_of(value))
    cut.take("payload", row[PAYLOAD_LENGTH], text_of)
    return cut.finish("line feed")

"""Fields of YAMP messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wirelake.explore.bytes.layout import Named, Tiling, Truth, hex_of, number_be, text_of
from wirelake.protocols.kernel import KIND, LENGTH
from wirelake.protocols.yamp.messages import TYPES, MessageType, ResponseType, name_of
from wirelake.protocols.yamp.scanner import BODY, CODE, ODDITIES, UID_SIZE, URI_LENGTH

__all__ = ["REST", "lay_out"]

REST: Final = "body"
"""The name of bytes that are left."""
_TYPE: Final = Named(MessageType)
_RESPONSE_TYPE: Final = Named(ResponseType)
_TRUTH: Final = Truth()
_TYPE_NAMES: Final = {number.value: name_of(message) for message, number in TYPES.items()}
_RESPONSE_NAMES: Final = {one.value: one.name.lower() for one in ResponseType}


def lay_out(cut: Tiling, data: bytes, row: Sequence[int], parts: Sequence[int]) -> None:  # noqa: ARG001 - as in every protocol
    """Cut a scanned message into its fields."""
    kind = row[KIND]
    cut.put("size", row[LENGTH])
    cut.take("type", 1, _TYPE)
    if kind in _TYPE_NAMES:
        cut.put("type_name", _TYPE_NAMES.get(kind, ""))
    if kind >= MessageType.EVENT.value:
        _user(cut, row, kind)
    elif kind == MessageType.HANDSHAKE.value:
        cut.take("version", 2, number_be)
        cut.until("serializer length", row[BODY], number_be)
        cut.until("serializer", cut.stop, text_of)
    elif kind == MessageType.CLOSE.value:
        cut.until("reason length", row[BODY], number_be)
        cut.until("reason", cut.stop, text_of)
    elif kind == MessageType.CLOSE_REDIRECT.value:
        cut.until("url length", row[BODY], number_be)
        cut.until("url", cut.stop, text_of)
    else:
        cut.until("payload length", row[BODY], number_be)
        cut.until("payload", cut.stop, hex_of)
    cut.put("oddities", row[ODDITIES])


def _user(cut: Tiling, row: Sequence[int], kind: int) -> None:
    """Messages of applications."""
    cut.take("uid", UID_SIZE)
    cut.take("uri length", 1, number_be)
    cut.take("uri", row[URI_LENGTH], text_of)
    if kind >= MessageType.CANCEL.value:
        cut.take("request_uid", UID_SIZE)
    if kind == MessageType.REQUEST.value:
        cut.take("progressive", 1, _TRUTH)
    elif kind == MessageType.CANCEL.value:
        cut.take("kill", 1, _TRUTH)
    elif kind == MessageType.RESPONSE.value:
        cut.take("response type", 1, _RESPONSE_TYPE)
        if row[CODE] in _RESPONSE_NAMES:
            cut.put("response_type_name", _RESPONSE_NAMES.get(row[CODE], ""))
    cut.until("body length", row[BODY], number_be)
    if kind != MessageType.CANCEL.value:
        cut.until("body", cut.stop, text_of)

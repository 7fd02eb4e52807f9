"""Fields of YAMP messages."""

from __future__ import annotations

from collections.abc import Sequence

from wirelake.explore.bytes.layout import Field, Tiling, hex_of, number_be, text_of
from wirelake.protocols.kernel import KIND, LENGTH, START
from wirelake.protocols.yamp.messages import MessageType, ResponseType
from wirelake.protocols.yamp.scanner import BODY, UID_SIZE, URI_LENGTH

__all__ = ["fields"]


def fields(data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:  # noqa: ARG001 - as in every protocol
    """Return the fields of a scanned message."""
    cut = Tiling(data, row[START], row[START] + row[LENGTH])
    kind = row[KIND]
    cut.take("type", 1, lambda raw: f"{raw[0]} {MessageType(raw[0]).name.lower()}" if raw[0] <= MessageType.RESPONSE else str(raw[0]))
    if kind >= MessageType.EVENT.value:
        cut.take("uid", UID_SIZE)
        cut.take("uri length", 1, number_be)
        cut.take("uri", row[URI_LENGTH], text_of)
        if kind >= MessageType.CANCEL.value:
            cut.take("request_uid", UID_SIZE)
        if kind == MessageType.REQUEST.value:
            cut.take("progressive", 1, _truth)
        elif kind == MessageType.CANCEL.value:
            cut.take("kill", 1, _truth)
        elif kind == MessageType.RESPONSE.value:
            cut.take("response type", 1, _response)
        cut.until("body length", row[BODY], number_be)
        return _finished(cut, "body")
    names = {
        MessageType.HANDSHAKE.value: ("serializer", "serializer length"),
        MessageType.CLOSE.value: ("reason", "reason length"),
        MessageType.CLOSE_REDIRECT.value: ("url", "url length"),
    }
    name, length = names.get(kind, ("payload", "payload length"))
    if kind == MessageType.HANDSHAKE.value:
        cut.take("version", 2, number_be)
    cut.until(length, row[BODY], number_be)
    return _finished(cut, name, show_hex=name == "payload")


def _finished(cut: Tiling, name: str, *, show_hex: bool = False) -> list[Field]:
    cut.until(name, cut.stop, hex_of if show_hex else text_of)
    return cut.fields


def _truth(raw: bytes) -> str:
    return {0: "false", 1: "true"}.get(raw[0], str(raw[0]))


def _response(raw: bytes) -> str:
    return f"{raw[0]} {ResponseType(raw[0]).name.lower()}" if raw[0] <= ResponseType.CANCELLED else str(raw[0])

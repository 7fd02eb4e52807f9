"""Dissect: the layers of a message, from its frame to the document inside."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final
from xml.parsers import expat

from wirelake.explore.bytes.layout import Field, Layer, Tiling, hex_of, text_of
from wirelake.protocols.kernel import LENGTH, START

__all__ = ["LAID_OUT", "MAX_DOCUMENT", "fields_of", "layers", "layout_of"]

MAX_DOCUMENT: Final = 1 << 20
"""Bytes of a document that is formatted at most."""
LAID_OUT: Final = ("emp", "event_mesh", "relink", "yamp", "wolpertinger")
"""Protocols with a module of their own here; of others the frame is one field."""
_BLANKS: Final = re.compile(rb"[ \t\r\n]+")


def layout_of(protocol: str) -> ModuleType:
    """Return the module with the layout of a protocol: `lay_out` and `REST`."""
    return import_module(f"wirelake.explore.bytes.{protocol}")


def fields_of(protocol: str, data: bytes, row: Sequence[int], parts: Sequence[int]) -> list[Field]:
    """Return the fields of a scanned row, in order and without gaps."""
    if protocol not in LAID_OUT:
        return [Field("message", 0, len(data), hex_of(data))]
    layout, cut = layout_of(protocol), Tiling(data, row[START], row[START] + row[LENGTH])
    layout.lay_out(cut, data, row, parts)
    return cut.finish(layout.REST)


def layers(frame: bytes | None, fields: list[Field], body: bytes | None, *, encrypted: bool = False) -> list[Layer]:
    """Return the layers of a message: its frame, what base64 hides, and its body.

    `frame` is None if the source file is gone. `body` is the payload as the lake has it: decompressed, and decrypted if keys were there.
    """
    found = [] if frame is None else [Layer("frame", frame, fields)]
    if frame is not None:
        found += _decoded(frame, fields, body, encrypted=encrypted)
    if body:
        document = _document(body)
        is_slice = frame is not None and body in frame
        if not is_slice or document is not None:
            name = document[1].upper() if document is not None else "decrypted" if encrypted else "unpacked"
            layer = Layer(name, body, [Field("body", 0, len(body), text_of(body))])
            if document is not None:
                layer.text, layer.syntax = document
            found.append(layer)
    return found


def _decoded(frame: bytes, fields: list[Field], body: bytes | None, *, encrypted: bool) -> list[Layer]:
    """The bytes that a payload in base64 stands for, if that is not the body itself."""
    payload = next((field for field in fields if field.name == "payload" and not field.group), None)
    is_packed = encrypted or any(field.name == "gzip" for field in fields)
    if payload is None or not is_packed:
        return []
    try:
        raw = binascii.a2b_base64(_BLANKS.sub(b"", frame[payload.start : payload.stop]), strict_mode=True)
    except binascii.Error:
        return []
    if raw == body:
        return []
    name = "encrypted" if encrypted else "compressed"
    return [Layer(name, raw, [Field(f"{name} payload", 0, len(raw), hex_of(raw))])]


def _document(body: bytes) -> tuple[str, str] | None:
    """A body as a formatted document and its syntax; None if it is none, or too large."""
    start = body[:64].lstrip()[:1]
    if len(body) > MAX_DOCUMENT or start not in (b"{", b"[", b"<"):
        return None
    try:
        if start == b"<":
            return _indented(body), "xml"
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False), "json"
    except (ValueError, RecursionError, expat.ExpatError):
        return None


def _indented(document: bytes) -> str:
    """XML with a line for each tag. Nothing outside the document is read: a document type ends it."""
    lines: list[str] = []
    depth = 0
    pending = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        flush()
        written = "".join(f' {key}="{_escaped(value)}"' for key, value in attributes.items())
        lines.append(f"{'  ' * depth}<{name}{written}>")
        depth += 1

    def end(name: str) -> None:
        nonlocal depth, pending
        depth -= 1
        opening = lines[-1].lstrip() if lines else ""
        if opening.startswith(f"<{name}") and not opening.endswith("/>") and lines[-1].startswith("  " * depth + "<"):
            text, pending = pending.strip(), ""
            lines[-1] = f"{lines[-1]}{_escaped(text)}</{name}>" if text else f"{lines[-1][:-1]}/>"
            return
        flush()
        lines.append(f"{'  ' * depth}</{name}>")

    def text(data: str) -> None:
        nonlocal pending
        pending += data

    def flush() -> None:
        nonlocal pending
        if pending.strip():
            lines.append(f"{'  ' * depth}{_escaped(pending.strip())}")
        pending = ""

    def refuse(*_: object) -> None:
        raise ValueError("a document type")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(document, True)
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")

"""Messages as Wireshark's own command line shows them with our dissectors, and as our decoder does: to be compared field by field."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from wirelake import protocols
from wirelake.capture.blocks.block import Source
from wirelake.capture.blocks.read_file import read
from wirelake.capture.files.source_file import measure
from wirelake.explore.bytes.dissect import layout_of
from wirelake.explore.dissector.fields import uses_of
from wirelake.explore.dissector.specifics import SPECIFICS
from wirelake.explore.dissector.write import write
from wirelake.lake.decode.decoder import DecodeOptions, Decoder

NOT_IN_WIRESHARK: Final = {"wolpertinger": frozenset(["parameters", "value"])}
"""Columns without a field: Wireshark shows the document instead (docs/wireshark.md)."""
OF_DOCUMENTS: Final = frozenset(["root", "component", "method", "call_id", "error_code", "error_name"])
"""Columns of wolpertinger that the dissector fills without checking the document."""
DOCUMENT_FAULTS: Final = range(50, 70)
"""Faults of wolpertinger's documents, which Wireshark does not look for."""
LUA_ERROR: Final = "Lua Error"

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: `make tools` installs it")


class Shown(msgspec.Struct):
    """One message as Wireshark shows it."""

    frame: int
    fields: dict[str, list[Any]]
    """Column -> its values, as text; `column_raw` -> their bytes in hex."""

    def values(self, column: str) -> list[Any]:
        return self.fields.get(column.replace(".", "_"), [])

    def raw(self, column: str) -> list[bytes]:
        """The bytes below each value that has some."""
        return [bytes.fromhex(each) for each in self.fields.get(f"{column.replace('.', '_')}_raw", []) if each]

    def texts(self, column: str) -> list[str]:
        """Texts by their bytes, because tshark escapes what it prints. It leaves out all bytes of a list that begins with an empty text."""
        values, raw = self.values(column), iter(self.raw(column))
        count = len(self.raw(column))
        if count not in (len(values), sum(map(bool, values))):
            return values
        return [next(raw).decode(errors="replace") if each or count == len(values) else "" for each in values]

    def octets(self, column: str) -> list[bytes]:
        """The values of a field of bytes."""
        return [bytes.fromhex(each.replace(":", "")) for each in self.values(column)]


def home(folder: Path) -> dict[str, str]:
    """An environment whose personal folder of plugins has our dissectors, and nothing else is set."""
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config"), "TZ": "UTC"}
    plugins = folder / ".local" / "lib" / "wireshark" / "plugins"
    if not plugins.exists():
        plugins.mkdir(parents=True)
        write(plugins, list(protocols.names())[:5])
    return environment


def tshark(folder: Path, *arguments: str) -> str:
    """The output of tshark, which must not complain."""
    done = subprocess.run(["tshark", "-n", *arguments], env=home(folder), capture_output=True, check=False, timeout=600)
    errors = [line for line in done.stderr.decode(errors="replace").splitlines() if not line.startswith("Running as user")]
    text = done.stdout.decode(errors="replace")
    assert LUA_ERROR not in text, text[max(0, text.index(LUA_ERROR) - 300) :][:2000]
    assert not errors, errors
    assert done.returncode == 0
    return text


def shown(folder: Path, capture: Path, protocol: str, *arguments: str) -> list[Shown]:
    """Every message of a protocol in a capture, in the order of Wireshark."""
    text = tshark(folder, "-r", str(capture), "-T", "ek", "-x", "-J", f"{protocol} text", "-Y", protocol, *arguments)
    prefix = f"{protocol}_{protocol}_"
    found = []
    for number, line in enumerate(text.splitlines()):
        if not line.startswith('{"timestamp"'):
            continue
        layers = msgspec.json.decode(line)["layers"].get(protocol, [])
        for layer in layers if isinstance(layers, list) else [layers]:
            fields = {
                name.removeprefix(prefix): value if isinstance(value, list) else [value]
                for name, value in layer.items()
                if name.startswith(prefix)
            }
            found.append(Shown(number, fields))
    return found


class Row(msgspec.Struct):
    """One row of the protocol's table, or of `quarantine`."""

    offset: int
    own: dict[str, Any] | None
    fault: str | None
    raw: bytes | None


def rows(capture: Path, protocol: str) -> list[Row]:
    """Every message of a protocol in a capture, and bytes that are none, in the order of the file."""
    name, size = measure(str(capture))
    decoder = Decoder(DecodeOptions(json_bodies=False))
    found: list[Row] = []

    def take(batches: dict[str, list[pa.RecordBatch]]) -> None:
        for batch in batches.get(protocol, []):
            found.extend(Row(one["offset"], one, one["fault"], None) for one in batch.to_pylist())
        for batch in batches.get("quarantine", []):
            found.extend(Row(one["offset"], None, one["reason"], one["raw"]) for one in batch.to_pylist())

    ports = {port: each for port, each in protocols.ports().items() if each == protocol}
    for block in read(Source(name, bytes(8), size), ports=ports, sniff=protocols.sniff, dialect=protocols.dialect):
        take(decoder.feed(block))
    take(decoder.finish())
    return sorted(found, key=lambda row: row.offset)


@cache
def over_bytes(protocol: str) -> frozenset[str]:
    """Columns whose fields stand over the bytes of their values."""
    put = {use.column for use in uses_of(layout_of(protocol).lay_out) if use.method == "put"}
    own = {name for name, *_ in SPECIFICS[protocol].fields}
    return frozenset(use.column for use in uses_of(layout_of(protocol).lay_out)) - put - own


def columns_of(protocol: str) -> Iterator[tuple[str, pa.DataType]]:
    """Every column of a table, those of a list of structs one by one; with the type of one value."""
    for field in protocols.get(protocol).columns().SCHEMA:
        if field.name in NOT_IN_WIRESHARK.get(protocol, ()):
            continue
        kind = field.type.value_type if pa.types.is_list(field.type) else field.type
        if pa.types.is_struct(kind):
            yield from ((f"{field.name}.{inside.name}", inside.type) for inside in kind)
        else:
            yield field.name, kind


def expected(own: dict[str, Any], column: str) -> list[Any]:
    """The values of a column of our row. A null is no value, and neither is an empty list."""
    name, _, inside = column.partition(".")
    value = own[name]
    values = value if isinstance(value, list) else [value]
    if inside:
        values = [each[inside] for each in values if each is not None]
    return [each for each in values if each is not None]


def told(message: Shown, column: str, kind: pa.DataType, protocol: str) -> list[Any]:
    """The values of the same column in Wireshark, as our types."""
    values = message.values(column)
    if pa.types.is_boolean(kind):
        return values
    if pa.types.is_decimal(kind):
        return [Decimal(each) for each in values]
    if pa.types.is_integer(kind):
        return [int(each, 0) for each in values]
    if pa.types.is_floating(kind):
        return [struct.unpack(">f", each)[0] for each in message.raw(column)]
    if pa.types.is_string(kind):
        return message.texts(column) if column in over_bytes(protocol) else values
    return message.octets(column)


PACKED: Final = 4
"""Event Mesh: the payload is compressed. Tables have what it hides (EMM-14), and Wireshark what travelled."""
INSIDE: Final = frozenset(("event_name", "strings", "integers", "floats", "binaries", "jsons", "fields"))
"""Columns of such a packet that differ."""


def differences(protocol: str, capture: Path, messages: Iterable[Shown]) -> tuple[int, int, list[str]]:
    """How many messages and values were compared, and where they differ."""
    ours, theirs, found, values = rows(capture, protocol), list(messages), [], 0
    columns = list(columns_of(protocol))
    faults = protocols.get(protocol).faults.__members__
    for index, (row, message) in enumerate(zip(ours, theirs, strict=False)):
        if row.own is None:
            if (message.values("fault"), message.octets("unreadable")) != ([row.fault], [row.raw]):
                found.append(f"{index} at {row.offset}: quarantine {row.fault} {row.raw!r}, Wireshark {message.fields}")
            continue
        is_packed = protocol == "event_mesh" and bool(row.own["flags"] & PACKED)
        is_rejected = protocol == "wolpertinger" and row.fault is not None and faults[row.fault] in DOCUMENT_FAULTS
        for column, kind in columns:
            if (is_rejected and column in OF_DOCUMENTS | {"fault"}) or (is_packed and column in INSIDE):
                continue
            wanted, given = expected(row.own, column), told(message, column, kind, protocol)
            values += 1
            if not equal(wanted, given, kind):
                found.append(f"{index} at {row.offset}: {column} is {wanted!r}, in Wireshark {given!r}")
    if len(ours) != len(theirs):
        found.append(f"{len(ours)} messages, {len(theirs)} in Wireshark")
    return len(ours), values, found


def equal(wanted: list[Any], given: list[Any], kind: pa.DataType) -> bool:
    """Whether values are equal; floats are by their bits."""
    if pa.types.is_floating(kind):
        return np.array(wanted, np.float32).tobytes() == np.array(given, np.float32).tobytes()
    return wanted == given

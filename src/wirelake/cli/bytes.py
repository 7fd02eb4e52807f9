"""`wirelake bytes`: the bytes of one message, with the field of each."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.own_process import without_pandas
from wirelake.cli.terminal import json_text, say
from wirelake.errors import UsageError
from wirelake.extras import TABLES, need
from wirelake.text import visible

if TYPE_CHECKING:
    from wirelake.explore.bytes.layout import Field, Layer

__all__ = ["bytes"]

LINE: Final = 16
"""Bytes of one line."""
SHOWN_LINES: Final = 16
"""Lines of one field, unless --all is given."""


class Shape(StrEnum):
    """How bytes are printed."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


@click.command(name="bytes")
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("message_id")
@click.option(
    "-T", "--format", "form", type=click.Choice(Shape, case_sensitive=False), default=Shape.TEXT, show_default=True, help="How to print."
)
@click.option("--layer", "layer", help="Only this layer, such as frame, unpacked, decrypted, JSON or XML; with raw, frame by default.")
@click.option("--all", "is_whole", is_flag=True, help="With text, print long fields whole.")
@click.option(
    "--search",
    "search_mib",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="MiB of a file that are decoded again at most, to join the pieces of a message.",
)
def bytes(lake: Path, message_id: str, form: Shape, layer: str | None, is_whole: bool, search_mib: int) -> int:  # noqa: A001 - the command's name
    """Print the bytes of one message, and which field each byte belongs to.

    \b
    LAKE        The lake's folder.
    MESSAGE_ID  The id of the message: 32 hex digits, as every command prints it.

    The bytes are read from the source file, and compared with the lake's row. If the file is gone or has changed, stderr says so.
    Then only the layers that the lake has are printed.

    Example: wirelake bytes LAKE $(wirelake query LAKE "select message_id from messages limit 1" -T csv | tail -1)
    """
    need(*TABLES)
    without_pandas()
    from wirelake.explore.bytes.dissect import layers  # noqa: PLC0415 - needs the lake extra
    from wirelake.explore.bytes.read import Place, SourceGone, read  # noqa: PLC0415
    from wirelake.explore.model import messages  # noqa: PLC0415
    from wirelake.explore.model.database import Database  # noqa: PLC0415
    from wirelake.protocols.kernel import use_plain  # noqa: PLC0415

    use_plain()
    with Database(lake) as database, database.connection() as connection:
        found = messages.one(connection, message_id)
    line, frame, fields = found.line, None, list["Field"]()
    try:
        read_frame = read(
            Place(line.protocol, found.source, found.offset, found.length, line.size, found.own), search_bytes=search_mib << 20
        )
        frame, fields = read_frame.data, read_frame.fields
    except SourceGone as error:
        say(f"wirelake: {error}")
    shown = layers(frame, fields, found.body, encrypted=found.own.get("encryption") is not None)
    if layer is not None or form is Shape.RAW:
        shown = [_chosen(shown, layer or "frame")]
    if form is Shape.RAW:
        sys.stdout.buffer.write(shown[0].data)
    elif form is Shape.JSON:
        print(json_text({"message_id": line.id, "protocol": line.protocol, "layers": [_object(one) for one in shown]}))
    else:
        print(visible(f"{line.protocol} {line.kind} {line.name} {line.subject or ''}".rstrip()))
        for one in shown:
            print("\n".join(_lines(one, is_whole=is_whole)))
    return ExitCode.OK if frame is not None else ExitCode.FAILED


def _chosen(shown: list[Layer], name: str) -> Layer:
    for one in shown:
        if one.name.lower() == name.lower():
            return one
    raise UsageError(f"--layer {name}: the message has {', '.join(one.name for one in shown) or 'no bytes'}")


def _object(layer: Layer) -> dict[str, Any]:
    fields = [
        {"name": one.name, "start": one.start, "stop": one.stop, "value": one.value, **({"group": one.group} if one.group else {})}
        for one in layer.fields
    ]
    return {"name": layer.name, "hex": layer.data.hex(), "fields": fields, **({"text": layer.text} if layer.text else {})}


def _lines(layer: Layer, *, is_whole: bool) -> list[str]:
    """A layer: one line for each 16 bytes of each field."""
    lines, group = ["", f"{layer.name}, {len(layer.data)} bytes"], ""
    for field in layer.fields:
        if field.group != group:
            group = field.group
            lines += [f"  {group}"] if group else []
        most = field.stop if is_whole else field.start + SHOWN_LINES * LINE
        for at in range(field.start, min(field.stop, most), LINE):
            piece = layer.data[at : min(at + LINE, field.stop)]
            text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "·" for byte in piece)
            said = visible(f"{field.name} = {field.value[:60]}") if at == field.start else ""
            lines.append(f"  {at:>6}  {piece.hex(' '):<{3 * LINE - 1}}  {text:<{LINE}}  {said}".rstrip())
        if field.stop > most:
            lines.append(f"          … {field.stop - most} bytes more; --all prints them")
    if layer.text:
        lines += ["", *(f"  {visible(one)}" for one in layer.text.splitlines())]
    return lines

"""`wirelake decode`: bytes to one JSON object per message."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO, Final

import click

from wirelake import protocols
from wirelake.cli.exits import ExitCode
from wirelake.cli.flags import limits_of, set_flag
from wirelake.cli.terminal import Format, open_input, print_objects
from wirelake.errors import UsageError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.kernel import use_compiled

__all__ = ["decode"]

CHUNK: Final = 1024 * 1024
"""Bytes read in one go."""
WORTH_COMPILING: Final = 4 * CHUNK
"""Input from which on loading the compiled scanner pays."""


@click.command()
@click.argument("protocol")
@click.argument("file", default="-")
@click.option("--hex", "hex_text", is_flag=True, help="The input is hex digits; white space is ignored.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Format, case_sensitive=False), default=Format.JSON, show_default=True, help="How to print."
)
@click.option("-e", "--field", "field", multiple=True, help="Print this field only; give it more than once.")
@click.option("-c", "--count", "count", type=click.IntRange(min=0), help="Stop after so many messages.")
@set_flag
def decode(
    protocol: str,
    file: str,
    hex_text: bool,
    form: Format,
    field: tuple[str, ...],
    count: int | None,
    settings: tuple[str, ...],
) -> int:
    """Print the messages in a stream of bytes, one object per line.

    \b
    PROTOCOL  Which protocol the bytes are.
    FILE      A file of raw bytes, or - for standard input.

    An object has offset, length and type, then every field of the specification; bytes are hex. What cannot be read is an object with
    fault, clause and offset, and the exit code is 65. Reading goes on after a message that is broken inside, and stops where it can no
    longer be known where the next one begins.
    """
    room = protocols.room(protocol)
    notation = import_module(f"{room.__name__}.notation")
    limits = limits_of(protocol, settings)
    code = ExitCode.OK
    with open_input(file) as source:
        for shown, described in enumerate(_objects(_chunks(source, hex_text), room, notation, limits)):
            if count is not None and shown >= count:
                break
            if "fault" in described:
                code = ExitCode.DATA
            print_objects(described, form, list(field))
    return code


def _chunks(source: BinaryIO, hex_text: bool) -> Iterator[bytes]:
    if not hex_text:
        while data := source.read(CHUNK):
            yield data
        return
    digits = b"".join(source.read().split())
    try:
        yield bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        raise UsageError("--hex: the input is not an even number of hex digits") from None


def _objects(chunks: Iterator[bytes], room: Any, notation: Any, limits: Any) -> Iterator[dict[str, Any]]:
    buffer: Buffer | None = None
    seen = 0
    for chunk in chunks:
        if buffer is None:
            if len(chunk) >= WORTH_COMPILING:
                use_compiled()
            buffer = room.buffer(limits)
        base = seen - len(buffer.rest)
        seen += len(chunk)
        for data, rows, parts in buffer.feed(chunk):
            for row in rows:
                yield notation.describe(data, row, parts, limits, base)
        if buffer.lost:
            return
    if buffer is not None and (rest := buffer.rest):
        fault = room.Fault.MESSAGE_CUT
        yield {"offset": seen - len(rest), "fault": fault.name, "clause": fault.clause, "text": fault.text, "message_length": len(rest)}

"""`wirelake decode`: bytes to one JSON object per message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from wirelake import protocols
from wirelake.cli.exits import ExitCode
from wirelake.cli.flags import limits_of, seconds_of, set_flag
from wirelake.cli.terminal import Format, open_input, print_objects
from wirelake.errors import UsageError
from wirelake.protocols.buffer import Buffer
from wirelake.protocols.kernel import use_compiled

__all__ = ["decode"]

CHUNK: Final = 1024 * 1024
"""Bytes read in one go."""
WORTH_COMPILING: Final = 4 * CHUNK
"""Input from which on loading the compiled scanner pays."""
LARGEST_DATAGRAM: Final = 65_536
"""No datagram is larger; more than this is read as one that is too large."""

Describe = Callable[..., dict[str, Any]]
"""A scanned row -> the object that is printed."""
Verifier = Callable[[bytes], dict[str, Any]]
"""A message's bytes -> what is to be said of its sender."""


@click.command()
@click.argument("protocol")
@click.argument("file", default="-")
@click.option("--hex", "hex_text", is_flag=True, help="The input is hex digits; white space is ignored.")
@click.option(
    "-T", "--format", "form", type=click.Choice(Format, case_sensitive=False), default=Format.JSON, show_default=True, help="How to print."
)
@click.option("-e", "--field", "field", multiple=True, help="Print this field only; give it more than once.")
@click.option("-c", "--count", "count", type=click.IntRange(min=0), help="Stop after so many messages.")
@click.option(
    "--keys",
    "keys",
    type=click.Path(path_type=Path),
    help="Verify (event-mesh; see `wirelake keys`) or decrypt (wolpertinger) with this file of keys.",
)
@click.option("--now", "now", metavar="TIME", help="Verify as of this time, in seconds since 1970 or as 2026-01-31T12:00:00Z.")
@set_flag
def decode(
    protocol: str,
    file: str,
    hex_text: bool,
    form: Format,
    field: tuple[str, ...],
    count: int | None,
    keys: Path | None,
    now: str | None,
    settings: tuple[str, ...],
) -> int:
    """Print the messages in a stream of bytes, one object per line.

    \b
    PROTOCOL  Which protocol the bytes are.
    FILE      A file of raw bytes, or - for standard input. Where messages are datagrams, one; in hex, one per line.

    An object has offset, length and type, then every field of the specification; bytes are hex. What cannot be read is an object with
    fault, clause and offset, and the exit code is 65. Reading goes on after a message that is broken inside, and stops where it can no
    longer be known where the next one begins. With --keys, each object says who sent the message and how that is known, or why it is
    rejected; a rejected one counts as one that cannot be read. For wolpertinger, whose objects show both layers, the file has lines of
    `wolpertinger KEY IV`, in hex, and opens what is encrypted.
    """
    room = protocols.room(protocol)
    notation = import_module(f"{room.__name__}.notation")
    limits = limits_of(protocol, settings)
    describe, verify = notation.describe, None
    if hasattr(notation, "Describer"):
        describe = _describer(notation, keys, now)
    else:
        verify = _verifier(protocol, keys, now, limits)
    code = ExitCode.OK
    with open_input(file) as source:
        for shown, described in enumerate(_objects(source, hex_text, room, describe, limits, verify)):
            if count is not None and shown >= count:
                break
            if "fault" in described or "rejected" in described:
                code = ExitCode.DATA
            print_objects(described, form, list(field))
    return code


def _describer(notation: Any, keys: Path | None, now: str | None) -> Describe:
    """What describes messages that depend on earlier ones, and on keys."""
    if now is not None:
        raise UsageError("--now is the time to verify for: nothing is verified here")
    keyring = None
    if keys is not None:
        from wirelake.peers import key_log  # noqa: PLC0415 - only who gives keys pays for it

        keyring = key_log.load(keys)
    describe: Describe = notation.Describer(keyring).describe
    return describe


def _verifier(protocol: str, keys: Path | None, now: str | None, limits: Any) -> Verifier | None:
    """What tells genuine messages from others, if somebody gave keys."""
    if keys is None:
        if now is not None:
            raise UsageError("--now is the time to verify for: it needs --keys")
        return None
    make = getattr(import_module(f"wirelake.cli.rooms.{protocols.named(protocol)}"), "verifier", None)
    if make is None:
        raise UsageError(f"--keys: messages of {protocol} carry nothing to verify")
    verify: Verifier = make(keys, time.time() if now is None else seconds_of(now, "--now"), limits)
    return verify


def _chunks(source: BinaryIO, hex_text: bool, datagrams: bool) -> Iterator[bytes]:
    """The input in pieces: of any size for a stream, otherwise whole datagrams."""
    if hex_text:
        lines = source.read().splitlines() if datagrams else [source.read()]
        for line in lines:
            try:
                if digits := b"".join(line.split()):
                    yield bytes.fromhex(digits.decode("ascii"))
            except ValueError:
                raise UsageError("--hex: the input is not an even number of hex digits") from None
    elif datagrams:
        yield source.read(LARGEST_DATAGRAM)
    else:
        while data := source.read(CHUNK):
            yield data


def _objects(
    source: BinaryIO, hex_text: bool, room: Any, describe: Describe, limits: Any, verify: Verifier | None
) -> Iterator[dict[str, Any]]:
    buffer: Buffer | None = None
    datagrams = room.buffer(limits).takes_datagrams
    seen = 0
    for chunk in _chunks(source, hex_text, datagrams):
        if buffer is None:
            if len(chunk) >= WORTH_COMPILING:
                use_compiled()
            buffer = room.buffer(limits)
        base = 0 if datagrams else seen - len(buffer.rest)
        seen += len(chunk)
        for data, rows, parts in buffer.feed(chunk):
            for row in rows:
                described = describe(data, row, parts, limits, base)
                yield described if verify is None or "fault" in described else described | verify(data)
        if buffer.lost:
            return
    if buffer is not None and (rest := buffer.rest):
        fault = room.Fault.MESSAGE_CUT
        yield {"offset": seen - len(rest), "fault": fault.name, "clause": fault.clause, "text": fault.text, "message_length": len(rest)}

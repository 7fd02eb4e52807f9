"""`wirelake encode`: JSON objects to bytes."""

from __future__ import annotations

import sys

import click
import msgspec

from wirelake import protocols
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import PROTOCOL, limits_of, set_flag
from wirelake.cli.terminal import open_input, say
from wirelake.errors import LocalProtocolError, UsageError

__all__ = ["encode"]


@click.command()
@click.argument("protocol", type=PROTOCOL)
@click.argument("file", default="-")
@click.option("--hex", "hex_text", is_flag=True, help="Write hex digits, one message per line.")
@set_flag
def encode(protocol: str, file: str, hex_text: bool, settings: tuple[str, ...]) -> int:
    """Write the bytes of messages given as the objects `decode` prints.

    \b
    PROTOCOL  Which protocol to write.
    FILE      A file of JSON objects, one per line, or - for standard input.

    offset, length and the sizes of extension blocks are worked out. A data message may give `plain_body` instead of `body`: it is packed
    as its compression blocks say. The first object that is no message ends the command with exit code 65.
    """
    descriptor = protocols.get(protocol)
    notation = descriptor.notation()
    limits = limits_of(protocol, settings)
    with open_input(file) as source:
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                data = descriptor.encode(notation.parse(msgspec.json.decode(line, type=dict)), limits)
            except (UsageError, LocalProtocolError, msgspec.DecodeError) as reason:
                sys.stdout.flush()
                say(f"wirelake: line {number}: {reason}")
                return ExitCode.DATA
            if hex_text:
                print(data.hex())
            else:
                sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return ExitCode.OK

"""`wirelake decode`: a stream, datagrams or a capture to one JSON object per message."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

import click

from wirelake import protocols, scratch
from wirelake.capture.files.magic import HEAD_SIZE, capture_kind, compression_of
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import PROTOCOL, limits_of, seconds_of, set_flag, settings_of
from wirelake.cli.terminal import Format, open_input, print_objects, say, say_how_to_explain
from wirelake.errors import CaptureError, UsageError
from wirelake.extras import CAPTURES, need
from wirelake.protocols.kernel import use_compiled
from wirelake.protocols.protocol import AnyProtocol, Describe, FrameBuffer, JsonObject, Limits, Message, Notation

if TYPE_CHECKING:
    from wirelake.explore.captured import Captured

__all__ = ["decode"]

CHUNK: Final = 1024 * 1024
"""Bytes read in one go."""
WORTH_COMPILING: Final = 4 * CHUNK
"""Input from which on loading the compiled scanner pays."""
LARGEST_DATAGRAM: Final = 65_536
"""No datagram is larger; more than this is read as one that is too large."""

T = TypeVar("T")
MakeDescribe = Callable[[], Describe[Limits]]
"""Called once for each sender."""
Verify = Callable[[bytes, float | None], JsonObject]
"""The bytes of a message, and the time it was seen, if known -> fields about its sender."""


@click.command()
@click.argument("protocol", type=PROTOCOL)
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
    help="Verify (event_mesh; see `wirelake keys`) or decrypt (wolpertinger) with this file of keys.",
)
@click.option(
    "--now",
    "now",
    metavar="TIME",
    help="Verify as of this time, in seconds since 1970 or as 2026-01-31T12:00:00Z; otherwise as of now, or of a capture's times.",
)
@click.option(
    "--port", "ports", type=click.IntRange(1, 65_535), multiple=True, help="Of a capture, read all connections of this port; repeatable."
)
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
    ports: tuple[int, ...],
    settings: tuple[str, ...],
) -> int:
    """Print the messages in a stream of bytes or in a capture, one object per line.

    \b
    PROTOCOL  Which protocol the bytes are.
    FILE      A file of raw bytes, or - for standard input. Where messages are datagrams, one; in hex, one per line.
              A recording or packet capture (pcap, pcapng, packed or not) is recognised by its first bytes.

    An object has offset, length and type, then every field of the specification; bytes are hex. What cannot be read is an object with
    fault, clause (see `wirelake explain`) and offset, and the exit code is 65. Reading goes on after a message that is broken inside.
    It stops where the beginning of the next one cannot be known. With --keys, each object says who sent the message and how that is
    known, or why it is rejected; a rejected one counts as one that cannot be read. For wolpertinger, whose objects show both layers, the
    file has lines of `wolpertinger KEY IV`, in hex, and opens what is encrypted.

    Of a capture, the messages of PROTOCOL are printed, and offset is the place in the file. ts, from, to and connection_id come first.
    Connections are recognised as `ingest` does: by a recording's tag, by port, or by their first bytes. Reading a capture needs
    wirelake[lake], but neither Spark nor a lake.
    """
    descriptor = protocols.get(protocol)
    notation = descriptor.notation()
    limits = limits_of(protocol, settings)
    shown = _Shown(protocol, form, list(field), count)
    with open_input(file) as source:
        head = b"" if hex_text else source.read(HEAD_SIZE)
        is_capture = bool(capture_kind(head) or compression_of(head))
        if is_capture:
            use_compiled()  # before anything is made that scans
        describer = _describer(notation, keys, now)
        verify = _verifier(descriptor, keys, now, limits) if notation.describers is None else None
        if is_capture:
            with _on_disk(file, source, head) as path:
                captured = _captured(path, protocol, describer, settings, ports, verify)
                if captured is not None:
                    say(f"{file}: a {captured.container} capture; its messages of {protocol}:")
                    shown.print(captured.objects())
                    _sum_up(captured, protocol, shown)
                    return shown.code
                with open_input(path) as packed:  # by chance it begins like a packed file
                    return shown.print(_objects(packed, b"", hex_text, descriptor, describer(), limits, verify))
        if ports:
            raise UsageError("--port is for captures, and the input is none")
        return shown.print(_objects(source, head, hex_text, descriptor, describer(), limits, verify))


class _Shown:
    """Prints objects, counts them, and knows the exit code."""

    def __init__(self, protocol: str, form: Format, fields: list[str], most: int | None) -> None:
        self._protocol = protocol
        self._form = form
        self._fields = fields
        self._most = most
        self.count = 0
        self.code = ExitCode.OK
        """DATA once an object says that something cannot be read."""

    def print(self, objects: Iterator[JsonObject]) -> ExitCode:
        """Print objects, up to `--count`."""
        broken: JsonObject | None = None
        for described in itertools.islice(objects, self._most):
            self.count += 1
            if "fault" in described or "rejected" in described:
                self.code = ExitCode.DATA
            if broken is None and "clause" in described:
                broken = described
            print_objects(described, self._form, self._fields)
        if broken is not None:
            rule = next((str(broken[name]) for name in ("fault", "rejected", "breach") if name in broken), None)
            say_how_to_explain(self._protocol, rule, str(broken["clause"]))
        return self.code


@contextmanager
def _on_disk(name: str, source: BinaryIO, head: bytes) -> Iterator[str]:
    """The path of the input; standard input or a FIFO becomes a file first, because captures are read by place."""
    if name != "-" and Path(name).is_file():
        yield name
        return
    with scratch.temporary("decode") as folder:
        with (folder / "input").open("wb") as file:
            file.write(head)
            shutil.copyfileobj(source, file, CHUNK)
        yield str(folder / "input")


def _captured(
    path: str,
    protocol: str,
    describer: MakeDescribe,
    settings: tuple[str, ...],
    ports: tuple[int, ...],
    verify: Verify | None,
) -> Captured | None:
    """The capture in a file; None if it is none."""
    need(*CAPTURES)
    from wirelake.explore.captured import Captured  # noqa: PLC0415 - needs the lake extra

    try:
        return Captured(path, protocol, describer, limits=settings_of(protocol, settings), ports=ports, verify=verify)
    except CaptureError:
        return None


def _sum_up(captured: Captured, protocol: str, shown: _Shown) -> None:
    """How much there was, and what else is in the capture."""
    others = f"; it also has {', '.join(sorted(captured.others))}" if captured.others else ""
    unread = f"; {captured.unread:,} bytes are of other traffic" if captured.unread else ""
    say(f"{shown.count} object{'' if shown.count == 1 else 's'} of {protocol}{unread}{others}")


def _describer(notation: Notation[Limits, Message], keys: Path | None, now: str | None) -> MakeDescribe:
    """Makes what describes the messages of one sender; it has the keys, if the protocol's describer takes them."""
    describers = notation.describers
    if describers is None:
        return lambda: notation.describe
    if now is not None:
        raise UsageError("--now is the time to verify for: nothing is verified here")
    make = describers(None) if keys is None else _read_keys(keys, describers)
    return lambda: make().describe


def _verifier(protocol: AnyProtocol, keys: Path | None, now: str | None, limits: Limits) -> Verify | None:
    """The verifier of messages; None without keys. It verifies as of `--now`, else as of the time a message was seen, else as of now."""
    if keys is None:
        if now is not None:
            raise UsageError("--now is the time to verify for: it needs --keys")
        return None
    signatures = protocol.signatures
    if signatures is None:
        raise UsageError(f"--keys: messages of {protocol.name} carry nothing to verify")
    chosen = None if now is None else seconds_of(now, "--now")
    verify = _read_keys(keys, lambda content: signatures.verifier(content, limits))

    def verify_at(data: bytes, seen: float | None) -> JsonObject:
        return verify(data, next(when for when in (chosen, seen, time.time()) if when is not None))

    return verify_at


def _read_keys(path: Path, read: Callable[[bytes], T]) -> T:
    """Read a file of keys that only its owner may read; raises UsageError that names the file."""
    from wirelake.peers.private_file import load_bytes  # noqa: PLC0415 - only `--keys` needs it

    content = load_bytes(path)
    try:
        return read(content)
    except UsageError as reason:
        raise UsageError(f"{path}: {reason}") from None


def _chunks(source: BinaryIO, head: bytes, hex_text: bool, datagrams: bool) -> Iterator[bytes]:
    """The input, of which `head` was read, in pieces: of any size for a stream, otherwise whole datagrams."""
    if hex_text:
        lines = source.read().splitlines() if datagrams else [source.read()]
        for line in lines:
            try:
                if digits := b"".join(line.split()):
                    yield bytes.fromhex(digits.decode("ascii"))
            except ValueError:
                raise UsageError("--hex: the input is not an even number of hex digits") from None
    elif datagrams:
        yield head + source.read(LARGEST_DATAGRAM - len(head))
    else:
        while data := head + source.read(CHUNK - len(head)):
            yield data
            head = b""


def _objects(
    source: BinaryIO,
    head: bytes,
    hex_text: bool,
    protocol: AnyProtocol,
    describe: Describe[Limits],
    limits: Limits,
    verify: Verify | None,
) -> Iterator[JsonObject]:
    buffer: FrameBuffer | None = None
    datagrams = protocol.buffer(limits).takes_datagrams
    seen = 0
    for chunk in _chunks(source, head, hex_text, datagrams):
        if buffer is None:
            if len(chunk) >= WORTH_COMPILING:
                use_compiled()
            buffer = protocol.buffer(limits)
        base = 0 if datagrams else seen - len(buffer.rest)
        seen += len(chunk)
        for data, rows, parts in buffer.feed(chunk):
            for row in rows:
                described = describe(data, row, parts, limits, base)
                yield described if verify is None or "fault" in described else described | verify(data, None)
        if buffer.lost:
            return
    if buffer is not None and (rest := buffer.rest):
        fault = protocol.cut()
        yield {"offset": seen - len(rest), "fault": fault.name, "clause": fault.clause, "text": fault.text, "message_length": len(rest)}

"""Decoder state in a lake: one file per bucket of connections, without pickled code.

A file is a header with its format, a digest, and two states as msgpack (`capture/blocks/assembly_state.py`, `lake/decode/state_codec.py`).
The digest finds damage. It does not stop an attacker who may write the lake: the checks of both states do.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

from wirelake.capture.blocks.assemble import Assembly
from wirelake.capture.blocks.stored_state import Record, decode, encode
from wirelake.capture.packets.tracked import Dialect
from wirelake.errors import LakeError, StateError
from wirelake.lake.decode.state import DecoderState
from wirelake.lake.store import durable, journal

__all__ = ["HEADER", "MAX_STATE", "check", "decoder_state", "read", "restored", "write"]

HEADER: Final = b"wirelake state 1\n"
"""What a file begins with; the number is raised when states are stored in another way."""
MAX_STATE: Final = 2 << 30
"""Bytes of one file; a larger one is neither written nor read."""
_KIND: Final = HEADER[: HEADER.rindex(b" ")]
_DIGEST_SIZE: Final = 16


class _State(Record):
    assembly: bytes
    decoder_state: bytes


def write(lake: Path, prefix: str, connections: bytes, decoder: bytes) -> str:
    """Store two states in a new file, which is not current yet; returns its name."""
    content = encode(_State(connections, decoder))
    if len(content) > MAX_STATE:
        raise LakeError(f"{lake}: the decoder's state takes {len(content)} bytes, and at most {MAX_STATE} can be stored")
    folder = journal.memories(lake)
    folder.mkdir(exist_ok=True)
    name = f"{prefix}-{uuid.uuid4().hex}"
    path = _path(lake, name)
    path.write_bytes(HEADER + _digest(content) + content)
    durable.sync([path])
    return name


def read(lake: Path, name: str) -> tuple[bytes, bytes]:
    """Load the states of assembly and decoder. Raises LakeError that names the file if it is damaged."""
    content = _content(lake, name, MAX_STATE)
    _check_header(lake, name, content)
    start = len(HEADER) + _DIGEST_SIZE
    if _digest(content[start:]) != content[len(HEADER) : start]:
        raise _damaged(lake, name, "its digest is another")
    try:
        state = decode(content[start:], _State)
    except StateError as error:
        raise _damaged(lake, name, error.reason) from error
    return state.assembly, state.decoder_state


def restored(
    lake: Path, name: str, ports: Mapping[int, str], sniff: Callable[[bytes], str | None], dialect: Dialect
) -> tuple[Assembly, DecoderState]:
    """What goes on from a file; raises LakeError that names the file if nothing can."""
    connections, decoder = read(lake, name)
    try:
        assembly = Assembly.put(connections, ports, sniff, dialect)
    except StateError as error:
        raise _damaged(lake, name, error.reason) from error
    return assembly, decoder_state(lake, name, decoder)


def decoder_state(lake: Path, name: str, content: bytes) -> DecoderState:
    """The decoder state in the second state of a file.

    Raises LakeError that names the file if it cannot be read.
    """
    try:
        return DecoderState.put(content)
    except StateError as error:
        raise _damaged(lake, name, error.reason) from error


def check(lake: Path, names: Iterable[str]) -> None:
    """Refuse files that are none, or of another version, before anything is started for them."""
    for name in names:
        _check_header(lake, name, _content(lake, name, len(HEADER)))


def _path(lake: Path, name: str) -> Path:
    if name in ("", "..") or Path(name).name != name:
        raise LakeError(f"{lake} is damaged: {name!r} is no name of a file of decoder state")
    return journal.memories(lake) / name


def _content(lake: Path, name: str, size: int) -> bytes:
    try:
        descriptor = os.open(_path(lake, name), os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place must not hold the reader up
        with os.fdopen(descriptor, "rb") as file:
            there = os.fstat(descriptor)
            if not stat.S_ISREG(there.st_mode):
                raise _damaged(lake, name, "it is no file")
            if there.st_size > len(HEADER) + _DIGEST_SIZE + MAX_STATE:
                raise _damaged(lake, name, f"it has {there.st_size} bytes, and at most {MAX_STATE} are read")
            return file.read(min(size + len(HEADER) + _DIGEST_SIZE, there.st_size))
    except OSError as error:
        raise _damaged(lake, name, f"it cannot be read: {error.strerror}") from error


def _check_header(lake: Path, name: str, content: bytes) -> None:
    if content.startswith(HEADER):
        return
    if content.startswith(_KIND):
        raise _refused(lake, name, "was written by a newer wirelake")
    if content.startswith(b"\x80"):
        raise _refused(lake, name, "was written by an older wirelake, as code: it is not read")
    raise _damaged(lake, name, "it is no decoder state")


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


def _damaged(lake: Path, name: str, reason: str) -> LakeError:
    return _refused(lake, name, f"is damaged: {reason}")


def _refused(lake: Path, name: str, why: str) -> LakeError:
    path = journal.memories(lake) / name
    return LakeError(f"{path} {why}; read all files of the followed folder again: `wirelake ingest LAKE FOLDER --again`")

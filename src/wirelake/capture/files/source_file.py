"""Open a source for reading by offset: local or remote, plain or compressed.

A local path is read as it is. A path with a scheme (`s3://…`, `hdfs://…`) is read through fsspec, which must be installed with the library
for that scheme. A file with the magic number of gzip or zstd is decompressed as it is read, front to back: its offsets count decompressed
bytes.
"""

from __future__ import annotations

import io
import os
import re
import stat
from pathlib import Path
from typing import Any, Final, Protocol, Self

from wirelake.capture.blocks.block import Source
from wirelake.capture.files.magic import COMPRESSIONS, compression_of
from wirelake.errors import CaptureError, SourceChanged

__all__ = [
    "COMPRESSIONS",
    "Bytes",
    "Compressed",
    "compression_of",
    "find_elsewhere",
    "is_elsewhere",
    "local_path",
    "measure",
    "open_plain",
    "open_source",
    "read_range",
]

_DECOMPRESSED_AT_ONCE: Final = 256 << 10
_FINE: Final = 16
"""Compressed bytes read at once near a decompression failure, so that its offset is known."""
_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/")


class Bytes(Protocol):
    """An open source."""

    def window(self, at: int, size: int) -> bytes:
        """Return `size` bytes from offset `at`; fewer only where the source ends."""
        ...

    def is_end(self, at: int) -> bool:
        """Whether the source ends at or before an offset."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


def _scheme(path: str) -> str:
    """The scheme of a path; empty for a local one."""
    found = _SCHEME.match(path)
    return "" if found is None or found[1] == "file" else found[1]


def local_path(path: str) -> str:
    """Return a local path without the `file:` scheme that Spark puts before it."""
    return re.sub(r"^file:/+", "/", path)


class _Local:
    """A local file at the size it was identified with: shorter is an error, longer is ignored."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(local_path(self._source.path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise _unreadable(self._source.path, 0, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`."""
        return at >= self._source.size

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`."""
        size = min(size, self._source.size - at)
        parts = []
        while size > 0:
            try:
                part = os.pread(self._descriptor, size, at)
            except OSError as error:
                raise _unreadable(self._source.path, at, error) from error
            if not part:
                raise SourceChanged(self._source.path, at, f"file is shorter than the {self._source.size} bytes it had")
            parts.append(part)
            at += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Remote:
    """A remote file, through fsspec: one request for each window."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> Self:
        self._system, self._place = _reach(self._source.path)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`."""
        return at >= self._source.size

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`."""
        stop = min(at + size, self._source.size)
        if stop <= at:
            return b""
        try:
            data = bytes(self._system.cat_file(self._place, start=at, end=stop))
        except (OSError, ValueError) as error:
            raise _unreadable(self._source.path, at, error) from error
        if len(data) < stop - at:
            raise SourceChanged(self._source.path, at + len(data), f"file is shorter than the {self._source.size} bytes it had")
        return data


def _reach(path: str) -> tuple[Any, str]:
    """Return the file system of a path with a scheme, and its own name for the path."""
    try:
        import fsspec  # noqa: PLC0415 - only remote paths need it

        system, place = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError, OSError) as error:
        raise _unreadable(path, 0, error) from error
    return system, place


def _unreadable(path: str, at: int, error: Exception) -> SourceChanged:
    return SourceChanged(path, at, f"cannot read: {getattr(error, 'strerror', None) or error}")


class _Raw(io.RawIOBase):
    """Compressed bytes of a source as a file for Arrow.

    `at` is how far it was read, in small steps from `fine` on.
    """

    def __init__(self, inner: Bytes, fine: int) -> None:
        super().__init__()
        self._inner = inner
        self._fine = fine
        self.at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        most = _FINE if self.at >= self._fine else max(_FINE, min(_DECOMPRESSED_AT_ONCE, self._fine - self.at))
        part = self._inner.window(self.at, most if size < 0 else min(size, most))
        self.at += len(part)
        return part


class Compressed:
    """A compressed file, decompressed front to back: a window before the last one raises CaptureError."""

    def __init__(self, inner: Bytes, how: str, path: str = "") -> None:
        self._inner = inner
        self._path = path
        self._how = how
        self.broken = ""
        """Why it cannot be decompressed to its end; empty if it can."""
        self.compressed_at = 0
        """Compressed bytes read so far."""

    def __enter__(self) -> Self:
        self._inner.__enter__()
        self._raw, self._stream = self._decompress(1 << 62)
        self._start = 0
        self._buffer = bytearray()
        self._is_over = False
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.__exit__()

    @property
    def decompressed(self) -> int:
        """Bytes decompressed so far."""
        return self._start + len(self._buffer)

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`."""
        self._fill(at + 1)
        return at >= self.decompressed

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`."""
        if at < self._start:
            raise CaptureError(
                self._path, at, f"internal error: bytes before {self._start} of a {self._how} file are gone: it is read front to back"
            )
        del self._buffer[: at - self._start]
        self._start = at
        self._fill(at + size)
        return bytes(self._buffer[:size])

    def left(self) -> bytes:
        """Return compressed bytes that cannot be decompressed, up to one window; call until it returns none."""
        part = self._inner.window(self.compressed_at, _DECOMPRESSED_AT_ONCE)
        self.compressed_at += len(part)
        return part

    def _decompress(self, fine: int) -> tuple[_Raw, Any]:
        import pyarrow as pa  # noqa: PLC0415 - only compressed files need it here

        raw = _Raw(self._inner, fine)
        return raw, pa.CompressedInputStream(pa.PythonFile(raw, "r"), self._how)

    def _fill(self, until: int) -> None:
        while not self._is_over and self.decompressed < until:
            try:
                part = self._stream.read(_DECOMPRESSED_AT_ONCE)
            except OSError:
                self._fill_to_the_failure()
                return
            self.compressed_at = self._raw.at
            self._buffer += part
            self._is_over = not part

    def _fill_to_the_failure(self) -> None:
        """Decompress again, byte by byte near the failure.

        A failed read returns nothing of what it had decompressed.
        """
        raw, stream = self._decompress(max(0, self.compressed_at - 2 * _DECOMPRESSED_AT_ONCE))
        self.broken = f"broken {self._how} stream"
        self._is_over = True
        known = self.decompressed
        try:
            while known:
                known -= len(stream.read(min(known, _DECOMPRESSED_AT_ONCE)))
            while part := stream.read(1):
                self.compressed_at = raw.at
                self._buffer += part
        except OSError:
            self.compressed_at = min(self.compressed_at, raw.at)


def is_elsewhere(path: str) -> bool:
    """Whether a path is remote: it has a scheme, and is read through fsspec."""
    return bool(_scheme(path))


def find_elsewhere(path: str) -> tuple[list[str], bool]:
    """Return the files that a remote path or pattern names, and whether it is a folder."""
    system, there = _reach(path)
    try:
        is_folder = bool(system.isdir(there))
        files = sorted(system.find(there) if is_folder else [there] if system.isfile(there) else system.glob(there))
    except OSError as error:
        raise _unreadable(path, 0, error) from error
    return [system.unstrip_protocol(file) for file in files], is_folder


def open_source(source: Source) -> Bytes:
    """Open a source, decompressed if it is compressed; a context manager."""
    plain = open_plain(source)
    with plain:
        how = compression_of(plain.window(0, 4))
    return Compressed(plain, how, source.path) if how else plain


def read_range(source: Source, at: int, size: int) -> bytes:
    """Read a few bytes of a source."""
    with open_source(source) as opened:
        return opened.window(at, size)


def open_plain(source: Source) -> Bytes:
    """Open a source as stored, compressed or not; a context manager."""
    return _Remote(source) if _scheme(source.path) else _Local(source)


def measure(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Return the absolute path of a file and its size now; raises CaptureError if it cannot be read."""
    place = os.fspath(path)
    place = place if _scheme(place) else str(Path(local_path(place)).absolute())
    try:
        if _scheme(place):
            system, there = _reach(place)
            return place, int(system.size(there))
        status = Path(place).stat()
        if not stat.S_ISREG(status.st_mode):
            raise CaptureError(place, 0, "not a regular file: a source is read by offset; copy it to a file first")
        return place, status.st_size
    except OSError as error:
        raise _unreadable(place, 0, error) from error

"""Files: bytes of a source by place, wherever it lies and however it is packed.

A local path is read as it is; a path with a scheme (`s3://…`, `hdfs://…`) through fsspec, which must be installed with the library for
that scheme. A file that begins like gzip or zstd is unpacked as it is read, front to back: its places count unpacked bytes.

It refuses to know captures.
"""

from __future__ import annotations

import io
import os
import re
import stat
from pathlib import Path
from typing import Any, Final, Protocol, Self

from wirelake.capture.blocks.block import Source
from wirelake.capture.files.magic import PACKED, is_packed
from wirelake.errors import CaptureError, SourceChanged

__all__ = [
    "PACKED",
    "Bytes",
    "Packed",
    "find_elsewhere",
    "is_elsewhere",
    "is_packed",
    "local_path",
    "measure",
    "open_plain",
    "open_source",
    "read_range",
]

_UNPACKED_AT_ONCE: Final = 256 << 10
_FINE: Final = 16
"""Packed bytes read at once near the place where unpacking failed, so that the place is known."""
_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/")


class Bytes(Protocol):
    """A source that is open."""

    def window(self, at: int, size: int) -> bytes:
        """Bytes from `at`, as many as asked for; fewer only where the source ends."""
        ...

    def is_end(self, at: int) -> bool:
        """Whether the source ends at or before a place."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


def _scheme(path: str) -> str:
    """The scheme of a path; empty for a local one."""
    found = _SCHEME.match(path)
    return "" if found is None or found[1] == "file" else found[1]


def local_path(path: str) -> str:
    """A local path without the scheme Spark writes before it."""
    return re.sub(r"^file:/+", "/", path)


class _Local:
    """A local file as it was identified: what it was longer then is missed, what it is longer now is ignored."""

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
    """A file that fsspec reaches: one request for each window."""

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
    """The file system of a path with a scheme, and what it calls the path."""
    try:
        import fsspec  # noqa: PLC0415 - only who reads from elsewhere needs it

        system, place = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError, OSError) as error:
        raise _unreadable(path, 0, error) from error
    return system, place


def _unreadable(path: str, at: int, error: Exception) -> SourceChanged:
    return SourceChanged(path, at, f"cannot read: {getattr(error, 'strerror', None) or error}")


class _Raw(io.RawIOBase):
    """The packed bytes of a source as Arrow wants to read them; `at` is how far it got, in small steps from `fine` on."""

    def __init__(self, inner: Bytes, fine: int) -> None:
        super().__init__()
        self._inner = inner
        self._fine = fine
        self.at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        most = _FINE if self.at >= self._fine else max(_FINE, min(_UNPACKED_AT_ONCE, self._fine - self.at))
        part = self._inner.window(self.at, most if size < 0 else min(size, most))
        self.at += len(part)
        return part


class Packed:
    """A compressed file, unpacked front to back: a window that begins before the one asked for last raises CaptureError."""

    def __init__(self, inner: Bytes, how: str, path: str = "") -> None:
        self._inner = inner
        self._path = path
        self._how = how
        self.broken = ""
        """Why it cannot be unpacked to its end; empty while all is well."""
        self.packed_at = 0
        """Packed bytes that gave all that was unpacked."""

    def __enter__(self) -> Self:
        self._inner.__enter__()
        self._raw, self._stream = self._unpack(1 << 62)
        self._start = 0
        self._buffer = bytearray()
        self._is_over = False
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.__exit__()

    @property
    def unpacked(self) -> int:
        """Bytes unpacked so far."""
        return self._start + len(self._buffer)

    def is_end(self, at: int) -> bool:
        """See `Bytes.is_end`."""
        self._fill(at + 1)
        return at >= self.unpacked

    def window(self, at: int, size: int) -> bytes:
        """See `Bytes.window`."""
        if at < self._start:
            raise CaptureError(self._path, at, f"internal error: asked for again after byte {self._start} of what {self._how} unpacks")
        del self._buffer[: at - self._start]
        self._start = at
        self._fill(at + size)
        return bytes(self._buffer[:size])

    def left(self) -> bytes:
        """Packed bytes that cannot be unpacked, up to a window's worth; call until there are none."""
        part = self._inner.window(self.packed_at, _UNPACKED_AT_ONCE)
        self.packed_at += len(part)
        return part

    def _unpack(self, fine: int) -> tuple[_Raw, Any]:
        import pyarrow as pa  # noqa: PLC0415 - only packed files need it here

        raw = _Raw(self._inner, fine)
        return raw, pa.CompressedInputStream(pa.PythonFile(raw, "r"), self._how)

    def _fill(self, until: int) -> None:
        while not self._is_over and self.unpacked < until:
            try:
                part = self._stream.read(_UNPACKED_AT_ONCE)
            except OSError:
                self._fill_to_the_failure()
                return
            self.packed_at = self._raw.at
            self._buffer += part
            self._is_over = not part

    def _fill_to_the_failure(self) -> None:
        """Unpack once more, now byte by byte where it failed: a failed read keeps what it had unpacked to itself."""
        raw, stream = self._unpack(max(0, self.packed_at - 2 * _UNPACKED_AT_ONCE))
        self.broken = f"broken {self._how} stream"
        self._is_over = True
        known = self.unpacked
        try:
            while known:
                known -= len(stream.read(min(known, _UNPACKED_AT_ONCE)))
            while part := stream.read(1):
                self.packed_at = raw.at
                self._buffer += part
        except OSError:
            self.packed_at = min(self.packed_at, raw.at)


def is_elsewhere(path: str) -> bool:
    """Whether a path has a scheme, and is read through fsspec."""
    return bool(_scheme(path))


def find_elsewhere(path: str) -> tuple[list[str], bool]:
    """The files that a path with a scheme, or a pattern, stands for; and whether it is a folder."""
    system, there = _reach(path)
    try:
        is_folder = bool(system.isdir(there))
        found = sorted(system.find(there) if is_folder else [there] if system.isfile(there) else system.glob(there))
    except OSError as error:
        raise _unreadable(path, 0, error) from error
    return [system.unstrip_protocol(one) for one in found], is_folder


def open_source(source: Source) -> Bytes:
    """A source for reading; a context manager."""
    plain = open_plain(source)
    with plain:
        how = is_packed(plain.window(0, 4))
    return Packed(plain, how, source.path) if how else plain


def read_range(source: Source, at: int, size: int) -> bytes:
    """A few bytes of a source."""
    with open_source(source) as opened:
        return opened.window(at, size)


def open_plain(source: Source) -> Bytes:
    """A source for reading as it lies there, packed or not; a context manager."""
    return _Remote(source) if _scheme(source.path) else _Local(source)


def measure(path: str | os.PathLike[str]) -> tuple[str, int]:
    """The full name of a file, and its size now; one that cannot be read raises CaptureError."""
    place = os.fspath(path)
    place = place if _scheme(place) else str(Path(local_path(place)).absolute())
    try:
        if _scheme(place):
            system, there = _reach(place)
            return place, int(system.size(there))
        found = Path(place).stat()
        if not stat.S_ISREG(found.st_mode):
            raise CaptureError(place, 0, "not a regular file: a source is read by place")
        return place, found.st_size
    except OSError as error:
        raise _unreadable(place, 0, error) from error

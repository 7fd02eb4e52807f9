"""Recorder: writes what a live peer sends and receives, as pcapng with exported PDUs.

```
with Recorder("recording.pcapng") as recorder:
    connection = recorder.connection(protocol="emp", role="client", local=("127.0.0.1", 5000), remote=("127.0.0.1", 5040))
    connection.sent(frame)
    connection.closed("bye")
```

Callers hand whole frames to `sent` and `received`, one or many at a time; only the last chunk of a direction may be cut. A chunk becomes
one record. Wireshark stops reading at a record over 256 KiB; the lake does not. So a longer chunk is split between frames
(`max_record`), if the caller gives their sizes. A frame is never split: a longer one becomes a longer record.

Backpressure: there is none on the peer. Records wait in memory until they are `flush_bytes` together; then the call that adds the next one
writes them. A timer thread writes what waits for `flush_seconds`. The recorder needs no event loop, and any thread may use it.

`watch` gets the same bytes that go to the file, record by record, as soon as they are made: `wirelake.explore.reading.watch` hands them to
a process that tells which rule a peer breaks. It must neither block nor raise. Without a file to keep, record to `os.devnull`.

A recording never disturbs the connection it records: `sent`, `received`, `finished` and `closed` do not raise when the disk is full. The
recorder logs the failure at once and stops recording. `failure` keeps it, and the next `flush()` or `close()` raises it, once.

Does not import numpy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wirelake.capture.containers.pcapng import PACKET_OVERHEAD, build_interface, build_section, packet_head, packet_tail
from wirelake.capture.containers.records import MAX_RECORD
from wirelake.capture.record.connection import Connection, Dialect, Role, Sizes
from wirelake.capture.record.exported_pdu import LINK_EXPORTED
from wirelake.errors import CaptureError, UsageError

__all__ = [
    "FLUSH_BYTES",
    "FLUSH_SECONDS",
    "MODE",
    "SHOWN_BY_WIRESHARK",
    "CallLater",
    "Connection",
    "Dialect",
    "Recorder",
    "Role",
    "Sizes",
]

log = logging.getLogger("wirelake.recording")

CallLater = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Schedules a call in so many seconds, and returns a function that cancels it."""

FLUSH_BYTES: Final = 256 << 10
"""Bytes that may wait in memory before they are written."""
FLUSH_SECONDS: Final = 0.5
"""Seconds that a record may wait in memory before the recorder writes it."""
SHOWN_BY_WIRESHARK: Final = (256 << 10) - 8192
"""The longest chunk that is sure to open in Wireshark: its limit, less space for the tags."""
MODE: Final = 0o600
"""The mode of a recording: it has what was encrypted on its way, and credentials, so only its owner may read it."""


class Recorder:
    """Writes one recording, in one file or, with a limit on size or age, in several.

    Several files are named `name.pcapng`, `name-0001.pcapng`, … Each can be read alone, and a connection continues in the next file under
    the same id. What was flushed survives a crash. Files are created with `mode`. An existing file is never written, and no link is
    followed; only a FIFO or a device may be there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        protocol: str = "",
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        mode: int = MODE,
        application: str = "wirelake",
        max_record: int = SHOWN_BY_WIRESHARK,
        flush_bytes: int = FLUSH_BYTES,
        flush_seconds: float = FLUSH_SECONDS,
        call_later: CallLater | None = None,
        watch: Callable[[bytes], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
        new_id: Callable[[], bytes] = lambda: secrets.token_bytes(8),
        observer: str | None = None,
    ) -> None:
        """Open the first file. `observer` names what this recorder saw, in all its files; None: at random, empty: not at all."""
        self.observer = secrets.token_hex(4) if observer is None else observer
        self._path = Path(path)
        self._watch = watch
        self._protocol = protocol
        self._max_bytes = max_bytes
        self._max_nanoseconds = None if max_seconds is None else int(max_seconds * 1e9)
        self._preamble = build_section(application) + build_interface(LINK_EXPORTED)
        self._mode = mode
        self._max_record = max_record
        self._flush_bytes = flush_bytes
        self._flush_seconds = flush_seconds
        self._call_later = call_later or _call_later
        self._cancel_timer: Callable[[], None] | None = None
        self._lock = threading.RLock()
        self._clock = clock
        self._new_id = new_id
        self._failure: CaptureError | None = None
        self._reported = False
        self._paths: list[Path] = []
        self._number = 0
        self._descriptor = -1
        self._waiting: list[bytes | bytearray | memoryview] = []
        self._waiting_bytes = 0
        self._size = self._opened = 0
        self._relied_on = False
        self._open(self._path)
        self.flush()  # so that a recording that cannot be written says so before anyone relies on it
        self._relied_on = True
        if watch is not None:
            watch(self._preamble)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files written so far, oldest first."""
        return tuple(self._paths)

    @property
    def failure(self) -> CaptureError | None:
        """Why recording stopped early, or None."""
        return self._failure

    def connection(
        self,
        *,
        protocol: str = "",
        role: Role,
        transport: str = "tcp",
        local: tuple[str, int],
        remote: tuple[str, int],
        connection_id: bytes | None = None,
        dialect: Dialect = lambda: (),
    ) -> Connection:
        """Start recording a connection, with an `opened` record; its id is random unless given.

        `dialect` returns the flags of the protocol's limits that its bytes must be read with. Every record carries them, so that each
        file of a rotated recording can be read alone. It is called for each record until it returns flags.
        """
        protocol = protocol or self._protocol
        if not protocol:
            raise UsageError("no protocol to record: pass protocol= to Recorder() or to connection()")
        name = self._new_id() if connection_id is None else connection_id
        return Connection(self, protocol, role, transport, local, remote, name, dialect)

    def flush(self) -> None:
        """Write everything recorded so far; raises the failure since the last call."""
        with self._lock:
            self._drain()
            self._report()

    def close(self) -> None:
        """Write what waits and close the file; raises a failure. Closing twice does nothing."""
        with self._lock:
            self._drain()
            self._close_file()
            self._report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except CaptureError as failure:
            if error is None:
                raise
            error.add_note(f"and the recording failed: {failure}")

    def _write_frames(self, tags: bytes, data: bytes | bytearray | memoryview, sizes: Sizes | None) -> tuple[int, int]:
        """Write one record, or several if the chunk is too long for Wireshark and the caller knows its frames.

        Returns the times of the first and the last.
        """
        if len(data) <= self._max_record or sizes is None:
            at = self._write(tags, data)
            return at, at
        times = []
        view, start, end = memoryview(data), 0, 0
        for size in sizes():
            if end > start and end + size - start > self._max_record:
                times.append(self._write(tags, view[start:end]))
                start = end
            end = min(end + size, len(view))
        if start < len(view):
            times.append(self._write(tags, view[start:]))
        return times[0], times[-1]

    def _write(self, tags: bytes, data: bytes | bytearray | memoryview) -> int:
        """Append one record, tags and payload, to what waits; write when enough waits. Returns its time in microseconds."""
        with self._lock:
            if self._descriptor < 0 and self._watch is None:
                return 0
            now = self._clock()
            size = len(tags) + len(data)
            block = PACKET_OVERHEAD + size + (-size & 3)
            if self._watch is not None and block <= MAX_RECORD:
                self._watch(b"".join((packet_head(now // 1000, size), tags, data, packet_tail(size))))
            at = now // 1000
            if self._descriptor < 0:
                return at
            if block > MAX_RECORD:
                self._fail(f"a frame of {len(data)} bytes is over the {MAX_RECORD} bytes of a record")
                return at
            if self._is_due(block, now):
                self._rotate()
                if self._descriptor < 0:
                    return at
            # A caller may reuse its buffer: only bytes may wait as they are.
            self._waiting += (packet_head(at, size), tags, data if isinstance(data, bytes) else bytes(data), packet_tail(size))
            self._waiting_bytes += block
            self._size += block
            if self._waiting_bytes >= self._flush_bytes or self._flush_seconds <= 0:
                self._drain()
            elif self._cancel_timer is None:
                self._plan_flush()
            return at

    def _plan_flush(self) -> None:
        try:
            self._cancel_timer = self._call_later(self._flush_seconds, self._on_timer)
        except RuntimeError:  # no thread can be started, for instance because the process ends: nothing may wait
            self._drain()

    def _on_timer(self) -> None:
        with self._lock:
            self._cancel_timer = None
            self._drain()

    def _is_due(self, block: int, now: int) -> bool:
        """Whether the next record must go to a new file; a file holds at least one record."""
        if self._size == len(self._preamble):
            return False
        too_large = self._max_bytes is not None and self._size + block > self._max_bytes
        too_old = self._max_nanoseconds is not None and now - self._opened >= self._max_nanoseconds
        return too_large or too_old

    def _rotate(self) -> None:
        self._drain()
        self._close_file()
        if self._failure is not None:
            return
        while True:
            self._number += 1
            path = self._path.with_name(f"{self._path.stem}-{self._number:04d}{self._path.suffix}")
            if not os.path.lexists(path):
                break
        self._open(path)

    def _open(self, path: Path) -> None:
        try:
            self._descriptor = _create(path, self._mode)
        except FileExistsError:
            kind = "a link" if path.is_symlink() else "a file"
            self._fail(f"cannot record: {kind} is already here, and is left as it is: choose another name, or move it away", path)
            return
        except OSError as error:
            self._fail(f"cannot record: {error.strerror or error}", path)
            return
        self._paths.append(path)
        self._opened = self._clock()
        self._waiting = [self._preamble]
        self._waiting_bytes = self._size = len(self._preamble)

    def _drain(self) -> None:
        if self._descriptor < 0 or not self._waiting:
            return
        written = self._size - self._waiting_bytes
        left = memoryview(b"".join(self._waiting))
        self._waiting = []
        self._waiting_bytes = 0
        try:
            while left:
                count = os.write(self._descriptor, left)
                left = left[count:]
                written += count
        except OSError as error:
            self._fail(f"cannot record: {error.strerror or error}", offset=written)

    def _close_file(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.close(descriptor)
            except OSError as error:  # a network file system may say only now that it is full
                self._fail(f"cannot record: {error.strerror or error}")

    def _fail(self, reason: str, path: Path | None = None, offset: int | None = None) -> None:
        """Keep the first failure and stop recording."""
        if self._failure is None:
            place = path or (self._paths[-1] if self._paths else self._path)
            self._failure = CaptureError(str(place), self._size if offset is None else offset, reason)
            if self._relied_on:  # before, the constructor raises it
                log.error("recording stopped: %s", self._failure)
        self._waiting = []
        self._waiting_bytes = 0
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the first failure is the one to report
                os.close(self._descriptor)
            self._descriptor = -1

    def _report(self) -> None:
        if self._failure is not None and not self._reported:
            self._reported = True
            raise self._failure


def _call_later(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    """Schedule a call on a daemon thread."""
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    return timer.cancel


def _create(path: Path, mode: int) -> int:
    """Create a file, or open a FIFO or a device; raises FileExistsError for anything else that is there."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, MODE & mode)
    except FileExistsError:
        there = path.lstat().st_mode
        if not (stat.S_ISFIFO(there) or stat.S_ISCHR(there)):
            raise
        return os.open(path, flags)
    if mode != MODE:
        try:
            os.fchmod(descriptor, mode)  # whatever the umask is
        except OSError as error:  # a file system without modes
            log.warning("%s: has not the mode %o: %s", path, mode, error.strerror or error)
    return descriptor

"""Output of long-running commands: a slow or closed stdout or stderr never blocks peers.

`Lines` writes from a thread, behind a bounded queue. `Notices` is the log handler for faults of remote peers: it prints a bounded number of
lines per second and kind to stderr.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from wirelake.text import visible

__all__ = ["MAX_NOTICES", "OUTPUT_BUFFER", "Lines", "Notices"]

OUTPUT_BUFFER: Final = 16 << 20
"""Bytes of lines that may wait for a reader; more lines are dropped, counted and reported."""
MAX_NOTICES: Final = 10
"""Lines per second and kind about faults of remote peers."""
LAST_SECONDS: Final = 1.0
"""Seconds that the end of a command waits for a reader to take the remaining lines."""


class Lines:
    """Writes lines to a file descriptor from a thread. `put` never blocks and never raises.

    The thread calls `on_gone` when the reader closed the descriptor (EPIPE). `on_dropped` is called with 0 when the first line of a series
    is dropped, and with their number when lines are written again or at the end.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        max_bytes: int = OUTPUT_BUFFER,
        on_gone: Callable[[], None] = lambda: None,
        on_dropped: Callable[[int], None] = lambda _count: None,
        write: Callable[[int, memoryview], int] = os.write,
    ) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self._on_gone = on_gone
        self._on_dropped = on_dropped
        self._write = write
        self._changed = threading.Condition()
        self._queue: list[bytes] = []
        self._lines = self._bytes = self._dropped = 0
        self._closing = False
        self.gone = False
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Queue a line, or drop it if too many wait."""
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        with self._changed:
            if self.gone or self._closing:
                return
            is_first = self._dropped == 0
            fits = not self._lines or self._bytes + len(data) <= self._max_bytes  # one line always fits
            if fits:
                self._queue.append(data)
                self._lines += 1
                self._bytes += len(data)
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=f"output-{self._descriptor}", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
            else:
                self._dropped += 1
        if is_first and not fits:
            self._on_dropped(0)

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Wait until all lines are written, at most this long; remaining lines count as dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._lines or self.gone, seconds)
            left = 0 if self.gone else self._lines
            dropped, self._dropped = self._dropped + left, 0
        if dropped:
            self._on_dropped(dropped)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                batch, self._queue = self._queue, []
            is_written = self._write_all(b"".join(batch))
            with self._changed:
                self._lines -= len(batch)
                self._bytes -= sum(map(len, batch))
                self.gone = not is_written
                dropped = 0
                if is_written and not self._closing:
                    dropped, self._dropped = self._dropped, 0
                self._changed.notify_all()
            if not is_written:
                self._on_gone()
                return
            if dropped:
                self._on_dropped(dropped)

    def _write_all(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[self._write(self._descriptor, view) :]
            except BlockingIOError:  # another program made it so: they share the descriptor
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True


class Notices(logging.Handler):
    """Print log records as one line each, at most `per_second` of each kind.

    Suppressed ones are counted with the next, or at the end. A kind is the log message without its values, so a flood of one kind hides no
    other.
    """

    def __init__(
        self, tell: Callable[[str], None], level: int, *, per_second: int = MAX_NOTICES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(level)
        self._tell = tell
        self._per_second = per_second
        self._clock = clock
        self._kinds: dict[str, list[float]] = {}
        """Kind -> (start of its second, lines printed in it, lines suppressed)."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, or count it."""
        kind = self._kinds.setdefault(str(record.msg), [self._clock(), 0, 0])
        now = self._clock()
        if now - kind[0] >= 1:
            kind[0], kind[1] = now, 0
        if kind[1] >= self._per_second:
            kind[2] += 1
            return
        kind[1] += 1
        held, kind[2] = int(kind[2]), 0
        self._tell(self.format(record) + (f" (and {held:,} more of this kind before)" if held else ""))

    def format(self, record: logging.LogRecord) -> str:
        """Format as one line: addresses as `host:port`, exceptions by type and text.

        Control characters are made visible.
        """
        values = record.args if isinstance(record.args, tuple) else ()
        text = str(record.msg) % tuple(map(_place, values)) if values else record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        return visible(text)

    def close(self) -> None:
        """Report the number of suppressed lines."""
        held = int(sum(kind[2] for kind in self._kinds.values()))
        self._kinds.clear()
        if held:
            self._tell(f"{held:,} more lines like these were held back")
        super().close()


def _place(value: Any) -> Any:
    """Format a socket address as `host:port`."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
        return f"{value[0]}:{value[1]}" if value[1] else value[0]
    return value

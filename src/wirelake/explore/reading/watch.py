"""Watcher: reads what a live peer records while it happens, and tells which rules are broken.

```
with Watcher(print) as watcher, Recorder("recording.pcapng", protocol="emp", watch=watcher) as recorder:
    ...
```

A thread decodes and judges, so that the peer never waits. What does not come in time is told by a clock, about a second after it was due.
A watcher that falls behind loses bytes and says so. It then goes on with no session known.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from types import TracebackType
from typing import Final, Self

from wirelake.capture.blocks.block import Source, Span
from wirelake.capture.blocks.read_split import StepReader
from wirelake.capture.containers.walk import Walk
from wirelake.explore.reading.analysis import Counter
from wirelake.explore.reading.engine import Chain, ReadOptions
from wirelake.explore.reading.inputs import Pipe, items_of
from wirelake.explore.reading.records import Record
from wirelake.protocols import names

__all__ = ["CHECK_SECONDS", "MAX_WAITING", "Watcher"]

log = logging.getLogger("wirelake.watch")

MAX_WAITING: Final = 64 << 20
"""Bytes that may wait for the watcher."""
CHECK_SECONDS: Final = 1.0
"""How often it is checked what is overdue."""
_SOURCE: Final = Source("live", blake2b(b"live", digest_size=8).digest(), 0)


class Watcher:
    """The `watch` of a `Recorder`. `tell` gets every record, from the watcher's thread."""

    def __init__(
        self,
        tell: Callable[[Record], None],
        options: ReadOptions | None = None,
        *,
        max_waiting: int = MAX_WAITING,
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is that of the recorder."""
        self._tell = tell
        self._check_seconds = check_seconds
        self._clock = clock
        self._checked = clock()
        self._options = options or ReadOptions()
        self._max_waiting = max_waiting
        self.counter = Counter()
        self.lost = 0
        """Bytes that were not watched, because too many waited."""
        self._changed = threading.Condition()
        self._queue: list[bytes] = []
        self._waiting = 0
        self._preamble = b""
        self._has_lost = self._closing = False
        self._begin()
        self._thread = threading.Thread(target=self._run, name="wirelake-watch", daemon=True)
        self._thread.start()

    def __call__(self, data: bytes) -> None:
        """Take the next bytes of a recording; neither blocks nor raises."""
        with self._changed:
            if self._closing:
                return
            self._preamble = self._preamble or data
            if self._waiting + len(data) > self._max_waiting:
                self.lost += self._waiting + len(data)
                self._queue, self._waiting, self._has_lost = [], 0, True
                return
            self._queue.append(data)
            self._waiting += len(data)
            self._changed.notify()

    def close(self) -> None:
        """Read what waits, and end all sessions."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _begin(self) -> None:
        """Watch from here on, with no session known."""
        self._pipe = Pipe()
        self._chain = Chain(self._options, self.counter)
        self._walk = Walk(_SOURCE.path, self._pipe, growing=True)
        self._reader = StepReader(_SOURCE, [Span(0, 0)], ports=self._chain.ports, protocols=names())

    def _run(self) -> None:
        try:
            while self._step():
                pass
            for record in self._chain.end():
                self._tell(record)
        except Exception:
            log.exception("watching stopped")
            with self._changed:
                self._closing = True

    def _step(self) -> bool:
        """Read what came; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing, self._check_seconds)
            now, is_closing = self._clock(), self._closing
            queue, self._queue, self._waiting = self._queue, [], 0
            has_lost, self._has_lost = self._has_lost, False
        if is_closing and not queue:
            return False
        if queue:
            self._read(queue, has_lost=has_lost)
        if abs(now - self._checked) >= self._check_seconds:
            self._checked = now
            for record in self._chain.overdue(round(now * 1_000_000)):
                self._tell(record)
        return True

    def _read(self, queue: list[bytes], *, has_lost: bool) -> None:
        if has_lost:
            log.warning("%d bytes were not watched: too many waited", self.lost)
            self._begin()
            self._pipe.add(self._preamble)
        self._pipe.add(b"".join(queue))
        for step in self._walk.steps():
            for record in self._chain.feed(items_of(self._reader.step(step))):
                self._tell(record)

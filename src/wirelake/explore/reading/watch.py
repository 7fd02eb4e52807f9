"""Watcher: tells which rules a live peer breaks, from what it records, while it happens.

```
with Watcher(print) as watcher, Recorder("recording.pcapng", protocol="emp", watch=watcher) as recorder:
    ...
```

A process of its own decodes and judges (`watch_process.py`): the peer keeps its processor and its interpreter. A thread sends it the bytes
that the recorder writes, many records at a time. Another thread tells the findings. The time is sent along every second, behind all bytes
before it, so that what does not come in time is told about a second after it was due.

Nothing here waits for that process but `close`. A watcher that falls behind loses bytes and says so; it goes on with no session known. If
its process dies, the log says so once, and the peer goes on.

Does not import pyarrow.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from wirelake.explore.reading.records import Record
from wirelake.extras import CAPTURES, need

if TYPE_CHECKING:
    from wirelake.explore.reading.engine import ReadOptions

__all__ = ["CHECK_SECONDS", "CLOSE_SECONDS", "MAX_WAITING", "Begin", "Failed", "Order", "Overdue", "Read", "Watcher"]

log = logging.getLogger("wirelake.watch")

MAX_WAITING: Final = 64 << 20
"""Bytes that may wait for the watcher."""
CHECK_SECONDS: Final = 1.0
"""How often it is checked what is overdue."""
CLOSE_SECONDS: Final = 30.0
"""How long the watcher's process may do nothing at the end before it is given up."""
END_SECONDS: Final = 1.0
"""How long to wait for a function `tell` that does not return when all else is over."""
GATHER_SECONDS: Final = 0.05
"""How long bytes wait for more, so that the threads here wake up rarely."""
FRAME_BYTES: Final = 1 << 20
"""Bytes that are sent together."""
START_SECONDS: Final = 30.0
"""How long to wait for the watcher's process before the peer begins without it; it then catches up."""
BACKGROUND: Final = 19
"""How nice the watcher's process is: on a busy processor the peer comes first."""
PROGRAM: Final = f"import os; os.nice({BACKGROUND}); from wirelake.explore.reading.watch_process import main; main()"


class Order(NamedTuple):
    """The first thing that the watcher's process is told."""

    options: ReadOptions | None
    messages: bool
    """Whether records of messages come back, too."""


class Begin(NamedTuple):
    """Read from here on, with no session known: bytes before were lost."""

    preamble: bytes


class Read(NamedTuple):
    """The next bytes of the recording."""

    data: bytes


class Overdue(NamedTuple):
    """All bytes recorded until this time, in microseconds since 1970, were sent."""

    now: int


class Failed(NamedTuple):
    """The last answer of a watcher's process that breaks down."""

    reason: str
    trace: str


class Watcher:
    """The `watch` of a `Recorder`. `tell` gets the records, from a thread of the watcher."""

    def __init__(
        self,
        tell: Callable[[Record], None],
        options: ReadOptions | None = None,
        *,
        messages: bool = False,
        max_waiting: int = MAX_WAITING,
        check_seconds: float = CHECK_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Start its process, and wait until it is ready, a second or two.

        With `messages`, `tell` also gets every message, which costs this process some µs each. `clock` is that of the recorder.
        """
        need(*CAPTURES)
        self._tell = tell
        self._max_waiting = max_waiting
        self._check_seconds = check_seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._checked = clock()
        self.lost = 0
        """Bytes that were not watched, because too many waited."""
        self._changed = threading.Condition()
        self._queue: deque[bytes | float] = deque()
        """Records, and times at which everything before was recorded."""
        self._waiting = 0
        self._preamble = b""
        self._has_lost = self._closing = self._is_over = False
        self._active_at = time.monotonic()
        """When its process answered last."""
        self._is_ready = threading.Event()
        self._process, self._requests, self._answers = _start()
        self._threads = [
            threading.Thread(target=target, args=arguments, name="wirelake-watch", daemon=True)
            for target, arguments in ((self._send, (Order(options, messages),)), (self._hear, ()))
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._is_ready.wait(START_SECONDS)
        except BaseException:
            self._is_over = True
            self._process.kill()
            self.close()
            raise

    def __call__(self, data: bytes) -> None:
        """Take the next record of a recording; neither blocks nor raises."""
        with self._changed:
            if self._closing or self._is_over:
                return
            self._preamble = self._preamble or data
            if self._waiting + len(data) > self._max_waiting:
                self.lost += self._waiting + len(data)
                self._queue.clear()
                self._waiting, self._has_lost = 0, True
                return
            self._queue.append(data)
            self._waiting += len(data)
            if len(self._queue) == 1 or self._waiting >= FRAME_BYTES:
                self._changed.notify()

    @property
    def process_id(self) -> int:
        """The watcher's process."""
        return self._process.pid

    def close(self) -> None:
        """Let what waits be read, and all sessions end; tell the last findings.

        A process that does nothing for `close_seconds` is given up.
        """
        with self._changed:
            self._closing = True
            self._active_at = time.monotonic()
            self._changed.notify()
        try:
            while any(thread.is_alive() for thread in self._threads):
                left = self._active_at + self._close_seconds - time.monotonic()
                if left <= 0:
                    self._stop("it does nothing any more: its last findings are lost")
                    break
                for thread in self._threads:
                    thread.join(min(left, 0.2))
        finally:
            self._process.kill()  # after a second Ctrl-C it may be at work still
            self._process.wait()
            for thread in self._threads:
                thread.join(END_SECONDS)
            for connection in (self._requests, self._answers):
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # The thread that sends.

    def _send(self, order: Order) -> None:
        try:
            self._requests.send(order)
            while not self._is_over:
                is_closing = self._gather()
                while (frame := self._next()) is not None:
                    self._requests.send(frame)
                if is_closing:
                    break
        except OSError:  # the process is gone: the other thread says so
            pass
        finally:
            with contextlib.suppress(OSError):
                self._requests.close()

    def _gather(self) -> bool:
        """Wait for something to send; return whether it is the last."""
        with self._changed:
            if self._changed.wait_for(lambda: self._queue or self._closing or self._is_over, self._check_seconds):
                self._changed.wait_for(lambda: self._waiting >= FRAME_BYTES or self._closing or self._is_over, GATHER_SECONDS)
            now = self._clock()
            if abs(now - self._checked) >= self._check_seconds:
                self._checked = now
                self._queue.append(now)
            return self._closing

    def _next(self) -> Begin | Read | Overdue | None:
        with self._changed:
            if self._has_lost:
                self._has_lost = False
                log.warning("%d bytes were not watched: too many waited", self.lost)
                return Begin(self._preamble)
            records, size = list[bytes](), 0
            while self._queue and size < FRAME_BYTES:
                item = self._queue[0]
                if isinstance(item, float) and records:
                    break
                self._queue.popleft()
                if isinstance(item, float):
                    return Overdue(round(item * 1_000_000))
                records.append(item)
                size += len(item)
            self._waiting -= size
        return Read(b"".join(records)) if records else None

    # The thread that hears.

    def _hear(self) -> None:
        try:
            while (answer := self._answers.recv()) is not None:
                self._active_at = time.monotonic()
                self._is_ready.set()
                if isinstance(answer, Failed):
                    self._stop(answer.reason)
                    log.debug("%s", answer.trace)
                    return
                for record in answer:
                    self._tell(record)
                    self._active_at = time.monotonic()
            self._process.wait()
        except (EOFError, OSError):
            code = self._process.wait()
            self._stop(f"its process was ended by signal {-code}" if code < 0 else f"its process ended with exit code {code}")
        except Exception as reason:
            log.exception("watching stopped")
            self._stop(repr(reason))
        finally:
            self._is_ready.set()

    def _stop(self, reason: str) -> None:
        """Watch no more; what waits is lost."""
        with self._changed:
            if self._is_over:
                return
            self._is_over = True
            self._queue.clear()
            self._waiting = 0
            self._changed.notify()
        log.error("watching stopped: %s", reason)
        self._process.kill()


def _start() -> tuple[subprocess.Popen[bytes], Connection, Connection]:
    """Start a watcher's process, in a process group of its own: a Ctrl-C is for the peer, which then sends the last bytes."""
    paths = os.pathsep.join(path for path in sys.path if path)
    reading, requests = os.pipe()
    answers, writing = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=reading,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            process_group=0,
        )
    except BaseException:
        os.close(requests)
        os.close(answers)
        raise
    finally:
        os.close(reading)
        os.close(writing)
    return process, Connection(requests, readable=False), Connection(answers, writable=False)

"""`wirelake ingest --follow`: follow a folder from the terminal, until Ctrl-C or once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from wirelake.cli.logs import quiet
from wirelake.cli.progress import CLEAR, Progress
from wirelake.cli.terminal import say, say_unrecognised

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wirelake.lake.jobs.follow import FollowResult
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["run_follow"]

_LINE_SECONDS: Final = 10.0
"""Seconds between two lines if stderr is no terminal."""


class _Ticker:
    """Shows progress: one moving line on a terminal, else a line every ten seconds."""

    def __init__(self) -> None:
        self._moving = sys.stderr.isatty()
        self._messages = self._files = self._bytes = 0
        self._recent: list[tuple[float, int]] = []
        self._last = 0.0

    def micro_batch(self, sources: int, size: int, messages: int, newest: int, now: float) -> None:
        """Show a committed micro-batch."""
        self._messages += messages
        self._bytes += size
        self._recent = [*(entry for entry in self._recent if entry[0] > now - 10), (now, messages)]
        if not self._moving and now - self._last < _LINE_SECONDS:
            return
        self._last = now
        seconds = max(1.0, now - self._recent[0][0])
        lag = f", {max(0.0, now - newest / 1e6):.1f} s behind" if newest else ""
        rate = sum(count for _, count in self._recent) / seconds
        text = f"{self._messages:,} messages ({rate:,.0f}/s), {self._bytes:,} bytes, {sources} files just now{lag}"
        print(f"{CLEAR}{text}" if self._moving else text, end="" if self._moving else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the moving line."""
        if self._moving and self._messages:
            print(CLEAR, end="", file=sys.stderr, flush=True)


@contextmanager
def _interruptible(stop: threading.Event, on_stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C stops after the current micro-batch, the second at once."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        on_stop()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_follow(
    lake: Path,
    folder: Path,
    flags: dict[str, float | int | bool],
    *,
    master: str | None = None,
    conf: dict[str, str] | None = None,
    ports: dict[int, str] | None = None,
    options: object = None,
    late: float | None = None,
    trust: str | None = None,
    freshness: bool | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    observer: str = "",
) -> FollowResult:
    """Start Spark and follow a folder, with progress on the terminal."""
    from wirelake.lake.jobs.follow import CONF, FollowOptions, follow  # noqa: PLC0415
    from wirelake.lake.session import java  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.session import start as session_start  # noqa: PLC0415

    chosen = FollowOptions(**flags)  # type: ignore[arg-type]  # the same names
    quiet("py4j")  # it logs Ctrl-C as an error of its own
    stop, ticker = threading.Event(), _Ticker()

    def start() -> SparkSession:
        if not session_start.is_submitted():
            say(f"Java: {java.find()}")
        with Progress() as starting:
            starting.step(f"starting Spark ({session_start.place(master)})")
            session = session_start.spark_session(master, CONF | (conf or {}))
        say(f"following {folder}{'' if chosen.once else ': Ctrl-C stops'}")
        return session

    started = time.monotonic()

    def on_build(name: str) -> None:
        ticker.close()
        progress.step(f"building {name}")

    with _interruptible(stop, lambda: say("stopping after the current micro-batch")), Progress() as progress:
        result = follow(
            start,
            lake,
            folder,
            chosen,
            decode=options,  # type: ignore[arg-type]  # DecodeOptions or None
            ports=ports,
            late_seconds=late,
            trust=trust,
            freshness=freshness,
            keys=keys,
            keyring=keyring,
            observer=observer,
            stop=stop,
            on_commit=lambda micro_batch, now: ticker.micro_batch(
                micro_batch.sources, micro_batch.bytes, micro_batch.messages, micro_batch.newest, now
            ),
            on_build=on_build,
        )
    for text in result.lost:
        say(f"not read: {text}")
    for text in result.unread:
        say(f"waiting for more bytes: {text}")
    say(
        f"{result.messages:,} messages ({result.bytes:,} bytes) in {result.micro_batches} micro-batches, {time.monotonic() - started:.1f} s"
        f"{f', {result.quarantined:,} rows in quarantine' if result.quarantined else ''}: {lake}"
    )
    say_unrecognised(result.unrecognised, lake)
    return result

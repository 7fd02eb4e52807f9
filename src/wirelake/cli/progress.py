"""Progress on stderr: one moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final

__all__ = ["Progress"]

WIDTH: Final = 24
"""Characters of the bar."""
CLEAR: Final = "\r\x1b[2K"


class Progress:
    """Shows the current step and how far it is; a finished step leaves one line behind."""

    def __init__(self) -> None:
        self._moving = sys.stderr.isatty()
        self._started = time.monotonic()
        self._step = ""
        self._step_started = self._started

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(finished=error is None)

    def step(self, text: str) -> None:
        """Begin a new step."""
        if text != self._step:
            self._leave(finished=True)
            self._step, self._step_started = text, time.monotonic()
            self._show("")

    def at(self, done: int, total: int) -> None:
        """Show how far the step is."""
        if total:
            filled = WIDTH * done // total
            self._show(f" [{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}")

    def _show(self, bar: str) -> None:
        if self._moving:
            print(f"{CLEAR}{self._step}{bar}", end="", file=sys.stderr, flush=True)

    def _leave(self, *, finished: bool) -> None:
        if self._step:
            spent = time.monotonic() - self._step_started
            start = CLEAR if self._moving else ""
            print(f"{start}{self._step}: {'done' if finished else 'stopped'} ({spent:.1f} s)", file=sys.stderr, flush=True)
            self._step = ""

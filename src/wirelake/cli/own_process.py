"""Whether this process is one command, and not a program that calls `run` among other things.

A command of its own may change what a library does in the whole process.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from importlib.machinery import ModuleSpec

from wirelake.cli.exit_codes import ExitCode

__all__ = ["collect_rarely", "end_on_interrupt", "is_own", "mark", "without_pandas"]

_marked: list[bool] = []


def mark() -> None:
    """Say that this process is one command."""
    _marked.append(True)


def is_own() -> bool:
    """Whether this process is one command."""
    return bool(_marked)


class _NoPandas:
    """Finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - the interface
        """Raise ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)
        return None


def without_pandas() -> None:
    """Let Arrow not load pandas, in a process that is one command.

    The first array asks whether there is pandas by importing it, which takes 0.3 s. Whatever needs pandas later still finds it.
    """
    if not is_own() or "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - needs the lake extra

    hidden = _NoPandas()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


def collect_rarely() -> None:
    """Let Python look for cycles rarely, in a process that is one command: rows of messages have none."""
    if is_own():
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, in a process that is one command and has nothing to clean up.

    Python handles a signal when the main thread runs Python code again. A library that computes for minutes keeps it from that. So a
    thread waits for the signal, too. An interrupt that the parent process ignores stays ignored.
    """
    if not is_own() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    is_first = threading.Lock()

    def end(*_: object) -> None:
        if is_first.acquire(blocking=False):
            os.write(2, b"interrupted\n")
            os._exit(ExitCode.INTERRUPTED)

    waiting, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGINT, end)
    signal.set_wakeup_fd(woken.detach(), warn_on_full_buffer=False)
    threading.Thread(target=lambda: end(waiting.recv(1)), daemon=True).start()

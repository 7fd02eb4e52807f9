"""`wirelake ingest --follow` in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from wirelake.lake.session.settings import SHORT_SESSION
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table

SHORT_JVM = [f"--conf={name}={value}" for name, value in SHORT_SESSION.items()]
PORTS = ["--port", "yamp=5041", "--port", "relink=5042", "--port", "event-mesh=5043"]


class Process:
    """`wirelake ingest --follow` in a process of its own; what it says is kept."""

    def __init__(self, lake: Path, folder: Path, *more: str) -> None:
        command = [sys.executable, "-c", "import sys; from wirelake.cli.main import run; sys.exit(run(sys.argv[1:]))"]
        command += ["ingest", str(lake), "--follow", str(folder), "--every", "0.1", "--master", "local[2]", *SHORT_JVM, *PORTS, *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += iter(self.process.stderr.readline, "")

    def end(self, number: int, seconds: float = 120) -> int:
        """Send a signal to it, or to all its processes if it is SIGKILL, and wait for its end."""
        if number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 180) -> int:
        """Wait for its end; leave nothing of it behind."""
        assert self.process.stderr is not None
        try:
            return self.process.wait(seconds)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self._reader.join(30)
            self.process.stderr.close()


def until(condition, process: Process, seconds: float = 180) -> None:
    """Wait for something that stays true once it is."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.process.poll() is None, "".join(process.said)
        assert time.monotonic() < end, "".join(process.said)
        time.sleep(0.02)


def micro_batches(lake: Path) -> int:
    return (delta.batch(lake, table("ledger")) or 0) if (lake / "ledger" / "_delta_log").is_dir() else 0

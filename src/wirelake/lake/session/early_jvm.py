"""Start the JVM before Spark is imported: both take a second, and wait for nothing of each other.

PySpark starts the JVM by two shell scripts, and then waits for it. With the command known (`launch.py`), the JVM starts at once. PySpark
is imported meanwhile, and joins the JVM as it does under `spark-submit`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["EarlyJvm"]

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""By these environment variables PySpark finds a JVM that runs."""
_READY: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""By this one the JVM finds the file that it writes port and secret to, when it is ready."""
_OF_SCRIPTS: Final = {"PYTHONHASHSEED": "0", "SPARK_CONNECT_MODE": "0", "SPARK_ENV_LOADED": "1", "SPARK_SCALA_VERSION": "2.13"}
"""Environment variables that PySpark and Spark's scripts set."""
_POLL_SECONDS: Final = 0.01
_END_SECONDS: Final = 10.0
"""How long a JVM may take to end."""


class EarlyJvm:
    """A JVM that starts. It ends when this process does."""

    def __init__(self, command: Sequence[str], settings: Mapping[str, str], scratch: Path) -> None:
        """`command` has everything up to the main class, `settings` those of the session."""
        self._ready = scratch / "gateway"
        arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        environment = os.environ | _OF_SCRIPTS | {_READY: str(self._ready)}
        # It ends when its standard input does.
        self._process = subprocess.Popen([*command, *arguments, "pyspark-shell"], stdin=subprocess.PIPE, env=environment)  # noqa: S603
        _running.append(self)

    def is_ready(self) -> bool:
        """Wait until Spark can join; False if the JVM ended before."""
        while not self._ready.is_file():
            if self._process.poll() is not None:
                self.end()
                return False
            time.sleep(_POLL_SECONDS)
        return True

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Let PySpark find the JVM in here. `is_ready` must have said so."""
        content = self._ready.read_bytes()
        self._ready.unlink()
        size = int.from_bytes(content[4:8])
        os.environ[_PORT], os.environ[_SECRET] = str(int.from_bytes(content[:4])), content[8 : 8 + size].decode()
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def end(self) -> None:
        """End it, if it did not end itself: Spark did not start."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        _running.remove(self)


_running: Final[list[EarlyJvm]] = []
"""They are kept: a JVM whose standard input nobody holds ends."""

"""The command that starts Spark's JVM, remembered: Spark needs a first JVM only to print it.

`spark-class` runs a launcher in a JVM of its own, and executes the command that it prints. The command depends on Java, on PySpark and on
the settings of the driver, which are the same from run to run. So the first session stores it in the user's cache folder, and later ones
run it themselves (`early_jvm.py`). Arguments of the session itself are never stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from wirelake.cache_folder import cache_folder
from wirelake.lake.session.java import Java
from wirelake.lake.session.settings import LONG_INGEST, SHORT_SESSION

__all__ = ["SWITCH", "Launch", "find"]

SWITCH: Final = "WIRELAKE_LAUNCH_CACHE"
"""Environment variable: `off` asks Spark's launcher every time."""
_MAIN: Final = b"org.apache.spark.deploy.SparkSubmit\0"
"""The class that the command ends with; arguments of the session follow."""
_BEGIN: Final = b"\0\n"
"""What the launcher prints before a command."""
_OTHERS: Final = ("SPARK_CONF_DIR", "SPARK_LAUNCHER_OPTS", "SPARK_PREPEND_CLASSES", "SPARK_SUBMIT_OPTS", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables that change the command: with one of them, nothing is remembered."""

_OF_USERS: Final = tuple(
    f"spark.driver.{name}" for name in ("extraJavaOptions", "defaultJavaOptions", "extraClassPath", "extraLibraryPath")
)
"""Settings that are part of the command. Those that a user chose may have secrets, which are not stored."""


class Launch(msgspec.Struct, frozen=True):
    """The command for one kind of session."""

    path: Path
    """Where it is remembered."""
    printed: Path | None
    """Where the script writes what the launcher prints; None: the command is known."""

    def words(self) -> list[str]:
        """The known command after Java's own path, up to the main class."""
        return self.path.read_bytes().decode().removesuffix("\0").split("\0")

    def forget(self) -> None:
        """Ask Spark's launcher again next time: the command did not work."""
        self.path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Remember the command that the launcher printed, without Java's own path and without the arguments of the session."""
        if self.printed is None:
            return
        with suppress(OSError):
            text = self.printed.read_bytes()
            command, main, _ = text.partition(_MAIN)
            java, end, rest = command.removeprefix(_BEGIN).partition(b"\0")
            if main and end and java.endswith(b"/java") and text.startswith(_BEGIN):
                draft = self.path.with_suffix(f".{os.getpid()}")
                draft.write_bytes(rest + main)
                draft.replace(self.path)
            self.printed.unlink()  # it has the arguments of the session


def find(java: Java, spark_home: Path, settings: Mapping[str, str], scratch: Path) -> Launch | None:
    """Return the command of a session, known or to be remembered; None if it is not for us to remember.

    `spark_home` must be the same for every session; `settings` are all that the session is started with.
    """
    if os.environ.get(SWITCH, "").lower() == "off" or any(name in os.environ for name in _OTHERS):
        return None
    if (spark_home / "conf" / "spark-env.sh").exists():  # Spark's scripts run it
        return None
    if any(settings.get(name, "") not in ("", SHORT_SESSION.get(name), LONG_INGEST.get(name)) for name in _OF_USERS):
        return None
    folder = cache_folder("launch")
    if folder is None:
        return None
    try:
        path = folder / _key(java, spark_home, settings)
    except OSError:
        return None
    return Launch(path, None if path.is_file() else scratch / "launcher")


def _key(java: Java, spark_home: Path, settings: Mapping[str, str]) -> str:
    """What a command depends on."""
    executable, jars = Path(java.executable).resolve(), (spark_home / "jars").resolve()
    driver = sorted((name, value) for name, value in settings.items() if name.startswith("spark.driver.") or name == "spark.master")
    own = sorted((name, value) for name, value in os.environ.items() if name.startswith(("SPARK_DRIVER", "SPARK_MEM", "JDK_", "_JAVA")))
    parts = (executable, executable.stat().st_mtime_ns, spark_home, jars, jars.stat().st_mtime_ns, driver, own)
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]

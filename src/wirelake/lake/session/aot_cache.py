"""The JVM's ahead-of-time cache: classes that Spark loads, ready to use.

Starting Spark is mostly loading and verifying thousands of classes. Java 25 can store them (JEP 483, JEP 514). The first session on a
machine makes the cache when its JVM ends, in the background; later ones start with it, and those beside it without one. A cache belongs to
one Java, one PySpark and one set of JVM flags: any other gets a cache of its own. The JVM checks a cache itself, and starts without one
that does not fit.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from wirelake.cache_folder import cache_folder
from wirelake.lake.session.java import Java

__all__ = ["MINIMUM", "SWITCH", "AotCache", "find"]

MINIMUM: Final = 25
"""The oldest Java that makes the cache in one run."""
SWITCH: Final = "WIRELAKE_AOT_CACHE"
"""Environment variable: `off` neither makes nor uses a cache."""
MOST: Final = 4
"""Caches that are kept: about 200 MB each. Short, long and cluster sessions have flags of their own."""
MAKING_SECONDS: Final = 600.0
"""So long after a session began to make a cache, no other session makes it, too: that takes a minute of CPU."""
LEAST_FREE: Final = 2 * 1024**3
"""Bytes that must be free on the disk to make one."""
_STALE_SECONDS: Final = 3600.0
"""A file that is not complete after this time never will be."""


class AotCache(msgspec.Struct, frozen=True):
    """The cache for one kind of session."""

    path: Path
    draft: Path | None
    """Where the JVM writes it when it ends; None: it is there already."""

    @property
    def flags(self) -> list[str]:
        """Flags for the JVM."""
        if self.draft is None:
            return [f"-XX:AOTCache={self.path}", "-Xlog:disable"]
        return [f"-XX:AOTCacheOutput={self.draft}", "-Xlog:disable"]


def find(java: Java, spark_home: Path, options: str) -> AotCache | None:
    """Return the cache for a session: one to use, or one to make. None if there can be none.

    `options` are the JVM flags of the session, `spark_home` must be the same for every session.
    """
    if java.version < MINIMUM or os.environ.get(SWITCH, "").lower() == "off" or "-XX:AOT" in options:
        return None
    folder = cache_folder("aot")
    if folder is None:
        return None
    path = folder / f"{_key(java, spark_home, options)}.aot"
    claim = path.with_suffix(".making")
    with suppress(OSError):
        if path.is_file():
            path.touch()  # the last ones in use are kept
            claim.unlink(missing_ok=True)
            return AotCache(path, None)
        _sweep(folder)
        if shutil.disk_usage(folder).free >= LEAST_FREE and _take(claim):
            return AotCache(path, folder / f"{path.stem}-{os.getpid()}.new")
    return None


def _take(claim: Path) -> bool:
    """Claim the making of a cache; False if another session makes it."""
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        if time.time() - claim.stat().st_mtime < MAKING_SECONDS:
            return False
        claim.touch()  # that session was killed, or lives long
    return True


def _key(java: Java, spark_home: Path, options: str) -> str:
    """What a cache depends on."""
    executable, jars = Path(java.executable).resolve(), (spark_home / "jars").resolve()
    parts = (executable, executable.stat().st_mtime_ns, spark_home, jars, jars.stat().st_mtime_ns, options)
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _sweep(folder: Path) -> None:
    """Delete caches beyond `MOST`, the ones used last kept, and what sessions that were killed left."""
    for draft in (*folder.glob("*.new*"), *folder.glob("*.making")):
        if time.time() - draft.stat().st_mtime > _STALE_SECONDS:
            draft.unlink(missing_ok=True)
    caches = sorted(folder.glob("*.aot"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in caches[MOST - 1 :]:
        path.unlink(missing_ok=True)

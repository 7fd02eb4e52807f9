"""CPU and memory of a process and all below it, the JVM and Python apart, from /proc.

Times of a Spark job are hard to get otherwise: the daemon that forks Python workers does not inherit their times, and the JVM outlives the
process that started it. So every process is looked at often, and its last figure counts when it is gone.
"""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple

__all__ = ["Cost", "Meter"]

SAMPLE_SECONDS = 0.2
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
JAVA = "java"


class Cost(NamedTuple):
    """Seconds of CPU so far."""

    jvm: float
    python: float
    """Everything that is not the JVM."""

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.jvm - other.jvm, self.python - other.python)


class Meter:
    """Looks at the processes below one, itself included, until it is closed."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[tuple[int, str], tuple[bool, int]] = {}
        """(process, start) -> whether it is a JVM, ticks of its own when it was last seen."""
        self._most = {True: 0, False: 0}
        self._own = 0.0
        """Seconds of CPU that looking took; they do not count if this process is measured."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._keep_looking, name="meter", daemon=True)
        self._thread.start()

    def cost(self) -> Cost:
        """What all of them used so far, those that are gone included."""
        with self._lock:
            self._look()
            jvm, python = (sum(ticks for is_jvm, ticks in self._seen.values() if is_jvm is kind) / TICKS for kind in (True, False))
        return Cost(jvm, python - self._own if self._root == os.getpid() else python)

    def forget_peaks(self) -> None:
        """Begin anew with memory."""
        with self._lock:
            self._most = {True: 0, False: 0}

    def peaks(self) -> tuple[int, int]:
        """The most memory that a JVM held, and the most that one of the Python processes below the first held, in bytes."""
        return self._most[True], self._most[False]

    def wait(self, seconds: float) -> None:
        """Wait until all processes that were seen are gone."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(self._is_alive(*one) for one in list(self._seen)):
            time.sleep(SAMPLE_SECONDS)

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()

    def _keep_looking(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with self._lock:
                self._look()

    def _look(self) -> None:
        began = time.thread_time()
        parents: dict[int, list[tuple[int, str, list[str]]]] = {}
        found = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (stat := _stat(int(entry.name))):
                found[int(entry.name)] = stat
                parents.setdefault(int(stat[1][1]), []).append((int(entry.name), *stat))
        chosen = [(self._root, *found[self._root])] if self._root in found else []
        for process, _, _ in chosen:
            chosen += parents.get(process, ())  # the list grows while it is walked
        below = {process for process, _, _ in chosen}
        orphans = [one for one, start in self._seen if one in found and one not in below and found[one][1][19] == start]
        for process, name, fields in [*chosen, *((one, *found[one]) for one in orphans)]:
            is_jvm = name == JAVA
            self._seen[process, fields[19]] = is_jvm, int(fields[11]) + int(fields[12])
            if process != self._root:
                self._most[is_jvm] = max(self._most[is_jvm], int(fields[21]) * PAGE)
        self._own += time.thread_time() - began

    def _is_alive(self, process: int, start: str) -> bool:
        stat = _stat(process)
        return stat is not None and stat[1][19] == start and stat[1][0] != "Z"


def _stat(process: int) -> tuple[str, list[str]] | None:
    """The name of a process, and what stands after it in /proc/PID/stat: state, parent, …"""
    try:
        file = os.open(f"/proc/{process}/stat", os.O_RDONLY)  # quicker than a Path, and there are many
    except OSError:
        return None
    try:
        before, _, after = os.read(file, 4096).decode(errors="replace").rpartition(")")
    except OSError:
        return None
    finally:
        os.close(file)
    return before.partition("(")[2], after.split()

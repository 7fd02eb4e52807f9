"""A process that runs inputs with limits on memory and CPU, and is replaced when an input kills it.

The CPU limit counts time of the processor, not of the clock, so that a busy machine changes no verdict. Memory is the growth of what is
resident while an input runs, because libraries may swallow the error of a limit on addresses.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from tests.fuzz.cases import Case

MIB = 1 << 20
ADDRESSES = 3072 * MIB
"""Addresses a worker may ask for beyond those it has at the start: keeps the machine alive whatever an input asks for."""
PATIENCE = 300.0
"""Seconds without a verdict after which an input hangs: no CPU is used, so only the clock can tell."""

Run = Callable[[Case], None]


class Bounds(msgspec.Struct, frozen=True):
    """What one input of a target may take."""

    memory: int = 512 * MIB
    """Bytes."""
    cpu: int = 10
    """Seconds."""


class Verdict(msgspec.Struct, frozen=True):
    """What became of an input."""

    failure: str = ""
    """Why it failed, in one line; empty if it did not."""
    detail: str = ""
    """The stack, if there is one."""
    cpu: float = 0.0
    memory: int = 0

    @property
    def cause(self) -> str:
        """Equal for failures of one cause, as far as that can be told: the kind of failure, and the line of ours it came from."""
        places = [row.strip() for row in self.detail.splitlines() if "/src/wirelake/" in row]
        if not places:
            return re.sub(r"\d+", "#", self.failure)
        deepest = 0 if "most recent call first" in self.detail else -1
        return f"{self.failure.partition(':')[0]} {places[deepest]}"


class Worker:
    """Runs inputs one after the other in a forked process."""

    def __init__(self, run: Run, bounds: Callable[[Case], Bounds]) -> None:
        self._run = run
        self._bounds = bounds
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection
        self._folder = tempfile.TemporaryDirectory(prefix="wirelake-fuzz-")
        """Where workers write; it is of this process, because a worker that is killed removes nothing."""
        self._stacks = Path(self._folder.name) / "stack"

    def run(self, case: Case) -> Verdict:
        """The verdict on one input; a worker that died of it is replaced before the next."""
        if self._process is None:
            self._start()
        assert self._process is not None
        self._pipe.send(case)
        try:
            if self._pipe.poll(PATIENCE):
                verdict: Verdict = self._pipe.recv()
                return verdict
            self._process.kill()
            reason = f"hangs: no end after {PATIENCE:.0f} s"
        except EOFError:
            reason = ""
        self._process.join()
        code = self._process.exitcode or 0
        self._process = None
        if not reason:
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            over = f"more CPU than {self._bounds(case).cpu} s" if name == "SIGXCPU" else f"the process died: {name}"
            reason = over
        return Verdict(reason, self._stacks.read_text(errors="replace"), cpu=float(self._bounds(case).cpu))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
        self._folder.cleanup()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._stacks.write_bytes(b"")
        self._process = context.Process(target=_serve, args=(theirs, self._pipe, self._run, self._bounds, self._stacks), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries that sleep do not mind a fork
            self._process.start()
        theirs.close()


def _serve(pipe: Connection, parents: Connection, run: Run, bounds: Callable[[Case], Bounds], stacks: Path) -> None:
    parents.close()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with stacks.open("w") as file:
        faulthandler.enable(file)
        faulthandler.register(signal.SIGXCPU, file, chain=True)
        os.chdir(stacks.parent)
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            while True:
                case: Case = pipe.recv()
                pipe.send(_judged(case, run, bounds(case)))


def _judged(case: Case, run: Run, bounds: Bounds) -> Verdict:
    gc.collect()
    gc.freeze()  # so that the next collection looks only at what this input leaves behind
    used, before = _cpu(), _resident_peak(reset=True)
    limit_addresses(_status("VmSize") + ADDRESSES)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + bounds.cpu + 2, resource.RLIM_INFINITY))
    failure, detail = "", ""
    try:
        run(case)
    except MemoryError as error:
        failure, detail = f"MemoryError: {error}", traceback.format_exc()
    except BaseException as error:  # a target may raise whatever it likes: that is what we are here to see
        failure, detail = f"{type(error).__name__}: {error}".splitlines()[0][:300], traceback.format_exc()
    finally:
        limit_addresses(resource.RLIM_INFINITY)
    cpu, memory = _cpu() - used, max(0, _resident_peak() - before)
    if not failure and memory > bounds.memory:
        failure = f"more memory than {bounds.memory // MIB} MiB: {memory // MIB} MiB"
    if not failure and cpu > bounds.cpu:
        failure = f"more CPU than {bounds.cpu} s: {cpu:.1f} s"
    return Verdict(failure, detail, cpu, memory)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def limit_addresses(size: int) -> None:
    """Let the process ask for no more than so many bytes of addresses."""
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


def _status(name: str) -> int:
    """A size of this process as Linux tells it, in bytes; 0 on other systems."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _resident_peak(*, reset: bool = False) -> int:
    """The most that was resident since the last reset; what is resident now, right after one."""
    if sys.platform == "linux":
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, and it never falls

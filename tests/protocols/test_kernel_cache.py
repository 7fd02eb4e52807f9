"""Compiled kernels are kept between processes, never for other code, and made by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from textwrap import dedent
from types import FunctionType

import numba
import numpy as np
import pytest
from numba.core.caching import FunctionCache

from wirelake import kernel_cache
from wirelake.protocols import kernel

needs_numba = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="Numba is switched off: nothing is compiled")

INNER = """
from enum import IntEnum
from wirelake.protocols.kernel import kernel
from sizes import SIZE

class Code(IntEnum):
    A = 1

@kernel
def scan(data):
    return data[0] + 0 + SIZE + Code.A.value
"""
OUTER = """
from wirelake.protocols.kernel import kernel

def walker(scan):
    @kernel
    def walk(data):
        return scan(data)
    return walk
"""
PROGRAM = """
import numpy as np
from inner import scan
from outer import walker
from wirelake.protocols.kernel import compiled
walk = compiled(walker(scan))
print(walk(np.frombuffer(b"a", np.uint8)), sum(walk.stats.cache_hits.values()))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a program that has a kernel in three modules, in a process of its own; returns its result and the hits of the cache."""
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "cache"))
    for name, text in (("inner", INNER), ("outer", OUTER), ("sizes", "SIZE = 10\n"), ("program", PROGRAM)):
        (tmp_path / f"{name}.py").write_text(dedent(text))

    def once(folder: Path = tmp_path) -> tuple[int, int]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, str(folder / "program.py")], env=environment, capture_output=True, text=True, check=True)
        result, hits = done.stdout.split()
        return int(result), int(hits)

    return once


@pytest.mark.slow
@needs_numba
def test_code_is_kept_until_a_kernel_changes_that_it_uses(run, tmp_path):
    assert run() == (0x61 + 11, 0)
    assert run() == (0x61 + 11, 1)
    inner = tmp_path / "inner.py"
    inner.write_text(inner.read_text().replace("data[0] + 0", "data[0] + 100"))
    assert run() == (0x61 + 111, 0)


@pytest.mark.slow
@needs_numba
def test_code_is_found_wherever_its_source_lies_and_however_old_it_is(run, tmp_path):
    assert run() == (0x61 + 11, 0)
    for name in ("inner", "outer"):
        (tmp_path / f"{name}.py").write_text("\n\n" + (tmp_path / f"{name}.py").read_text())
    assert run(shutil.copytree(tmp_path, tmp_path / "other", ignore=shutil.ignore_patterns("cache", "other"))) == (0x61 + 11, 1)


@pytest.mark.slow
@needs_numba
def test_a_kernel_that_moved_to_another_module_is_compiled_again(run, tmp_path):
    assert run() == (0x61 + 11, 0)
    (tmp_path / "inner.py").rename(tmp_path / "moved.py")
    program = tmp_path / "program.py"
    program.write_text(program.read_text().replace("from inner ", "from moved "))
    assert run() == (0x61 + 11, 0)
    assert run() == (0x61 + 11, 1)


def test_a_fingerprint_has_the_module_of_each_kernel():
    used = FunctionType(add_one.__code__, {"__name__": "one"}), FunctionType(add_one.__code__, {"__name__": "two"})
    assert kernel.fingerprint(used[0]) != kernel.fingerprint(used[1])
    assert kernel.fingerprint(closing_over(used[0])) != kernel.fingerprint(closing_over(used[1]))


def closing_over(value):
    def walk() -> object:
        return value

    return walk


class Small(IntEnum):
    ONE = 1


def test_a_fingerprint_has_what_a_closure_holds():
    assert kernel.fingerprint(closing_over(1)) == kernel.fingerprint(closing_over(1))
    assert len({kernel.fingerprint(closing_over(value)) for value in (1, 2, Small, kernel.u16, kernel.u32)}) == 5


def fingerprint_of_scan(inner: str, size: int) -> str:
    """The fingerprint of a kernel whose module has this text, but for its imports."""
    names = {"IntEnum": IntEnum, "kernel": lambda function: function, "SIZE": size, "__name__": "inner"}
    exec("\n".join(line for line in inner.splitlines() if "import" not in line), names)  # noqa: S102 - the text is above
    return kernel.fingerprint(names["scan"])


def test_a_fingerprint_has_code_constants_and_enumerations():
    first = fingerprint_of_scan(INNER, 10)
    assert fingerprint_of_scan(INNER, 10) == first
    assert fingerprint_of_scan(INNER, 20) != first
    assert fingerprint_of_scan(INNER.replace("A = 1", "A = 2"), 10) != first
    assert fingerprint_of_scan(INNER.replace("data[0] + 0", "data[0] + 1"), 10) != first


def test_every_kernel_has_a_fingerprint_of_its_own():
    assert len({kernel.fingerprint(one) for one in kernel._kernels}) == len(set(kernel._kernels))


def add_one(data):
    return data[0] + 1


@needs_numba
def test_one_process_at_a_time_compiles_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path))
    save, was_locked = FunctionCache.save_overload, []

    def watched(self, signature, result):
        with (tmp_path / "f" / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                was_locked.append(False)
            except BlockingIOError:
                was_locked.append(True)
        save(self, signature, result)

    monkeypatch.setattr(FunctionCache, "save_overload", watched)
    assert kernel_cache.jit(add_one, "f")(np.array([1])) == 2
    assert was_locked == [True]
    assert list((tmp_path / "f").rglob("*.nbc"))


@needs_numba
def test_a_process_that_waits_for_the_lock_finds_the_code(tmp_path, monkeypatch):
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path))
    first, second = kernel_cache.jit(add_one, "f"), kernel_cache.jit(add_one, "f")
    waits: list[bool] = []

    def lock(file, how):
        """Another process has the lock, and compiles the kernel before it lets go of it."""
        waits.append(True)
        if len(waits) == 1:
            assert first(np.array([1])) == 2

    monkeypatch.setattr(kernel_cache.fcntl, "flock", lock)
    assert second(np.array([1])) == 2
    assert len(waits) == 2
    assert (sum(first.stats.cache_misses.values()), sum(second.stats.cache_hits.values())) == (1, 1)


def spoiled(content: bytes) -> bytes:
    """The data of Numba's cache, as a module of another version: it cannot be found."""
    return content.replace(b"test_kernel_cache", b"test_kernel_hoard")


@needs_numba
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("spoil", [lambda content: content[:-7], lambda _: b"", lambda _: b"?" * 99, spoiled])
def test_code_that_cannot_be_loaded_is_compiled_and_kept_again(tmp_path, monkeypatch, suffix, spoil):
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path))
    assert kernel_cache.jit(add_one, "f")(np.array([1])) == 2
    (kept,) = tmp_path.rglob(f"*{suffix}")
    kept.write_bytes(spoil(kept.read_bytes()))
    again, third = kernel_cache.jit(add_one, "f"), kernel_cache.jit(add_one, "f")
    assert again(np.array([1])) == 2
    assert third(np.array([1])) == 2
    assert sum(third.stats.cache_hits.values()) == 1


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path / "file"))
    assert kernel_cache.folder() is None
    assert kernel_cache.jit(add_one, "f")(np.array([1])) == 2


def test_a_failing_write_costs_only_the_cache(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "no space left")

    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(FunctionCache, "save_overload", full)
    assert kernel_cache.jit(add_one, "f")(np.array([1])) == 2


def test_the_folder_is_in_the_users_cache_and_private(tmp_path, monkeypatch):
    monkeypatch.delenv(kernel_cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = kernel_cache.folder()
    assert made == tmp_path / "wirelake" / "kernels"
    assert made.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert kernel_cache.folder() == tmp_path / "home" / ".cache" / "wirelake" / "kernels"

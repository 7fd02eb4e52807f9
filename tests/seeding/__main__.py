"""Seed bugs one at a time into a copy of the tree, and see whether the tests catch them: `python -m tests.seeding`.

A bug is caught if a test that passes without it fails with it. It lived if all tests still pass.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.seeding.bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "examples", "README.md", "Makefile", "pyproject.toml", "constraints.txt")
PASSED, FAILED = 0, 1
"""Exit codes of pytest."""
SECONDS = 900.0
"""Seconds that the tests of one bug may take: a bug may make a program wait for ever."""


class SeedingError(Exception):
    """The seeding itself cannot go on."""


def source(tree: Path, bug: Bug) -> Path:
    """The file that a bug is seeded into."""
    return tree / "src" / "wirelake" / bug.file


def check(bugs: Iterable[Bug]) -> None:
    """Raise SeedingError unless every bug's text is in its file exactly once, and its tests exist."""
    problems = []
    for bug in bugs:
        count = source(ROOT, bug).read_text().count(bug.old)
        if count != 1:
            problems.append(f"{bug.name}: its text is {count} times in {bug.file}, not once: change `old` in tests/seeding/bugs.py")
        if not found(bug):
            problems.append(f"{bug.name}: none of its test files exists: change `tests` in tests/seeding/bugs.py")
    if problems:
        raise SeedingError("\n".join(problems))


def found(bug: Bug) -> list[str]:
    """The tests of a bug that exist."""
    return [f"tests/{one}" for one in bug.tests if (ROOT / "tests" / one.partition("::")[0]).exists()]


def run(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of a tree until the first one fails; returns pytest's exit code, and the test that failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rf", *tests]
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return FAILED, ""
    failed = [line.split(" ", 1)[1].partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in (PASSED, FAILED) and not failed:
        raise SeedingError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return (PASSED if done.returncode == PASSED else FAILED), failed[0] if failed else ""


_times = itertools.count(1_000_000_000)
"""Each version of a file has a time of its own, so that neither Python nor Numba takes a compiled form of another version."""


def write(path: Path, text: str) -> None:
    """Write a version of a source file."""
    path.write_text(text)
    os.utime(path, (now := next(_times), now))


def seed(tree: Path, bug: Bug) -> tuple[bool, str]:
    """Seed one bug, run its tests, and take it out again; returns whether it was caught, and by which test.

    Raises SeedingError if that test fails without the bug, too.
    """
    path = source(tree, bug)
    whole = path.read_text()
    write(path, whole.replace(bug.old, bug.new))
    try:
        code, failed = run(tree, found(bug))
    finally:
        write(path, whole)
    if failed and run(tree, [failed])[0] != PASSED:
        raise SeedingError(f"{failed} fails without a bug, too")
    return code != PASSED, failed


def main(words: Sequence[str] | None = None) -> int:
    """Seed the chosen bugs; exit code 1 if one of them lived."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeding", description="Seed bugs, and see whether the tests catch them.")
    parser.add_argument("names", nargs="*", help="bugs to seed; all if none is named")
    parser.add_argument("--no-spark", action="store_true", help="leave out bugs whose tests start Spark")
    parser.add_argument("--check", action="store_true", help="only check that every bug can be seeded")
    options = parser.parse_args(words)
    bugs = [bug for bug in BUGS if (not options.names or bug.name in options.names) and not (options.no_spark and bug.needs_spark)]
    check(bugs)
    if options.check:
        return 0
    lived = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, tree / name)
        for bug in bugs:
            start = time.monotonic()
            caught, failed = seed(tree, bug)
            print(f"{'caught' if caught else 'LIVED':6}  {time.monotonic() - start:5.1f} s  {bug.name:45} {failed}", flush=True)
            lived += [] if caught else [bug.name]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(bugs) - len(lived)} of {len(bugs)} bugs were caught, in {used.ru_utime + used.ru_stime:.0f} s of CPU time")
    return 1 if lived else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SeedingError as problem:
        sys.exit(str(problem))

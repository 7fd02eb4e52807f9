"""Run the tests without Spark on every supported Python that this machine has: `make matrix`.

Each Python gets a virtual environment of its own, `.venv-3.12` for example, with all libraries but Spark. A missing Python, or one whose
libraries cannot be installed, is named at the end. The result is 1 if tests failed somewhere, or if nothing ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
TESTS: Final = ("tests/protocols", "tests/capture", "tests/transports", "tests/peers", "tests/test_errors.py")
"""Folders that need no Spark."""
MARKS: Final = "not spark and not slow and not long"
INSTALLED: Final = (
    ".[fast,websocket,formats,wolpertinger,quic]",
    "pyarrow>=18",
    "fsspec>=2024.6",
    "pandas>=2.2,<3",
    "duckdb>=1.2",
    "deltalake>=1.6,<2",
)
TEST_LIBRARIES: Final = ("pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.120", "zstandard>=0.25")


def candidates(version: str) -> Iterator[str]:
    """Yield the interpreters that may be this version: on the PATH, of pyenv, of uv."""
    yield f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    yield from (str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))
    if which("uv"):
        found = subprocess.run(["uv", "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False)
        yield from found.stdout.split("\n")[:1]


def interpreter(version: str) -> str | None:
    """Return a working interpreter of a version, or None. A file on the PATH may be a shim that only prints a hint."""
    for candidate in filter(which, candidates(version)):
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip() == version:
            return candidate
    return None


def install(python: str, folder: Path) -> str:
    """Make the virtual environment of a Python; return what went wrong, or nothing."""
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--constraint",
        "constraints.txt",
    ]
    for command in ([python, "-m", "venv", str(folder)], [*pip, "--editable", *INSTALLED, *TEST_LIBRARIES]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return (lines or done.stderr.splitlines() or ["no reason given"])[0]
    return ""


def run(version: str, tests: list[str]) -> str:
    """Test one version; return the outcome in words."""
    python = interpreter(version)
    if python is None:
        return "missing: no such interpreter on the PATH, in pyenv or in uv"
    folder = ROOT / f".venv-{version}"
    if problem := install(python, folder):
        return f"not tried: {problem}"
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-p", "no:cacheprovider", "-m", MARKS, *tests]
    print(f"Python {version}: {python}", flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    return "passed" if code == 0 else f"failed (pytest: {code})"


def main() -> int:
    """Test all versions, and say how each went."""
    tests = sys.argv[1:] or list(TESTS)
    outcomes = {version: run(version, tests) for version in VERSIONS}
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    is_failed = any(outcome.startswith("failed") for outcome in outcomes.values())
    return 1 if is_failed or "passed" not in outcomes.values() else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every benchmark, then one table of all goals: `python benchmarks --quick --json FILE`.

A benchmark is a module here with `run(quick, seed) -> list[Figure]`; each runs in a process of its own, one after the other, for a limited
time. Figures are saved after each of them, so that one that breaks down or takes too long costs only its own. The exit code is 1 if one
did. A goal that is missed is printed, and is no error.

A quick run takes one and a half minutes on a fast machine with two idle cores, and four on a slow one; a full one takes ten minutes on the
fast one. `large` needs ten million messages and about ten minutes more: it runs only with `--large`, or by its name.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, goals, load, save

HERE = Path(__file__).resolve().parent
LARGE = "large"
QUICK_SECONDS, FULL_SECONDS, LARGE_SECONDS = 90.0, 600.0, 1800.0
"""How long one benchmark may take."""
GRACE_SECONDS = 10.0
"""How long a benchmark that took too long has to end its own processes."""
_RUN = re.compile(r"^def run\(quick: bool, seed: int\) -> list\[Figure\]:", re.MULTILINE)


def names() -> list[str]:
    """The modules that are benchmarks."""
    return [path.stem for path in sorted(HERE.glob("*.py")) if _RUN.search(path.read_text())]


def limit(name: str, quick: bool) -> float:
    """How many seconds a benchmark may take."""
    if name == LARGE:
        return LARGE_SECONDS
    return QUICK_SECONDS if quick else FULL_SECONDS


def figures_of(name: str, quick: bool, seed: int, folder: Path) -> tuple[list[Figure], str]:
    """Run one: its figures, and why it has none."""
    result = folder / f"{name}.json"
    command = [sys.executable, str(HERE / f"{name}.py"), "--seed", str(seed), "--json", str(result), *(["--quick"] if quick else [])]
    began, seconds = time.monotonic(), limit(name, quick)
    # A process group of its own: what the benchmark started ends with it.
    with subprocess.Popen(command, process_group=0) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            end(process)
            failure = f"{name} took longer than {seconds:.0f} s"
        except BaseException:
            end(process)
            raise
        else:
            failure = f"{name} ended with exit code {process.returncode}" if process.returncode else ""
    print(f"{name}: {time.monotonic() - began:.0f} s{f'; {failure}' if failure else ''}", file=sys.stderr, flush=True)
    return ([], failure) if failure else (load(result).figures, "")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a benchmark and all that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """The command line."""
    options = argparse.ArgumentParser(prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all but {LARGE} without a name")
    options.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    options.add_argument("--large", action="store_true", help=f"also {LARGE}: ten million messages")
    options.add_argument("--seed", type=int, default=0, help="of data that is drawn")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, after each benchmark; `page.py` draws them")
    chosen = options.parse_args()
    if unknown := set(chosen.only) - set(names()):
        options.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(names())}")
    found: list[Figure] = []
    failures: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.only or [name for name in names() if name != LARGE or chosen.large]:
            figures, failure = figures_of(name, chosen.quick, chosen.seed, Path(folder))
            found += figures
            failures += [failure] if failure else []
            if chosen.json:
                note = f"Missing here: {'; '.join(failures)}." if failures else ""
                save(chosen.json, found, chosen.quick, chosen.seed, note=note)
    goals("All goals", [figure for figure in found if figure.goal])
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())

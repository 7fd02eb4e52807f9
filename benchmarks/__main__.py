"""Every benchmark, then one table of all goals: `python benchmarks --quick --json FILE`.

A benchmark is a module here with `run(quick, seed) -> list[Figure]`; each runs in a process of its own, one after the other. The exit code
is 1 if one of them breaks down. A goal that is missed is printed, and is no error.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figure, goals, load, save

HERE = Path(__file__).resolve().parent
_RUN = re.compile(r"^def run\(quick: bool, seed: int\) -> list\[Figure\]:", re.MULTILINE)


def names() -> list[str]:
    """The modules that are benchmarks."""
    return [path.stem for path in sorted(HERE.glob("*.py")) if _RUN.search(path.read_text())]


def figures_of(name: str, quick: bool, seed: int, folder: Path) -> list[Figure] | None:
    """Run one; None if it broke down."""
    result = folder / f"{name}.json"
    command = [sys.executable, str(HERE / f"{name}.py"), "--seed", str(seed), "--json", str(result), *(["--quick"] if quick else [])]
    began = time.monotonic()
    failed = subprocess.run(command, check=False).returncode
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return None if failed else load(result).figures


def main() -> int:
    """The command line."""
    options = argparse.ArgumentParser(prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all without a name")
    options.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    options.add_argument("--seed", type=int, default=0, help="of data that is drawn")
    options.add_argument("--json", type=Path, metavar="FILE", help="write all figures there; `page.py` draws them")
    chosen = options.parse_args()
    if unknown := set(chosen.only) - set(names()):
        options.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(names())}")
    with tempfile.TemporaryDirectory() as folder:
        found = {name: figures_of(name, chosen.quick, chosen.seed, Path(folder)) for name in chosen.only or names()}
    figures = [figure for some in found.values() for figure in some or ()]
    goals("All goals", [figure for figure in figures if figure.goal])
    if chosen.json:
        save(chosen.json, figures, chosen.quick, chosen.seed)
    broken = [name for name, some in found.items() if some is None]
    if broken:
        print(f"broke down: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Goals of the lake: ingests in fresh and warm sessions, refreshes, and reading; jobs of `gold.py` as figures of the one table.

`gold.py` runs in a process of its own; this script reads its JSON. With `--quick` only a small ingest is measured. Packets are in
`packet_goals.py`, freshness in `follow.py`, ten million messages in `large.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, main

HERE = Path(__file__).resolve().parent
TABLE = "Recordings to tables"
FULL = ("a,b,c,h,i,j",)
"""Jobs that need no ten million messages."""
QUICK = ("i", "--requests", "200", "--refreshes", "0", "--no-warm-up")


def outcome(script: str, *arguments: str) -> Any:
    """Run a script that writes JSON; returns what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run([sys.executable, str(HERE / script), "--json", str(result), *arguments], check=True)
        return json.loads(result.read_text())


def gold_figures(jobs: str, *options: str) -> list[Figure]:
    """Jobs of `gold.py`, with the goals that it has for them."""
    from gold import JOBS

    figures = []
    for found in outcome("gold.py", "--only", jobs, *options)["runs"]:
        job = JOBS[found.pop("job")]
        values = {name: value for name, value in found.items() if isinstance(value, int | float)}
        if "failed" in found:
            print(f"{job.what}: {found['failed']}", file=sys.stderr)
            continue
        for goal in job.goals:
            words = [*goal.text.split("<=")[0].split(), *(["CPU"] if "CPU" in goal.form or "CPU" in goal.text else [])]
            name = ", ".join([job.what, *([" ".join(words)] if words else [])])
            unit = goal.form.removesuffix(" of CPU").split()[-1]
            figures.append(Figure(table=TABLE, name=name, ours=goal.value(values), unit=unit, most=goal.limit(values)))
    return figures


def run(quick: bool, seed: int) -> list[Figure]:  # noqa: ARG001 - nothing is drawn
    """See the top of this file."""
    return gold_figures(*(QUICK if quick else FULL))


if __name__ == "__main__":
    main(run, __doc__)

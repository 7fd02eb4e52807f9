"""Goals of the lake: packets to tables; in full runs also ingests of the demo in fresh and warm sessions, and how fresh a followed lake is.

`packets.py`, `gold.py` and `follow.py` measure, each in a process of its own; this script reads their JSON. With `--quick` only packets are
measured: starting Spark a dozen times takes minutes. `explore.py` has no goals yet, so it is run by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, load, main

HERE = Path(__file__).resolve().parent
PACKETS = "Packets to files of all tables, CPU"
LAKE = "Recordings to tables"
RIVALS = {"tshark -T ek": 50.0, "dpkt, headers only": 5.0}
"""Rival of `packets.py` -> how many times its CPU time ours must fit into."""
GOAL_US = 2.0
TIMES = 3
"""Turns of a full run of packets."""
JOBS = "a,b,c,h,i"
"""Jobs of `gold.py` that need no ten million messages."""


def outcome(script: str, *arguments: str) -> Any:
    """Run a script that writes JSON; returns what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run([sys.executable, str(HERE / script), "--json", str(result), *arguments], check=True)
        return json.loads(result.read_text())


def packets(quick: bool, seed: int) -> list[Figure]:
    """Microseconds of CPU a packet, beside the rivals that are installed."""
    found = outcome("packets.py", "--seed", str(seed), *(["--quick", "--times", "1"] if quick else ["--times", str(TIMES)]))
    figures = []
    for shape, measured in found["shapes"].items():
        ours, label = sum(measured["us"].values()), f"{shape} flows, {measured['packets']:,} packets"
        figures.append(Figure(table=PACKETS, name=label, ours=ours, unit="µs", most=GOAL_US))
        for rival, theirs in measured["rivals"].items():
            most = 1 / RIVALS[rival] if rival in RIVALS else None
            figures.append(Figure(table=PACKETS, name=label, ours=ours, unit="µs", rival=rival, theirs=theirs, most=most))
        figures += [
            Figure(table=PACKETS, name=label, ours=ours, unit="µs", rival=rival, most=1 / times)
            for rival, times in RIVALS.items()
            if rival not in measured["rivals"]
        ]
    return figures


def ingests() -> list[Figure]:
    """Jobs of `gold.py`, with the goals that it has for them."""
    from gold import JOBS as KNOWN

    figures = []
    for found in outcome("gold.py", "--only", JOBS)["runs"]:
        job = KNOWN[found.pop("job")]
        values = {name: value for name, value in found.items() if isinstance(value, int | float)}
        if "failed" in found:
            print(f"{job.what}: {found['failed']}", file=sys.stderr)
            continue
        for goal in job.goals:
            what = " ".join([*goal.text.split("<=")[0].split(), *(["CPU"] if "CPU" in goal.text else [])])
            figures.append(
                Figure(
                    table=LAKE, name=f"{job.what}, {what}" if what else job.what, ours=goal.value(values), unit="s", most=goal.limit(values)
                )
            )
    return figures


def freshness() -> list[Figure]:
    """What `follow.py` measures."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run([sys.executable, str(HERE / "follow.py"), "--json", str(result)], check=True)
        return load(result).figures


def run(quick: bool, seed: int) -> list[Figure]:
    """See the top of this file."""
    figures = packets(quick, seed)
    if quick:
        print("ingests and freshness are left out: they need minutes of Spark; run without --quick", file=sys.stderr)
        return figures
    return [*figures, *ingests(), *freshness()]


if __name__ == "__main__":
    main(run, __doc__)

"""Goals of packets: what `packets.py` measures, as figures of the one table.

`packets.py` runs in a process of its own; this script reads its JSON. With `--quick` most captures are ten times smaller, and what takes
processes of its own is left out: memory of a large capture, two cores against one, and what a packet more costs with Spark.
"""

from __future__ import annotations

from figures import Figure, main
from lake_goals import outcome

TABLE = "Packets to files of all tables, CPU"
INGEST = "Packets in a whole ingest with Spark, CPU"
PROCESSES = "Packets, whole processes"
RIVALS = {"tshark -T ek": 50.0, "dpkt, headers only": 5.0}
"""Rival of `packets.py` -> how many times its CPU time ours must fit into."""
GOAL_US = 2.0
MAX_MIB = 512.0
TIMES_CORES = 1.7
TIMES = 3
"""Turns of a full run."""


def run(quick: bool, seed: int) -> list[Figure]:
    """See the top of this file."""
    found = outcome("packets.py", "--seed", str(seed), *(["--quick", "--times", "1", "--alone"] if quick else ["--times", str(TIMES)]))
    figures = []
    for shape, measured in found["shapes"].items():
        ours, label = sum(measured["us"].values()), f"{shape} flows, {measured['packets']:,} packets"
        figures.append(Figure(table=TABLE, name=label, ours=ours, unit="µs", most=GOAL_US))
        if "more_us" in measured:
            name, more = f"a packet more, {shape} flows", measured["more_us"]
            figures.append(Figure(table=INGEST, name=name, ours=more, unit="µs", most=GOAL_US))
            figures += [
                Figure(table=INGEST, name=name, ours=more, unit="µs", rival=rival, theirs=measured["rivals"].get(rival), most=1 / times)
                for rival, times in RIVALS.items()
            ]
        for rival, theirs in measured["rivals"].items():
            most = 1 / RIVALS[rival] if rival in RIVALS else None
            figures.append(Figure(table=TABLE, name=label, ours=ours, unit="µs", rival=rival, theirs=theirs, most=most))
        figures += [
            Figure(table=TABLE, name=label, ours=ours, unit="µs", rival=rival, most=1 / times)
            for rival, times in RIVALS.items()
            if rival not in measured["rivals"]
        ]
    for protocol, cost in found.get("others", {}).items():
        figures.append(Figure(table=TABLE, name=f"short connections of {protocol}", ours=cost, unit="µs", most=GOAL_US))
    if "peak_mib" in found:
        size = found["large_bytes"] / 1e9
        figures += [
            Figure(table=PROCESSES, name=f"peak memory, a capture of {size:.1f} GB", ours=found["peak_mib"], unit="MiB", most=MAX_MIB),
            Figure(table=PROCESSES, name="two cores, in terms of one", ours=found["two_cores"], unit="x", least=TIMES_CORES),
        ]
    return figures


if __name__ == "__main__":
    main(run, __doc__)

"""Packets to message tables: CPU a packet to read, assemble, decode and write two captures, beside dpkt and tshark on the same files.

Both captures hold EMP over TCP in Ethernet frames, made by a seed.

- *long*: 8 connections, interleaved packet by packet. Of three packets one is a request, one a response, one a bare acknowledgement.
- *short*: connections of 11 packets, four at a time: handshake, greeting, one request, its response, goodbye.

Short connections of the other protocols over TCP are measured, too, without rivals of their own.

The steps are those of Spark's tasks, without Spark: `read_split` and the rows that cross the shuffle; `Assembly`; `Decoder`; Parquet files
of all tables and of the index. They run compiled, as tasks do for captures of this size, and once before on a small capture, to load
kernels. The rivals read the first packets of the same files; the CPU of their start, measured with one packet, is taken off.

Beside them, each in processes of its own: two processes that take a capture through all steps at once, against one after the other; and of
a whole `wirelake ingest` without gold tables, kernels compiled before, the CPU and the peak memory of a Python worker for a large capture;
and what a packet more costs with Spark's share: a capture of 283,000 packets against one of eight times as many, in one Spark session.

Goals: at most 2 µs a packet in all, with Spark and without; at least 50 times `tshark -T ek` and 5 times dpkt, which reads headers only.
Memory below 512 MiB for 5 GB; two cores at least 1.7 times one; an ingest of 283,000 packets within 20 s of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import machine, show, verdict
from packet_captures import Step, capture, long_steps, short_steps
from processes import Meter

GOAL_US = 2.0
TIMES_EK = 50
TIMES_DPKT = 5
MAX_MIB = 512
LARGE_BYTES = 5 * 10**9
CORES_BYTES = 4 * 10**8
"""Of the capture that one and two processes take."""
CORES_TURNS = 3
LARGE_ROUNDS = 20_000
"""Rounds of a large capture that are made at a time: 57 MB."""
TIMES_CORES = 1.7
MORE = 8
"""The larger of two captures whose ingests are compared has so many times the packets of the smaller one."""
MORE_WARM, MORE_TURNS = 2, 5
COLD_SECONDS = 20.0
LONG_PACKETS = 283_000
SHORT_FLOWS = 100_000
OTHERS = ("yamp", "relink", "wolpertinger")
OTHER_FLOWS = 20_000
SHARE = 10
"""The captures of `--quick` are so many times smaller, but that of long flows: it is small."""
RIVAL_PACKETS = 60_000
"""Packets of each file that the rivals read."""
PCAPTOPARQUET = Path(sys.executable).with_name("pcaptoparquet")
PCAPTOPARQUET_PACKETS = 10_000
"""It takes longer than the others."""
SEED = 7
WARM_UP = 1_200
STAGES = ("read", "assemble", "decode", "write")
FIELDS = ("frame.time_epoch", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "tcp.seq", "tcp.len")


class Clock:
    """CPU of this process, by stage."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(STAGES, 0.0)
        self._stage, self._since = "", time.process_time()

    def turn(self, stage: str) -> str:
        """Count for another stage from now on; returns the one before."""
        now, before = time.process_time(), self._stage
        if before:
            self.spent[before] += now - self._since
        self._stage, self._since = stage, now
        return before

    def each(self, stage: str, items: Iterator[Any]) -> Iterator[Any]:
        """Pass items on, and count what it takes to make them for a stage."""
        while True:
            before = self.turn(stage)
            item = next(items, None)
            self.turn(before)
            if item is None:
                return
            yield item


def ingest(path: Path, lake: Path) -> tuple[dict[str, float], int]:
    """All steps from the packets of a file to files of tables; returns CPU by stage, and the messages."""
    from wirelake import protocols
    from wirelake.capture.blocks.assemble import Assembly
    from wirelake.capture.blocks.read_split import read_split, read_tasks
    from wirelake.capture.blocks.transfer import from_batch, to_batches
    from wirelake.capture.files.identity import identify
    from wirelake.lake.decode.decoder import DecodeOptions, Decoder
    from wirelake.lake.jobs.task_files import TaskFiles
    from wirelake.protocols.kernel import use_compiled

    use_compiled()
    clock, files, count = Clock(), TaskFiles(lake, 0), 0

    def put(rows: dict[str, Any]) -> None:
        nonlocal count
        before = clock.turn("write")
        count += sum(batch.num_rows for batch in rows.get("messages", ()))
        files.add({name: batches for name, batches in rows.items() if name not in ("ledger", "unrecognised")})
        clock.turn(before)

    (task,) = read_tasks(identify(path), [])
    decoder = Decoder(DecodeOptions(), sink=put)
    assembly = Assembly(protocols.ports(), protocols.sniff, protocols.dialect)
    transfers = clock.each("read", to_batches(read_split(task, ports=protocols.ports(), protocols=protocols.names())))
    items = (item for batch in transfers for item in from_batch(batch))

    def blocks() -> Iterator[Any]:
        for item in items:
            if hasattr(item, "packets"):
                yield from assembly.feed(item)
            else:
                yield item
        yield from assembly.finish()

    for block in clock.each("assemble", blocks()):
        clock.turn("decode")
        put(decoder.feed(block))
        clock.turn("")
    clock.turn("decode")
    put(decoder.finish())
    clock.turn("write")
    files.close()
    clock.turn("")
    return clock.spent, count


# Processes of their own.


def children(tasks: Sequence[tuple[Path, Path]]) -> float:
    """Seconds that processes take for a capture each, begun together; each in a process that did a small capture before."""
    command = [sys.executable, __file__, "--child"]
    started = [
        subprocess.Popen([*command, str(path), str(lake)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for path, lake in tasks
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    begin = time.monotonic()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()
    for process in started:
        process.communicate()
        if process.returncode:
            raise RuntimeError(f"a process that ingests ended with {process.returncode}: its error is above")
    return time.monotonic() - begin


def be_child(path: Path, lake: Path) -> None:
    """In the child: load kernels with a small capture, tell that it is ready, wait, and take the capture."""
    with tempfile.TemporaryDirectory(prefix="wirelake-packets-") as scratch:
        ingest_once(Path(scratch, "small.pcap"), long_steps(), True, Path(scratch))
    print("ready", flush=True)
    sys.stdin.readline()
    ingest(path, lake)


def _large(path: Path, seed: int, size: int) -> None:
    """Write a capture of long connections with at least so many bytes, a part at a time."""
    first = 0
    while first == 0 or path.stat().st_size < size:
        capture(path, long_steps(), LARGE_ROUNDS, seed, is_long=True, first_round=first)
        first += LARGE_ROUNDS


def peak_memory(folder: Path, seed: int, size: int) -> tuple[int, float]:
    """The bytes of a large capture of long connections, and the peak memory in MiB of a Python worker of its ingest."""
    path = folder / "large.pcap"
    _large(path, seed, size)
    _, peak = command_ingest(path, folder / "large")
    written = path.stat().st_size
    path.unlink()
    shutil.rmtree(folder / "large")
    return written, peak


def two_cores(folder: Path, seed: int, size: int) -> float:
    """How many times faster two processes take a capture each at once than one after the other; without Spark.

    One and two take turns, and the best of each counts: other work on the machine would slow one of them down, and give more than 2.
    """
    path = folder / "cores.pcap"
    _large(path, seed, size)
    alone, both = [], []
    for turn in range(CORES_TURNS):
        alone.append(children([(path, folder / f"alone-{turn}")]))
        both.append(children([(path, folder / f"both-{turn}-{number}") for number in range(2)]))
    path.unlink()
    return 2 * min(alone) / min(both)


def command_ingest(path: Path, lake: Path) -> tuple[float, float]:
    """CPU seconds of a whole `wirelake ingest`, Spark's included, and the most memory in MiB that one of its Python processes held."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "wirelake", "ingest", "--no-gold", str(lake), str(path)], stdout=subprocess.DEVNULL, stderr=said
        )
        meter = Meter(process.pid)
        process.wait()
        cost, (_, most) = meter.cost(), meter.peaks()
        meter.close()
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"wirelake ingest ended with {process.returncode}: {said.read()}")
    return cost.jvm + cost.python, most / (1 << 20)


def packet_more(folder: Path, steps: Sequence[Step], seed: int, is_long: bool) -> float:
    """CPU microseconds that one packet more costs an ingest with Spark, all processes counted."""
    paths, rounds = [folder / f"more-{size}.pcap" for size in (1, MORE)], LONG_PACKETS // len(steps)
    packets = [capture(path, steps, times * rounds, seed, is_long=is_long) for path, times in zip(paths, (1, MORE), strict=True)]
    command = [sys.executable, __file__, "--session", *map(str, paths)]
    spent = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    for path in paths:
        path.unlink()
    return 1e6 * (spent[1] - spent[0]) / (packets[1] - packets[0])


def others_cost(folder: Path, protocol: str, seed: int, flows: int) -> float:
    """CPU microseconds for each packet of short connections of a protocol; the second of two turns, with its kernels loaded."""
    from wirelake import protocols

    path, steps = folder / f"{protocol}.pcap", short_steps(protocol=protocol)
    packets = capture(path, steps, flows // 4, seed, is_long=False, server_port=protocols.get(protocol).port or 0)
    spent = [ingest(path, folder / f"{protocol}-{turn}")[0] for turn in range(2)]
    return 1e6 * sum(spent[1].values()) / packets


def be_session(paths: Sequence[Path]) -> list[float]:
    """In the process of a Spark session: CPU seconds of an ingest of each capture, without gold tables. The best of some turns counts.

    The captures take turns, and the first two turns are not measured: they load kernels and classes, and the JVM compiles.
    """
    from wirelake.lake import ingest as ingest_captures
    from wirelake.lake import spark_session
    from wirelake.lake.session.settings import for_one_ingest

    spark, meter = spark_session(None, for_one_ingest(0, map(str, paths))), Meter(os.getpid())  # as `wirelake ingest` starts it
    spent: list[list[float]] = [[] for _ in paths]
    with tempfile.TemporaryDirectory(prefix="wirelake-packets-") as scratch:
        for turn in range(MORE_WARM + MORE_TURNS):
            for path, seconds in zip(paths, spent, strict=True):
                lake, before = Path(scratch, f"{path.stem}-{turn}"), meter.cost()
                ingest_captures(spark, lake, [path], gold=False)
                cost = meter.cost() - before
                shutil.rmtree(lake)
                if turn >= MORE_WARM:
                    seconds.append(cost.jvm + cost.python)
    meter.close()
    spark.stop()
    return [min(seconds) for seconds in spent]


# The rivals.


def cpu_of(command: Sequence[str]) -> float:
    """CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def by_tshark(how: Sequence[str]) -> Callable[[Path, int], float]:
    """CPU seconds that tshark takes for so many packets."""

    def spent(path: Path, count: int) -> float:
        one, all_of_them = (cpu_of(["tshark", "-n", "-r", str(path), "-c", str(limit), *how]) for limit in (1, count))
        return all_of_them - one

    return spent


def by_dpkt(path: Path, count: int) -> float:
    """CPU seconds that dpkt takes to read Ethernet, IP and TCP headers of so many packets."""
    import dpkt

    before, seen = time.process_time(), 0
    with path.open("rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            segment = dpkt.ethernet.Ethernet(data).data.data
            seen += segment.sport > 0
            if seen == count:
                break
    return time.process_time() - before


def by_pcaptoparquet(path: Path, count: int) -> float:
    """CPU seconds that pcaptoparquet takes for so many packets; it reads whole files, so it gets one with the first packets."""
    found = min(count, PCAPTOPARQUET_PACKETS)
    spent = []
    with tempfile.TemporaryDirectory(prefix="wirelake-packets-") as scratch:
        for packets in (1, found):
            first = Path(scratch, f"{packets}.pcap")
            first.write_bytes(head_of(path.read_bytes(), packets))
            spent.append(cpu_of([str(PCAPTOPARQUET), "-i", str(first), "-o", str(first.with_suffix(".parquet"))]))
    return (spent[1] - spent[0]) * count / found


def head_of(data: bytes, packets: int) -> bytes:
    """The first packets of a pcap file in little-endian order."""
    at = 24
    for _ in range(packets):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return data[:at]


def rivals() -> dict[str, Callable[[Path, int], float]]:
    """Rivals that are installed, and how they are measured."""
    found: dict[str, Callable[[Path, int], float]] = {}
    try:
        import dpkt  # noqa: F401 - only whether it is there

        found["dpkt, headers only"] = by_dpkt
    except ImportError:
        print("dpkt is not installed: pip install dpkt", file=sys.stderr)
    if PCAPTOPARQUET.exists():
        found["pcaptoparquet"] = by_pcaptoparquet
    else:
        print("pcaptoparquet is not installed: pip install pcaptoparquet", file=sys.stderr)
    if shutil.which("tshark"):
        found["tshark -T fields"] = by_tshark(["-T", "fields", *(part for field in FIELDS for part in ("-e", field))])
        found["tshark -T ek"] = by_tshark(["-T", "ek"])
    else:
        print("tshark is not installed", file=sys.stderr)
    return found


def run(
    quick: bool = False, seed: int = SEED, *, times: int = 3, shapes: Sequence[str] = ("long", "short"), alone: bool = False
) -> dict[str, Any]:
    """Measure both captures; returns figures and goals. With `alone`, nothing that takes processes of its own."""
    share = SHARE if quick else 1
    results: dict[str, Any] = {"machine": machine(), "seed": seed, "quick": quick, "shapes": {}, "goals": []}
    with tempfile.TemporaryDirectory(prefix="wirelake-packets-") as scratch:
        folder = Path(scratch)
        for name in shapes:
            steps, is_long = (long_steps(), True) if name == "long" else (short_steps(), False)
            connections = 1 + max(step.connection for step in steps)
            rounds = LONG_PACKETS // len(steps) if is_long else SHORT_FLOWS // connections // share
            path, small = folder / f"{name}.pcap", folder / f"{name}-small.pcap"
            packets = capture(path, steps, rounds, seed, is_long=is_long)
            ingest_once(small, steps, is_long, folder)
            found = [ingest(path, folder / f"{name}-{turn}") for turn in range(times)]
            spent, count = min(found, key=lambda one: sum(one[0].values()))
            figures = {stage: 1e6 * seconds / packets for stage, seconds in spent.items()}
            shown = min(packets, RIVAL_PACKETS)
            others = {rival: 1e6 * measure(path, shown) / shown for rival, measure in rivals().items()}
            results["shapes"][name] = {"packets": packets, "messages": count, "us": figures, "rivals": others}
            results["goals"] += _goals(name, sum(figures.values()), others)
            if not is_long:
                results["others"] = {other: others_cost(folder, other, seed, OTHER_FLOWS // share) for other in OTHERS}
            if not alone:
                more = results["shapes"][name]["more_us"] = packet_more(folder, steps, seed, is_long)
                goal = {
                    "goal": f"{name}: <= {GOAL_US} µs for a packet more in an ingest",
                    "reached": more <= GOAL_US,
                    "found": f"{more:.2f} µs",
                }
                results["goals"].append(goal)
        if "long" in shapes and not alone:
            results |= _processes(folder, seed, share, results["goals"])
    return results


def _processes(folder: Path, seed: int, share: int, goals: list[dict[str, Any]]) -> dict[str, Any]:
    """Measure what takes processes of its own; adds goals."""
    path = folder / "long.pcap"
    size, peak = peak_memory(folder, seed, LARGE_BYTES // share)
    times, seconds = two_cores(folder, seed, CORES_BYTES // share), command_ingest(path, folder / "cold")[0]
    goals += [
        {"goal": f"memory < {MAX_MIB} MiB for {size / 1e9:.1f} GB", "reached": peak < MAX_MIB, "found": f"{peak:.0f} MiB"},
        {"goal": f"two cores >= {TIMES_CORES} x one, without Spark", "reached": times >= TIMES_CORES, "found": f"{times:.2f} x"},
        {"goal": f"cold ingest <= {COLD_SECONDS:.0f} s of CPU", "reached": seconds <= COLD_SECONDS, "found": f"{seconds:.1f} s"},
    ]
    return {"peak_mib": peak, "large_bytes": size, "two_cores": times, "cold_cpu_seconds": seconds}


def ingest_once(path: Path, steps: Sequence[Step], is_long: bool, folder: Path) -> None:
    """Load kernels and libraries."""
    capture(path, steps, max(1, WARM_UP // len(steps)), SEED, is_long=is_long)
    ingest(path, folder / path.stem)


def _goals(name: str, total: float, others: dict[str, float]) -> list[dict[str, Any]]:
    goals = [{"goal": f"{name}: <= {GOAL_US} µs a packet", "reached": total <= GOAL_US, "found": f"{total:.2f} µs"}]
    for rival, least in (("tshark -T ek", TIMES_EK), ("dpkt, headers only", TIMES_DPKT)):
        if rival in others:
            times = others[rival] / total
            goals.append({"goal": f"{name}: >= {least} x {rival}", "reached": times >= least, "found": f"{times:.1f} x"})
    return goals


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help=f"captures {SHARE} times smaller, but that of long flows")
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--shape", choices=("long", "short"), action="append")
    options.add_argument("--alone", action="store_true", help="leave out what takes processes of its own: memory, two cores, a cold ingest")
    options.add_argument("--json", type=Path, metavar="FILE")
    options.add_argument("--child", nargs=2, type=Path, metavar=("CAPTURE", "LAKE"), help=argparse.SUPPRESS)
    options.add_argument("--session", nargs="+", type=Path, metavar="CAPTURE", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        be_child(*chosen.child)
        return
    if chosen.session:
        print(json.dumps(be_session(chosen.session)))
        return
    results = run(chosen.quick, chosen.seed, times=chosen.times, shapes=chosen.shape or ("long", "short"), alone=chosen.alone)
    for name, shape in results["shapes"].items():
        total = sum(shape["us"].values())
        rows = [[f"wirelake: {stage}", f"{each:.2f}", "-", "-"] for stage, each in shape["us"].items()]
        rows.append(["wirelake: to files of all tables", f"{total:.2f}", f"{1e6 / total:,.0f}", "1.0 x"])
        rows += [[rival, f"{each:.2f}", f"{1e6 / each:,.0f}", f"{each / total:.1f} x"] for rival, each in shape["rivals"].items()]
        title = f"{name}: {shape['packets']:,} packets, {shape['messages']:,} messages, best of {chosen.times}"
        show(title, ["step or rival", "CPU µs/packet", "packets/CPU-s", "takes"], rows)
    if "others" in results:
        rows = [[name, f"{each:.2f}", f"{1e6 / each:,.0f}"] for name, each in results["others"].items()]
        show("short connections of other protocols", ["protocol", "CPU µs/packet", "packets/CPU-s"], rows)
    for goal in results["goals"]:
        verdict(goal["goal"], goal["reached"], goal["found"])
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

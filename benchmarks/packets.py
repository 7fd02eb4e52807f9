"""Packets to message tables: CPU a packet to read, assemble, decode and write two captures, beside dpkt and tshark on the same files.

Both captures hold EMP over TCP in Ethernet frames, made by a seed.

- *long*: 8 connections, interleaved packet by packet. Of three packets one is a request, one a response, one a bare acknowledgement.
- *short*: connections of 11 packets, four at a time: handshake, greeting, one request, its response, goodbye.

The steps are those of Spark's tasks, without Spark: `read_split` and the rows that cross the shuffle; `Assembly`; `Decoder`; Parquet files
of all tables and of the index. They run compiled, as tasks do for captures of this size, and once before on a small capture, to load
kernels. The rivals read the first packets of the same files; the CPU of their start, measured with one packet, is taken off.

Goals: at most 2 µs a packet in all; at least 50 times `tshark -T ek` and 5 times dpkt, which reads headers only.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from figures import machine, show, verdict

GOAL_US = 2.0
TIMES_EK = 50
TIMES_DPKT = 5
LONG_PACKETS = 283_000
SHORT_FLOWS = 100_000
SHARE = 10
"""The captures of `--quick` are so many times smaller."""
RIVAL_PACKETS = 60_000
"""Packets of each file that the rivals read."""
SEED = 7
WARM_UP = 1_200
STAGES = ("read", "assemble", "decode", "write")
FIELDS = ("frame.time_epoch", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "tcp.seq", "tcp.len")
FIN, SYN, PSH, ACK = 1, 2, 8, 16
HEADS = 16 + 14 + 20 + 20
"""Bytes of a packet record before its payload: pcap, Ethernet, IPv4, TCP."""
SIZE = 100
"""Bytes of a request or response."""


class Step(NamedTuple):
    """One packet of a round: the connection, its sender (1: the client), its flags and its payload."""

    connection: int
    sender: int
    flags: int
    payload: bytes = b""


def messages() -> tuple[bytes, bytes, bytes]:
    """A greeting, a request and a response."""
    from wirelake.protocols.emp.messages import Data, Hello, RequestResponse
    from wirelake.protocols.emp.wire import encode

    asked, answered = (encode(Data(b"x" * 72, (RequestResponse(is_request, 1),))) for is_request in (True, False))
    assert len(asked) == len(answered) == SIZE
    return encode(Hello()), asked, answered


def long_steps(connections: int = 8) -> list[Step]:
    """A round of long connections: each asks, is answered, acknowledges."""
    _, asked, answered = messages()
    kinds = ((1, ACK | PSH, asked), (0, ACK | PSH, answered), (1, ACK, b""))
    return [Step(one, *kind) for kind in kinds for one in range(connections)]


def short_steps(connections: int = 4) -> list[Step]:
    """A round of short connections, from the first packet to the last."""
    hello, asked, answered = messages()
    kinds = (
        (1, SYN, b""),
        (0, SYN | ACK, b""),
        (1, ACK, b""),
        (1, ACK | PSH, hello),
        (0, ACK | PSH, hello),
        (1, ACK | PSH, asked),
        (0, ACK | PSH, answered),
        (1, ACK, b""),
        (1, FIN | ACK, b""),
        (0, FIN | ACK, b""),
        (1, ACK, b""),
    )
    return [Step(one, *kind) for kind in kinds for one in range(connections)]


def _put(rounds: Any, at: int, values: Any, kind: str) -> None:
    """Write a number of every round at the same byte."""
    made = np.broadcast_to(np.asarray(values), len(rounds)).astype(kind)
    rounds[:, at : at + made.itemsize] = made.view(np.uint8).reshape(len(rounds), -1)


def capture(path: Path, steps: Sequence[Step], rounds: int, seed: int, *, is_long: bool) -> int:
    """Write a pcap of so many rounds; connections go on from round to round, or begin anew. Returns the packets."""
    dice = np.random.default_rng(seed)
    connections = 1 + max(step.connection for step in steps)
    numbers = np.arange(rounds)
    table = np.zeros((rounds, sum(HEADS + len(step.payload) for step in steps)), np.uint8)
    sent = np.zeros((connections, 2), np.int64)
    advance = np.zeros((connections, 2), np.int64)
    for step in steps:
        advance[step.connection, step.sender] += len(step.payload)
    first = dice.integers(0, 1 << 31, (connections, 2))
    at = 0
    for index, step in enumerate(steps):
        flow = np.zeros(rounds, np.int64) + step.connection if is_long else numbers * connections + step.connection
        ends = ((10 << 24) + 1 + (flow >> 12), 20_000 + (flow & 0xFFF)), ((10 << 24) + (200 << 16) + 1, 5040)
        (source, port), (destination, other) = ends if step.sender else ends[::-1]
        here, there = (
            (first[step.connection, side] + sent[step.connection, side] + numbers * advance[step.connection, side] * is_long) % (1 << 32)
            for side in (step.sender, 1 - step.sender)
        )
        size = len(step.payload)
        micros = 1_700_000_000_000_000 + (numbers * len(steps) + index) * 20
        for shift, value, kind in (
            (0, micros // 10**6, "<u4"),
            (4, micros % 10**6, "<u4"),
            (8, HEADS - 16 + size, "<u4"),
            (12, HEADS - 16 + size, "<u4"),
            (28, 0x0800, ">u2"),
            (30, 0x4500, ">u2"),
            (32, 40 + size, ">u2"),
            (38, 0x4006, ">u2"),
            (42, source, ">u4"),
            (46, destination, ">u4"),
            (50, port, ">u2"),
            (52, other, ">u2"),
            (54, here, ">u4"),
            (58, there if step.flags & ACK else 0, ">u4"),
            (62, 0x5000 | step.flags, ">u2"),
            (64, 1024, ">u2"),
        ):
            _put(table, at + shift, value, kind)
        body = at + HEADS
        table[:, body : body + size] = np.frombuffer(step.payload, np.uint8)
        if size == SIZE:
            _put(table, body + 20, flow * rounds + numbers + 1, ">i8")
            table[:, body + 28 : body + SIZE] = dice.integers(97, 123, (rounds, SIZE - 28), np.uint8)
        sent[step.connection, step.sender] += size + bool(step.flags & (SYN | FIN))
        at += HEADS + size
    head = b"".join(value.to_bytes(width, "little") for value, width in ((0xA1B2C3D4, 4), (2, 2), (4, 2), (0, 8), (65535, 4), (1, 4)))
    with path.open("wb") as file:
        file.write(head)
        file.write(table.data)
    return rounds * len(steps)


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


def rivals() -> dict[str, Callable[[Path, int], float]]:
    """Rivals that are installed, and how they are measured."""
    found: dict[str, Callable[[Path, int], float]] = {}
    try:
        import dpkt  # noqa: F401 - only whether it is there

        found["dpkt, headers only"] = by_dpkt
    except ImportError:
        print("dpkt is not installed: pip install dpkt", file=sys.stderr)
    if shutil.which("tshark"):
        found["tshark -T fields"] = by_tshark(["-T", "fields", *(part for field in FIELDS for part in ("-e", field))])
        found["tshark -T ek"] = by_tshark(["-T", "ek"])
    else:
        print("tshark is not installed", file=sys.stderr)
    return found


def run(quick: bool = False, seed: int = SEED, *, times: int = 3, shapes: Sequence[str] = ("long", "short")) -> dict[str, Any]:
    """Measure both captures; returns figures and goals."""
    share = SHARE if quick else 1
    results: dict[str, Any] = {"machine": machine(), "seed": seed, "quick": quick, "shapes": {}, "goals": []}
    with tempfile.TemporaryDirectory(prefix="wirelake-packets-") as scratch:
        folder = Path(scratch)
        for name in shapes:
            steps, is_long = (long_steps(), True) if name == "long" else (short_steps(), False)
            connections = 1 + max(step.connection for step in steps)
            rounds = (LONG_PACKETS // len(steps) if is_long else SHORT_FLOWS // connections) // share
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
    return results


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
    options.add_argument("--quick", action="store_true", help=f"captures {SHARE} times smaller")
    options.add_argument("--seed", type=int, default=SEED)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--shape", choices=("long", "short"), action="append")
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args()
    results = run(chosen.quick, chosen.seed, times=chosen.times, shapes=chosen.shape or ("long", "short"))
    for name, shape in results["shapes"].items():
        total = sum(shape["us"].values())
        rows = [[f"wirelake: {stage}", f"{each:.2f}", "-", "-"] for stage, each in shape["us"].items()]
        rows.append(["wirelake: to files of all tables", f"{total:.2f}", f"{1e6 / total:,.0f}", "1.0 x"])
        rows += [[rival, f"{each:.2f}", f"{1e6 / each:,.0f}", f"{each / total:.1f} x"] for rival, each in shape["rivals"].items()]
        title = f"{name}: {shape['packets']:,} packets, {shape['messages']:,} messages, best of {chosen.times}"
        show(title, ["step or rival", "CPU µs/packet", "packets/CPU-s", "takes"], rows)
    for goal in results["goals"]:
        verdict(goal["goal"], goal["reached"], goal["found"])
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

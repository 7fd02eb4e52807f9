"""What it costs to get from recordings to all tables: an older version beside this one, job by job, in turns.

Every job runs in a process of its own, with the same driver (`gold_job.py`) and the same recordings. `--baseline` names a checkout of the
older version: it runs with the same interpreter and libraries, found by PYTHONPATH. Without it only this version runs.

| job | what is measured |
|---|---|
| a | `wirelake ingest` of the demo's recordings (five protocols, 105,000 messages), fresh process |
| b | the same in a Spark session that has done it once, into a new lake |
| c | refreshing gold tables after 2,000 new messages, in the demo's lake, on average over `--refreshes` when all is warm |
| d | `--messages` EMP messages, all tables, in a session that is warm |
| e | gold tables of these, CPU a message |
| f | freshness with gold tables, while a folder is followed at `--rate` messages a second |
| g | gold tables of one session of `--messages` messages, and memory of a Python worker meanwhile |
| h | `wirelake read` of the demo's recordings |
| i | `wirelake ingest` of a recording of 43 KB, fresh process |
| j | `wirelake demo` |

CPU is that of the JVM and all Python processes, those that are gone included. Caches of compiled kernels are filled by one ingest of each
version before, which is not counted. Figures are medians. Goals of d, e and g are for 10,000,000 messages, and by message for other
numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from figures import machine, show, verdict
from ingest import CACHE
from processes import Meter

NEW_REQUESTS = 380
"""Requests of a demo of about 2,000 messages."""
SMALL = 390
"""Messages in a recording of 43 KB."""
KEYS = ("mesh.keys", "sessions.log")
QUICK = "a,b,c,h,i"
WAIT_SECONDS = 30.0
DRIVER = Path(__file__).with_name("gold_job.py")

Figures = dict[str, float]


class Failed(Exception):
    """A job did not end well; says how."""


class Version(NamedTuple):
    """A version of wirelake."""

    name: str
    source: Path
    """The folder that has the package."""

    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.source)}

    def command(self, *arguments: str | Path) -> list[str]:
        """A command of wirelake."""
        return [sys.executable, "-m", "wirelake.cli.main", *map(str, arguments)]


class Goal(NamedTuple):
    """What a figure has to be at most."""

    text: str
    value: Callable[[Figures], float]
    limit: Callable[[Figures], float]
    form: str = "{:.1f} s"


class Job(NamedTuple):
    """One thing to measure."""

    what: str
    run: Callable[[Version, argparse.Namespace], Figures]
    goals: tuple[Goal, ...]


# How jobs are run.


def measured(version: Version, command: list[str], folder: Path) -> tuple[Figures, str]:
    """Run a command in a fresh process, and wait for all it has started."""
    # Files, not pipes: the JVM holds them open after the process that counts is gone.
    with (folder / "errors").open("w") as errors, (folder / "output").open("w") as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=version.environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        meter = Meter(process.pid)
        try:
            process.wait()
        finally:
            process.kill()
        seconds = time.perf_counter() - began
        meter.wait(WAIT_SECONDS)
        meter.close()
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {(folder / 'errors').read_text()[-2000:]}")
    spent = meter.cost()
    return {"seconds": seconds, "jvm": spent.jvm, "python": spent.python}, (folder / "output").read_text()


def command(version: Version, *arguments: str | Path) -> Figures:
    """A command of wirelake, from nothing to the prompt."""
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        return measured(version, version.command(*arguments), Path(scratch))[0]


def driver(version: Version, job: str, *arguments: str | Path | float) -> Figures:
    """A job of the driver, which measures itself."""
    line = [sys.executable, str(DRIVER), job, "--source", str(version.source), *map(str, arguments)]
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        _, output = measured(version, line, Path(scratch))
    found: Figures = json.loads(output.splitlines()[-1])
    return found


# Recordings: made once, by this version, for both.


def demo_recordings(version: Version, name: str, requests: int) -> Path:
    folder = CACHE / name
    if not folder.exists():
        print(f"recording {name} …", file=sys.stderr)
        draft = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        driver(version, "record", "--recordings", draft, "--messages", requests)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.rename(folder)
    return folder


def prepare(version: Version, requests: int, refreshes: int) -> None:
    """Make what several jobs need."""
    demo_recordings(version, f"demo-{requests}", requests)
    for number in range(refreshes):
        demo_recordings(version, f"demo-new-{number}", NEW_REQUESTS)
    small = CACHE / f"one-{SMALL}.pcapng"
    if not small.exists():
        driver(version, "record-one", "--recordings", small, "--messages", SMALL)


def demo_folder(chosen: argparse.Namespace) -> Path:
    return CACHE / f"demo-{chosen.requests}"


def demo_files(chosen: argparse.Namespace) -> list[Path]:
    return sorted(demo_folder(chosen).glob("*.pcapng"))


# The jobs.


def ingest_demo(version: Version, chosen: argparse.Namespace) -> Figures:
    keys = [part for name in KEYS for part in ("--keys", demo_folder(chosen) / name)]
    return command(version, "ingest", "lake", *demo_files(chosen), *keys)


def ingest_again(version: Version, chosen: argparse.Namespace) -> Figures:
    return driver(version, "again", "--recordings", demo_folder(chosen))


def refresh(version: Version, chosen: argparse.Namespace) -> Figures:
    new = (CACHE / f"demo-new-{number}" for number in range(chosen.refreshes))
    return driver(version, "refresh", "--recordings", demo_folder(chosen), "--new", *new)


def whole(version: Version, chosen: argparse.Namespace) -> Figures:
    return driver(version, "whole", "--messages", chosen.messages)


def follow(version: Version, chosen: argparse.Namespace) -> Figures:
    options = {"--rate": chosen.rate, "--seconds": chosen.seconds, "--gold-every": chosen.gold_every}
    return driver(version, "fresh", *(part for option in options.items() for part in option))


def one_session(version: Version, chosen: argparse.Namespace) -> Figures:
    return driver(version, "one-session", "--messages", chosen.messages)


def read(version: Version, chosen: argparse.Namespace) -> Figures:
    """From the command to its first line, and to its last."""
    asked = subprocess.run(version.command("read", "--help"), env=version.environment(), check=False, capture_output=True)
    if asked.returncode:
        raise Failed("this version has no command `read`")
    began = time.perf_counter()
    with subprocess.Popen(version.command("read", *demo_files(chosen)), env=version.environment(), stdout=subprocess.PIPE) as process:
        meter = Meter(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        first = time.perf_counter() - began
        lines = 1 + sum(1 for _ in process.stdout)
    seconds = time.perf_counter() - began
    meter.close()
    if process.returncode:
        raise Failed(f"exit code {process.returncode}")
    spent = meter.cost()
    return {"seconds": seconds, "first": first, "lines": lines, "jvm": spent.jvm, "python": spent.python}


def ingest_small(version: Version, _chosen: argparse.Namespace) -> Figures:
    return command(version, "ingest", "lake", CACHE / f"one-{SMALL}.pcapng")


def demo(version: Version, chosen: argparse.Namespace) -> Figures:
    return command(version, "demo", "--out", "demo-lake", "--messages", str(chosen.requests))


def seconds(limit: float, text: str = "") -> Goal:
    return Goal(f"{text}<= {limit} s", lambda found: found["seconds"], lambda _: limit)


def cpu(limit: float) -> Goal:
    return Goal(f"<= {limit} s of CPU", used, lambda _: limit, "{:.1f} s of CPU")


def used(found: Figures) -> float:
    return found["jvm"] + found["python"]


def gold_each(found: Figures) -> float:
    """Microseconds of CPU a message."""
    return 1e6 * (found["gold_jvm"] + found["gold_python"]) / found["messages"]


JOBS = {
    "a": Job("ingest, the demo, fresh process", ingest_demo, (seconds(22), cpu(25))),
    "b": Job("ingest, the demo, same session again", ingest_again, (seconds(4),)),
    "c": Job("refresh after 2,000 new messages", refresh, (cpu(1.5),)),
    "d": Job(
        "EMP, all tables",
        whole,
        (Goal("<= 8 µs of CPU a message, 80 s for 10^7", used, lambda found: 8e-6 * found["messages"], "{:.1f} s of CPU"),),
    ),
    "e": Job("EMP, gold tables", whole, (Goal("<= 2.5 µs of CPU a message", gold_each, lambda _: 2.5, "{:.1f} µs"),)),
    "f": Job("freshness with gold tables", follow, (Goal("p95 <= 2 s", lambda found: found["p95"], lambda _: 2.0, "{:.2f} s"),)),
    "g": Job(
        "one session, gold tables",
        one_session,
        (
            Goal("<= 1 GB a worker", lambda found: found["worker_peak"] / 1e9, lambda _: 1.0, "{:.2f} GB"),
            Goal("<= 2 µs a message, 20 s for 10^7", lambda found: found["seconds"], lambda found: 2e-6 * found["messages"]),
        ),
    ),
    "h": Job(
        "read, the demo",
        read,
        (Goal("first line <= 0.5 s", lambda found: found["first"], lambda _: 0.5, "{:.2f} s"), seconds(6, "all lines ")),
    ),
    "i": Job("ingest, a recording of 43 KB, fresh process", ingest_small, (seconds(15),)),
    "j": Job("demo", demo, (seconds(45),)),
}


# What is printed.


def median(every: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in every) for name in every[0]}


def shown(found: Figures) -> list[str]:
    """The figures that every job has, and then its own."""
    own = {name: value for name, value in found.items() if name not in ("seconds", "jvm", "python") and not name.startswith("gold_")}
    forms = {
        "worker_peak": "{:,.0f}",
        "jvm_peak": "{:,.0f}",
        "messages": "{:,.0f}",
        "new": "{:,.0f}",
        "lines": "{:,.0f}",
        "lost": "{:,.0f}",
    }
    more = [f"{name} {forms.get(name, '{:.2f}').format(value)}" for name, value in own.items()]
    return [*(f"{value:.1f}" for value in (found["seconds"], found["jvm"], found["python"], used(found))), ", ".join(more)]


def report(results: dict[tuple[str, str], list[Figures]], versions: list[Version], runs: int) -> None:
    """One table of all jobs, and then the goals of this version."""
    lines = []
    for letter, job in JOBS.items():
        for version in versions:
            if every := results.get((letter, version.name)):
                lines.append([f"{letter}: {job.what}", version.name, str(len(every)), *shown(median(every))])
    columns = ["job", "version", "runs", "wall, s", "JVM, CPU s", "Python, CPU s", "all, CPU s", "more"]
    show(f"Recordings to tables, in turns, median of {runs}", columns, lines)
    newest = versions[-1].name
    for letter, job in JOBS.items():
        if every := results.get((letter, newest)):
            found = median(every)
            before = results.get((letter, versions[0].name)) if len(versions) > 1 else None
            for goal in job.goals:
                text = goal.form.format(goal.value(found))
                if before:
                    text += f" (baseline {goal.form.format(goal.value(median(before)))})"
                verdict(f"{letter}: {job.what} {goal.text}", goal.value(found) <= goal.limit(found), text)


def turns(
    chosen: argparse.Namespace, letters: list[str], versions: list[Version]
) -> tuple[dict[tuple[str, str], list[Figures]], list[dict]]:
    """Run all jobs; every version in turn, so that a busy moment of the machine hits all alike."""
    results: dict[tuple[str, str], list[Figures]] = {}
    log = []
    for number in range(chosen.runs):
        done: dict[tuple[object, str], Figures] = {}
        for letter in letters:
            # The order changes from run to run: the second of two finds caches of the machine warm.
            for version in versions if number % 2 == 0 else reversed(versions):
                key = JOBS[letter].run, version.name
                print(f"run {number + 1}, {letter}, {version.name} …", file=sys.stderr)
                try:
                    found = done[key] if key in done else JOBS[letter].run(version, chosen)
                except Failed as error:
                    print(f"{letter}, {version.name}: {error}", file=sys.stderr)
                    log.append({"job": letter, "version": version.name, "run": number + 1, "failed": str(error)})
                    continue
                done[key] = found
                results.setdefault((letter, version.name), []).append(found)
                log.append({"job": letter, "version": version.name, "run": number + 1} | found)
                print("   ", ", ".join(f"{name} {value:,.2f}" for name, value in found.items()), file=sys.stderr)
    return results, log


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--baseline", type=Path, help="a checkout of an older version")
    options.add_argument("--only", default=QUICK, help=f"jobs, by letter, or `all`; {QUICK} unless given")
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--requests", type=int, default=20_000, help="of the demo; goals are for 20,000")
    options.add_argument("--refreshes", type=int, default=6, help="of c; the second half of them counts")
    options.add_argument("--messages", type=int, default=10_000_000, help="of d, e and g")
    options.add_argument("--rate", type=int, default=20_000, help="messages a second, of f")
    options.add_argument("--seconds", type=float, default=40.0, help="how long f records")
    options.add_argument("--gold-every", type=float, default=10.0, help="seconds between two refreshes, of f")
    options.add_argument("--no-warm-up", action="store_true", help="caches of compiled kernels are filled already")
    options.add_argument("--json", type=Path, help="write every figure of every run to this file")
    chosen = options.parse_args()
    letters = list(JOBS) if chosen.only == "all" else chosen.only.split(",")
    if unknown := [letter for letter in letters if letter not in JOBS]:
        options.error(f"no job {', '.join(unknown)}; there are {', '.join(JOBS)}")
    versions = [Version("this", Path(__file__).resolve().parents[1] / "src")]
    if chosen.baseline:
        versions.insert(0, Version("baseline", chosen.baseline.resolve() / "src"))
    for version in versions:
        if not (version.source / "wirelake").is_dir():
            options.error(f"{version.source} has no package wirelake")

    CACHE.mkdir(exist_ok=True)
    prepare(versions[-1], chosen.requests, chosen.refreshes)
    if not chosen.no_warm_up:
        for version in versions:
            print(f"filling caches, {version.name} …", file=sys.stderr)
            ingest_demo(version, chosen)
    results, log = turns(chosen, letters, versions)
    report(results, versions, chosen.runs)
    if chosen.json:
        chosen.json.write_text(json.dumps({"machine": machine(), "runs": log}, indent=1) + "\n")


if __name__ == "__main__":
    main()

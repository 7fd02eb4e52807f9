"""`wirelake demo`: the whole pipeline in one command, from sockets to a report."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from wirelake.cli.demo_folder import DemoFolder
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import spark_flags, spark_settings
from wirelake.cli.ingest import print_result, run_ingest
from wirelake.cli.key_files import keys_in
from wirelake.cli.logs import quiet
from wirelake.cli.progress import Progress
from wirelake.cli.report import show_summary
from wirelake.cli.terminal import say
from wirelake.extras import LAKE, need

__all__ = ["demo"]


@click.command()
@click.option(
    "-o",
    "--out",
    "out",
    type=click.Path(path_type=Path),
    default=Path("demo-lake"),
    show_default=True,
    help="Folder for recordings, lake and report.",
)
@click.option(
    "-n", "--messages", "messages", type=click.IntRange(min=100), default=20_000, show_default=True, help="Approximate number of requests."
)
@click.option("--fresh/--no-fresh", "fresh", default=True, help="Replace recordings and lake of the last demo; --no-fresh adds to them.")
@spark_flags
def demo(out: Path, messages: int, fresh: bool, master: str | None, conf: tuple[str, ...]) -> int:
    """Run real peers on loopback, record them, ingest the recordings with Spark, and write a report.

    All protocols are used, with requests, events, signatures, errors, and deliberate violations and forgeries, so that every table has
    rows. Only recordings and lakes of an earlier demo are replaced. Other files stay: the command stops and names them.
    """
    need(*LAKE)
    from wirelake.explore.report import write_report  # noqa: PLC0415 - needs the lake extra
    from wirelake.peers.demo import KEYS, record  # noqa: PLC0415

    settings = spark_settings(conf)
    folder = DemoFolder(out, fresh=fresh)
    folder.prepare()
    recordings, lake = folder.recordings, folder.lake
    quiet("wirelake")  # peers of the demo break rules on purpose
    with Progress() as progress:
        progress.step("running peers on loopback")
        files = asyncio.run(record(recordings, messages, progress.at))
    folder.recorded()
    keys, keyring = keys_in(recordings / name for name in KEYS)
    result = run_ingest(lake, [str(file) for file in files], master=master, conf=settings, keys=keys, keyring=keyring)
    print_result(result, lake)
    page = write_report(lake, folder.report)
    show_summary(lake)
    say("")
    say(f"lake:    {lake}")
    say(f"query:   wirelake query {lake} violations")
    say(f"report:  {page.resolve()}")
    return ExitCode.OK

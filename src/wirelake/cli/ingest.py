"""`wirelake ingest`: add captures and recordings to a lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import decode_flags, freshness_flag, limits_given, ports_given, spark_flags, spark_settings, trust_flag
from wirelake.cli.follow import run_follow
from wirelake.cli.key_files import keys_in
from wirelake.cli.spark_session import spark_on_demand
from wirelake.cli.terminal import say, say_unrecognised
from wirelake.errors import UsageError
from wirelake.extras import LAKE, need
from wirelake.masking import mask

if TYPE_CHECKING:
    from wirelake.lake.jobs.ingest import IngestResult
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["ingest", "print_result", "run_ingest"]

_MAX_NAMED: Final = 20
"""Skipped files that are listed; further ones are only counted."""


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("paths", nargs=-1)
@decode_flags
@click.option(
    "--keys",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A trust file (see `wirelake keys`) verifies all packets in the lake, and opens payloads of new ones. A log of wolpertinger's"
    " session keys decrypts new messages. May be repeated.",
)
@spark_flags
@click.option(
    "--late",
    "late",
    type=click.FloatRange(min=0),
    help="Seconds after which an answer is late; 30 by default. Fixed when the lake is created.",
)
@click.option(
    "--observer",
    "observer",
    default="",
    help="Name who saw these files, in place of the names that recorders have and files give.",
)
@trust_flag(default=None, more=" Fixed when the lake is created; `store` by default.")
@freshness_flag(
    default=None,
    help="Judge the times in proven packets of Event Mesh: a stale one is over 300 s old. Fixed when the lake is created; --freshness by"
    " default.",
)
@click.option("--again", "again", is_flag=True, help="Read PATHS from their first byte, and replace their rows in the lake.")
@click.option(
    "--strict", "strict", is_flag=True, help="Commit nothing if a file cannot be decoded. Without it, that file goes to quarantine."
)
@click.option(
    "--gold/--no-gold", "gold", default=True, help="Refresh the gold tables. Without it, `wirelake gold` or the next ingest does that."
)
@click.option("--follow", "folder", type=click.Path(path_type=Path), help="Read the captures of this folder as they grow, until Ctrl-C.")
@click.option("--once", "once", is_flag=True, help="With --follow: treat every file as complete, read them, and stop.")
@click.option(
    "--every",
    "every",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="With --follow: seconds between two micro-batches.",
)
@click.option(
    "--max-files", "max_files", type=click.IntRange(min=0), default=0, help="With --follow: files in one micro-batch; 0 is no limit."
)
@click.option(
    "--max-bytes", "max_bytes", type=click.IntRange(min=0), default=0, help="With --follow: bytes in one micro-batch; 0 is no limit."
)
@click.option(
    "--complete-after",
    "complete_after",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="With --follow: treat a compressed file, or one without a packet, as complete after this many seconds without a write.",
)
@click.option(
    "--gold-every",
    "gold_every",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="With --follow: seconds between two refreshes of the gold tables; 0: only at the end.",
)
@click.option(
    "--gold-share",
    "gold_share",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.25,
    show_default=True,
    help="With --follow: share of the time that refreshes take at most; after a long one, the next begins later.",
)
@click.pass_context
def ingest(
    context: click.Context,
    /,
    lake: Path,
    paths: tuple[str, ...],
    port: tuple[str, ...],
    keys: tuple[Path, ...],
    master: str | None,
    conf: tuple[str, ...],
    settings: tuple[str, ...],
    late: float | None,
    observer: str,
    trust: str | None,
    freshness: bool | None,
    folder: Path | None,
    again: bool,
    strict: bool,
    gold: bool,
    **follow_flags: float,
) -> int:
    """Add captures and recordings to the tables of a lake, with Spark.

    \b
    LAKE   The lake's folder; created if there is none.
    PATHS  Captures: files, folders (searched for .pcap, .pcapng, .cap, compressed or not) or patterns;
           local, or remote if fsspec supports the scheme (s3://…).

    The command is idempotent: files that the lake has already are skipped, under any name. Files whose content changed are listed and
    not read. --again reads those, and files that are to be decoded with other options (--port, --set, a key log). Without --again, such
    options are an error if all files are in the lake already.

    With a trust file for --keys, all packets in the lake are verified with it, and PATHS may be omitted. A log of session keys has lines
    of `wolpertinger KEY IV`, in hex.

    With --follow there are no PATHS: a stream reads the files of that folder in micro-batches while they grow, and writes each row
    exactly once.
    """
    explicit = [name for name in follow_flags if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if folder is None and explicit:
        raise UsageError(f"--{explicit[0].replace('_', '-')} needs --follow FOLDER")
    if again and not paths:
        raise UsageError("--again needs PATHS: name the files to read again")
    if strict and not paths:
        raise UsageError("--strict needs PATHS: name the files to read")
    if not gold and not paths:
        raise UsageError("--no-gold needs PATHS: name the files to read")
    if not gold and again:
        raise UsageError("--no-gold and --again exclude each other: replaced rows have to leave the gold tables, too")
    if folder is not None and paths:
        raise UsageError("PATHS and --follow exclude each other: give one of them")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--follow {folder}: there is no such folder")
    if folder is not None and master and master.startswith("sc://"):
        raise UsageError(f"--master {mask(master)}: a folder cannot be followed through Spark Connect")
    store, keyring = keys_in(keys)
    if folder is None and not paths and (keyring is not None or (store is not None and store.only_opens)):
        raise UsageError("--keys: keys that decrypt need PATHS, and --again for files that the lake has already")
    if folder is None and not paths and store is None:
        raise UsageError("nothing to do: give captures to read, a folder to --follow, or --keys with a trust file")
    need(*LAKE)
    from wirelake.lake.decode.decoder import DecodeOptions  # noqa: PLC0415 - needs the lake extra

    options = DecodeOptions(limits_given(settings)) if settings else None
    settings_of_both = {
        "conf": spark_settings(conf),
        "ports": ports_given(port),
        "options": options,
        "late": late,
        "trust": trust,
        "freshness": freshness,
        "keys": store,
        "keyring": keyring,
        "observer": observer,
    }
    if folder is not None:
        run_follow(lake, folder, follow_flags, master=master, **settings_of_both)  # type: ignore[arg-type]  # the same names
        return ExitCode.OK
    result = run_ingest(lake, list(paths), master=master, again=again, strict=strict, gold=gold, **settings_of_both)  # type: ignore[arg-type]  # the same names
    print_result(result, lake)
    return ExitCode.FAILED if result.changed or result.unreadable or result.failed else ExitCode.OK


def run_ingest(
    lake: Path,
    paths: list[str],
    *,
    master: str | None = None,
    conf: dict[str, str] | None = None,
    ports: dict[int, str] | None = None,
    options: object = None,
    late: float | None = None,
    trust: str | None = None,
    freshness: bool | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    observer: str = "",
    again: bool = False,
    strict: bool = False,
    gold: bool = True,
) -> IngestResult:
    """Ingest, with progress on the terminal. Spark starts only if there is work for it."""
    from wirelake.lake.jobs.ingest import ingest as ingest_into  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.sources.paths import expand  # noqa: PLC0415

    files = expand(paths, [])  # a wrong path is an error before anything else happens
    with spark_on_demand(master, conf, lake, files) as (start, show):
        return ingest_into(
            start,
            lake,
            paths,
            options,  # type: ignore[arg-type]  # DecodeOptions or None
            ports=ports,
            late_seconds=late,
            trust=trust,
            freshness=freshness,
            keys=keys,
            keyring=keyring,
            observer=observer,
            again=again,
            strict=strict,
            gold=gold,
            progress=show,
        )


def _skipped(result: IngestResult) -> list[str]:
    """One line for each skipped file, up to a limit, with the source that it equals."""
    lines = []
    for path in result.skipped[:_MAX_NAMED]:
        like = result.likes.get(path)
        if like is None or like.path == path:
            lines.append(f"in the lake already: {path}")
        else:
            lines.append(f"in the lake already: {path} {'is the beginning of' if like.is_part else 'has the contents of'} {like.path}")
    more = len(result.skipped) - len(lines)
    return [*lines, f"in the lake already: {more:,} more files"] if more else lines


def print_result(result: IngestResult, lake: Path) -> None:
    """Print the outcome of an ingest to stderr."""
    for reason in result.unreadable:
        say(f"not read: {reason}")
    for path in result.changed:
        say(f"not read, because it changed since it was ingested (--again replaces it): {path}")
    for path, reason in result.failed.items():
        say(f"in quarantine, because it cannot be decoded: {path}: {reason}")
    for path in result.continued:
        say(f"read again from its first byte, because it ended in the middle of a record before: {path}")
    for path in result.reread:
        say(f"read again, because it shares connections: {path}")
    for line in _skipped(result):
        say(line)
    if result.differently:
        count = len(result.differently)
        say(f"{count} files are in the lake, decoded with other ports, limits or session keys: --again reads them with these")
    if result.batch is None:
        if result.skipped:
            say(f"nothing new: the lake has all {len(result.skipped)} files already")
        if result.built:
            say(f"refreshed: {', '.join(result.built)}")
        return
    say(
        f"{result.messages:,} messages from {result.files} files ({result.bytes:,} bytes) in {result.seconds:.1f} s"
        f"{f', {result.quarantined:,} rows in quarantine' if result.quarantined else ''}"
        f"{f', {len(result.skipped)} files were in the lake already' if result.skipped else ''}: {lake}"
    )
    say_unrecognised(result.unrecognised, lake)

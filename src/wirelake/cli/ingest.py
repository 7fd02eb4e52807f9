"""`wirelake ingest`: captures and recordings into a lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import decode_flags, limits_given, ports_given, spark_flags, spark_settings
from wirelake.cli.follow import run_follow
from wirelake.cli.key_files import keys_in
from wirelake.cli.spark_session import spark_work
from wirelake.cli.terminal import say, say_unrecognised
from wirelake.errors import UsageError
from wirelake.extras import LAKE, need
from wirelake.masking import mask

if TYPE_CHECKING:
    from wirelake.lake.jobs.ingest import IngestResult
    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["ingest", "run_ingest"]

_MAX_NAMED: Final = 20
"""Skipped files that are named; further ones are counted."""


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("paths", nargs=-1)
@decode_flags
@click.option(
    "--keys",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Keys: a trust file that packets are verified with, old ones too (see `wirelake keys`), or a log of wolpertinger's session keys"
    " that new texts are decrypted with; give it more than once.",
)
@spark_flags
@click.option(
    "--late",
    "late",
    type=click.FloatRange(min=0),
    help="Seconds after which an answer counts as late, 30 if not given: settled when the lake is made.",
)
@click.option("--again", "again", is_flag=True, help="Read PATHS from their first byte, in place of what the lake has of them.")
@click.option(
    "--strict", "strict", is_flag=True, help="Publish nothing if a file cannot be decoded: without it, that file goes to quarantine."
)
@click.option("--follow", "folder", type=click.Path(path_type=Path), help="Read the captures of this folder as they grow, until Ctrl-C.")
@click.option("--once", "once", is_flag=True, help="With --follow: read what is there, as if nothing more came, and stop.")
@click.option(
    "--every", "every", type=click.FloatRange(min=0), default=1.0, show_default=True, help="With --follow: seconds between two looks."
)
@click.option("--max-files", "max_files", type=click.IntRange(min=0), default=0, help="With --follow: files read at a time; 0 is no limit.")
@click.option("--max-bytes", "max_bytes", type=click.IntRange(min=0), default=0, help="With --follow: bytes read at a time; 0 is no limit.")
@click.option(
    "--settle",
    "settle",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="With --follow: seconds without a change after which a packed file, or one without a packet, is read.",
)
@click.option(
    "--gold-every",
    "gold_every",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="With --follow: seconds between two times that gold tables are brought up to date; 0: only at the end.",
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
    folder: Path | None,
    again: bool,
    strict: bool,
    **how: float,
) -> int:
    """Read captures and recordings into the tables of a lake, with Spark.

    \b
    LAKE   The lake's folder; made if it is not there.
    PATHS  Captures: files, folders (searched for .pcap, .pcapng, .cap, packed or not) or patterns;
           here, or elsewhere if fsspec reaches it (s3://…).

    What the lake has already is skipped: running this again changes nothing. Files that changed since are named and left alone; --again
    reads them, and files that other options are to take effect on (--port, --set, a key log). Without it, such options are refused where
    all files are there already. With a trust file for --keys all packets in the lake are judged by it, and PATHS may be left out. A log
    of session keys has lines of `wolpertinger KEY IV`, in hex. With --follow there are no PATHS: files of that folder are read as they
    grow, come and go.
    """
    said = [name for name in how if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    if folder is None and said:
        raise UsageError(f"--{said[0].replace('_', '-')} says how to follow a folder: name it with --follow")
    if again and not paths:
        raise UsageError("--again reads files again: name them")
    if strict and not paths:
        raise UsageError("--strict is about files to read: name them")
    if folder is not None and paths:
        raise UsageError("either captures to read or a folder to --follow")
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--follow {folder}: there is no such folder")
    if folder is not None and master and master.startswith("sc://"):
        raise UsageError(f"--master {mask(master)}: a folder cannot be followed through Spark Connect")
    store, keyring = keys_in(keys)
    if folder is None and not paths and store is None:
        raise UsageError("name captures to read, or a folder to --follow, or keys to verify with")
    need(*LAKE)
    from wirelake.lake.decode.decoder import DecodeOptions  # noqa: PLC0415 - needs the lake extra

    options = DecodeOptions(limits_given(settings)) if settings else None
    told = {
        "conf": spark_settings(conf),
        "ports": ports_given(port),
        "options": options,
        "late": late,
        "keys": store,
        "keyring": keyring,
    }
    if folder is not None:
        run_follow(lake, folder, how, master=master, **told)  # type: ignore[arg-type]  # the same names
        return ExitCode.OK
    result = run_ingest(lake, list(paths), master=master, again=again, strict=strict, **told)  # type: ignore[arg-type]  # the same names
    tell(result, lake)
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
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    again: bool = False,
    strict: bool = False,
) -> IngestResult:
    """Ingest, with progress on the terminal. Spark is started when all is well and there is work for it."""
    from wirelake.lake.jobs.ingest import ingest as ingest_into  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.sources.paths import expand  # noqa: PLC0415

    files = expand(paths, [])  # a wrong path is told before anything else
    with spark_work(master, conf, lake, files) as (start, show):
        return ingest_into(
            start,
            lake,
            paths,
            options,  # type: ignore[arg-type]  # DecodeOptions or None
            ports=ports,
            late_seconds=late,
            keys=keys,
            keyring=keyring,
            again=again,
            strict=strict,
            progress=show,
        )


def _skipped(result: IngestResult) -> list[str]:
    """One line for each file that was skipped, up to a limit, with the source that it equals."""
    lines = []
    for path in result.skipped[:_MAX_NAMED]:
        like = result.likes.get(path)
        if like is None or like.path == path:
            lines.append(f"in the lake already: {path}")
        else:
            lines.append(f"in the lake already: {path} {'is the beginning of' if like.is_part else 'has the contents of'} {like.path}")
    more = len(result.skipped) - len(lines)
    return [*lines, f"in the lake already: {more:,} more files"] if more else lines


def tell(result: IngestResult, lake: Path) -> None:
    """What an ingest did, for the person who ran it."""
    for reason in result.unreadable:
        say(f"left out: {reason}")
    for path in result.changed:
        say(f"changed since it was ingested, left alone: {path}")
    for path, reason in result.failed.items():
        say(f"in quarantine, because it cannot be decoded: {path}: {reason}")
    for path in result.continued:
        say(f"read from its first byte, because it ended in the middle of a record before: {path}")
    for path in result.reread:
        say(f"read again, too, because it shares connections: {path}")
    for line in _skipped(result):
        say(line)
    if result.differently:
        count = len(result.differently)
        say(f"{count} files were there already, decoded with other ports, limits or session keys: --again reads them with these")
    if result.batch is None:
        if result.skipped:
            say(f"nothing new: the lake has all {len(result.skipped)} files already")
        if result.built:
            say(f"built anew: {', '.join(result.built)}")
        return
    say(
        f"{result.messages:,} messages from {result.files} files ({result.bytes:,} bytes) in {result.seconds:.1f} s"
        f"{f', {result.quarantined:,} stretches in quarantine' if result.quarantined else ''}"
        f"{f', {len(result.skipped)} files were there already' if result.skipped else ''}: {lake}"
    )
    say_unrecognised(result.unrecognised, lake)

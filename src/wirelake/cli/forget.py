"""`wirelake forget`: remove sources from a lake."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import decode_flags, limits_given, ports_given, spark_flags, spark_settings
from wirelake.cli.key_files import keys_in
from wirelake.cli.spark_session import spark_on_demand
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import LAKE, need

__all__ = ["forget"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@decode_flags
@click.option("--keys", "keys", multiple=True, type=click.Path(path_type=Path), help="A file with keys that decrypt; see --port.")
@spark_flags
def forget(
    lake: Path,
    sources: tuple[str, ...],
    port: tuple[str, ...],
    settings: tuple[str, ...],
    keys: tuple[Path, ...],
    master: str | None,
    conf: tuple[str, ...],
) -> int:
    """Remove sources from a lake, with their rows in all tables, the ledger included.

    \b
    LAKE    The lake's folder.
    SOURCE  A capture that was ingested: its path or its id, as columns source and source_id of the table
            ledger show them, or its file name if only one source has it.

    The removal is one batch: all sources go, or none. Readers see the lake as it was until gold tables are rebuilt without them. A source
    may share a connection with a removed one, and was decoded together with it. It is read again with the options given here, which are
    those of `wirelake ingest`. Its file must still exist. The captures themselves are not deleted.
    """
    store, keyring = keys_in(keys)
    if store is not None and not store.encryption:
        raise UsageError("--keys: a trust file has no effect on forget: give it to `wirelake ingest LAKE --keys FILE`")
    need(*LAKE)
    from wirelake.lake.decode.decoder import DecodeOptions  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.jobs.forget import forget as forget_in  # noqa: PLC0415

    options = DecodeOptions(limits_given(settings)) if settings else None
    with spark_on_demand(master, spark_settings(conf), lake) as (start, show):
        result = forget_in(start, lake, sources, options, ports=ports_given(port), keys=store, keyring=keyring, progress=show)
    from wirelake.explore.comments import prune  # noqa: PLC0415 - needs the lake extra

    if (gone_comments := prune(lake)) > 0:
        say(f"comments about {gone_comments} of its messages and sessions removed")
    for path in result.reread:
        say(f"read again, because it shares connections: {path}")
    gone = sorted({*result.removed} - {*result.reread})
    for path in gone:
        print(path)
    say(f"{len(gone)} source{'' if len(gone) == 1 else 's'} removed in {result.seconds:.1f} s: {lake}")
    return ExitCode.OK

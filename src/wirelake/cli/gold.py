"""`wirelake gold`: refresh the gold tables of a lake."""

from __future__ import annotations

from pathlib import Path

import click

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.flags import spark_flags, spark_settings
from wirelake.cli.key_files import keys_in
from wirelake.cli.spark_session import spark_on_demand
from wirelake.cli.terminal import say
from wirelake.errors import UsageError
from wirelake.extras import LAKE, need

__all__ = ["gold"]


@click.command()
@click.argument("lake", type=click.Path(path_type=Path))
@click.option("--keys", "keys", multiple=True, type=click.Path(path_type=Path), help="A trust file, to verify all packets in the lake.")
@spark_flags
def gold(lake: Path, keys: tuple[Path, ...], master: str | None, conf: tuple[str, ...]) -> int:
    """Refresh the gold tables of a lake, after ingests with --no-gold.

    \b
    LAKE  The lake's folder.

    The command is idempotent: without new batches it changes nothing, and starts no Spark.
    """
    store, keyring = keys_in(keys)
    if keyring is not None or (store is not None and store.only_opens):
        raise UsageError("--keys: keys that decrypt have no effect here: give them to `wirelake ingest LAKE PATHS`")
    need(*LAKE)
    from wirelake.lake.jobs.ingest import refresh_gold  # noqa: PLC0415 - needs the lake extra

    with spark_on_demand(master, spark_settings(conf), lake) as (start, show):
        result = refresh_gold(start, lake, keys=store, progress=show)
    say(f"refreshed: {', '.join(result.built)}" if result.built else "nothing to do: the gold tables have all batches")
    return ExitCode.OK

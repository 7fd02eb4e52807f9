"""Spark from the terminal: started on demand, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from wirelake.cli.logs import quiet
from wirelake.cli.progress import Progress
from wirelake.cli.terminal import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wirelake.lake.jobs.ingest import Progress as Step

__all__ = ["spark_on_demand"]


@contextmanager
def spark_on_demand(
    master: str | None, conf: dict[str, str] | None, lake: Path, files: Iterable[str] = ()
) -> Iterator[tuple[Callable[[], SparkSession], Callable[[Step], None]]]:
    """Yield a function that starts Spark for a job on a lake and files, and one that shows progress."""
    from wirelake.lake.session import java  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.session import settings as session_settings  # noqa: PLC0415
    from wirelake.lake.session import start as session_start  # noqa: PLC0415
    from wirelake.lake.store import delta  # noqa: PLC0415
    from wirelake.lake.store.folder import lake_folder  # noqa: PLC0415
    from wirelake.lake.tables import messages  # noqa: PLC0415

    if session_settings.is_local(session_start.place(master or (conf or {}).get("spark.master"))):
        conf = session_settings.for_one_ingest(delta.size(lake_folder(lake), messages.TABLE), files) | (conf or {})

    quiet("py4j")  # it logs Ctrl-C as an error of its own
    with Progress() as progress:

        def start() -> SparkSession:
            progress.step("")  # ends the line of the last step before another one is printed
            if not session_start.is_submitted():
                say(f"Java: {java.find()}")
            progress.step(f"starting Spark ({session_start.place(master)})")
            return session_start.spark_session(master, conf)

        def show(step: Step) -> None:
            progress.step(step.text)
            progress.at(step.done, step.total)

        yield start, show

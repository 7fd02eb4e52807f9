"""Work with Spark in the terminal: it starts when the work needs it, and its progress is shown."""

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

    from wirelake.lake.ingest import Progress as Step

__all__ = ["spark_work"]


@contextmanager
def spark_work(
    master: str | None, conf: dict[str, str] | None, lake: Path, files: Iterable[str] = ()
) -> Iterator[tuple[Callable[[], SparkSession], Callable[[Step], None]]]:
    """A function that starts Spark for work on a lake and files, and one that shows progress."""
    from wirelake.lake import haste, java, spark, tuning  # noqa: PLC0415 - needs the lake extra
    from wirelake.lake.listing import lake_folder  # noqa: PLC0415

    if tuning.is_local(spark.place(master or (conf or {}).get("spark.master"))):
        conf = haste.for_one_ingest(lake_folder(lake), files) | (conf or {})

    quiet("py4j")  # it logs Ctrl-C as an error of its own
    with Progress() as progress:

        def start() -> SparkSession:
            progress.step("")  # the line of the last step is left before another one is printed
            if not spark.is_submitted():
                say(f"Java: {java.find()}")
            progress.step(f"starting Spark ({spark.place(master)})")
            return spark.session(master, conf)

        def show(step: Step) -> None:
            progress.step(step.text)
            progress.at(step.done, step.total)

        yield start, show

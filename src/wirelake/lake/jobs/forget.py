"""Forget: remove sources and their rows from a lake, as one atomic batch.

Rows leave the silver tables and the ledger; gold tables are rebuilt from the rest. Until then readers see the lake as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from wirelake import protocols
from wirelake.errors import LakeError
from wirelake.lake.decode.decoder import DecodeOptions
from wirelake.lake.jobs.ingest import Decoding, IngestResult, Progress, run_job
from wirelake.lake.sources import intake
from wirelake.lake.store import decode_settings, folder, journal
from wirelake.lake.store.folder import lake_folder

if TYPE_CHECKING:
    from os import PathLike

    from wirelake.protocols.event_mesh.security.trust import TrustStore
    from wirelake.protocols.wolpertinger.trust.keyring import Keyring

__all__ = ["forget"]


def forget(
    spark: SparkSession | Callable[[], SparkSession],
    lake: str | PathLike[str],
    sources: Iterable[str],
    options: DecodeOptions | None = None,
    *,
    ports: dict[int, str] | None = None,
    keys: TrustStore | None = None,
    keyring: Keyring | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> IngestResult:
    """Remove sources from a lake: by path, by id in hex, or by a file name that only one of them has.

    A source that shares a connection with a removed one, and was decoded together with it, is read again with these options. Raises
    LakeError, and changes nothing, if a source is unknown or cannot be read again.
    """
    root, names = lake_folder(lake), list(sources)
    if not journal.check(root):
        raise LakeError(f"{lake} is not a lake")
    folder.claim(root)
    decoding = Decoding(options or DecodeOptions(), dict(ports or protocols.ports()), keys, keyring)

    def plan() -> intake.Plan:
        removal = intake.forget(root, names)
        others = {source.path: source.id for source in removal.fresh}
        for path in decode_settings.differently(root, others, decoding.fingerprint, certain=True):
            raise LakeError(
                f"{path} has to be read again, because it shares connections: give the ports, limits and keys it was decoded with"
            )
        return removal

    return run_job(spark, root, "forget", names, plan, decoding, progress=progress)

"""A Spark home whose Python workers start faster: they import the installed PySpark.

Spark puts an archive of PySpark's sources first on the path of every worker. Python compiles what it imports from an archive in every
process again. An ingest has a dozen workers, most of which live for a second. A Spark home without the archive leaves them the installed
package: the same code, compiled once. A home that the user chose stays as it is.
"""

from __future__ import annotations

import os
import site
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["lean"]


@contextmanager
def lean(folder: Path) -> Iterator[None]:
    """Let Spark that is started in here have such a home, made in `folder`.

    If that is not possible, it keeps the one it has.
    """
    if "SPARK_HOME" in os.environ or not _is_found_by_workers():
        yield
        return
    real = _pyspark()
    folder.mkdir(parents=True, exist_ok=True)
    for part in real.iterdir():
        if part.name != "python":
            (folder / part.name).symlink_to(part)
    os.environ["SPARK_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _pyspark() -> Path:
    import pyspark  # noqa: PLC0415 - only Spark work pays for importing Spark

    return Path(pyspark.__file__).parent


def _is_found_by_workers() -> bool:
    """Whether an interpreter without further settings finds the package that runs now."""
    fixed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages() if site.ENABLE_USER_SITE else ""]
    told = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return str(_pyspark().parent) in {*fixed, *told}

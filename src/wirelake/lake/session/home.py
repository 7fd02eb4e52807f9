"""A Spark home whose Python workers start faster: they import the installed PySpark.

Spark puts an archive of PySpark's sources first on the path of every worker. Python compiles what it imports from an archive in every
process again. An ingest has a dozen workers, most of which live for a second. A Spark home without the archive leaves them the installed
package: the same code, compiled once. A home that the user chose stays as it is.
"""

from __future__ import annotations

import os
import shutil
import site
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from wirelake.cache_folder import cache_folder
from wirelake.errors import MissingExtra

__all__ = ["lean"]


@contextmanager
def lean(scratch: Path) -> Iterator[Path | None]:
    """Let Spark that is started in here have such a home, and yield it if it is the same every time.

    It lies in the user's cache folder, or else in `scratch`. If neither is possible, Spark keeps the home it has.
    """
    if "SPARK_HOME" in os.environ or not _is_found_by_workers():
        yield None
        return
    lasting = _lasting()
    folder = lasting or _linked(scratch)
    os.environ["SPARK_HOME"] = str(folder)
    try:
        yield lasting
    finally:
        del os.environ["SPARK_HOME"]


def _lasting() -> Path | None:
    """The home in the user's cache folder; None if there is none."""
    cache = cache_folder("spark")
    if cache is None:
        return None
    real = _pyspark()
    folder = cache / sha256(f"{real}\n{_version()}".encode()).hexdigest()[:16]
    if not (folder / "jars").is_dir():
        draft = cache / f"{folder.name}-{os.getpid()}"
        try:
            shutil.rmtree(folder, ignore_errors=True)  # links of a PySpark that is gone
            _linked(draft).rename(folder)
        except OSError:  # another process was faster, or the disk is full
            shutil.rmtree(draft, ignore_errors=True)
    return folder if (folder / "jars").is_dir() else None


def _linked(folder: Path) -> Path:
    """Make a folder with links to all parts of the installed PySpark but the archive."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in _pyspark().iterdir():
        if part.name != "python":
            (folder / part.name).symlink_to(part)
    return folder


def _pyspark() -> Path:
    """The folder of PySpark, which is not imported for it: the JVM starts first."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingExtra("pyspark", "lake")
    return Path(spec.origin).parent


def _version() -> str:
    """Something that changes with the version of PySpark."""
    return (_pyspark() / "version.py").read_text()


def _is_found_by_workers() -> bool:
    """Whether an interpreter without further settings finds the package that runs now."""
    fixed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages() if site.ENABLE_USER_SITE else ""]
    told = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return str(_pyspark().parent) in {*fixed, *told}

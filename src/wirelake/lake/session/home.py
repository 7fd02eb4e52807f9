"""A Spark home that starts faster: workers import the installed PySpark, and MLlib registers nothing.

Spark puts an archive of PySpark's sources first on the path of every worker. Python compiles what it imports from an archive in every
process again. An ingest has a dozen workers, most of which live for a second. A Spark home without the archive leaves them the installed
package: the same code, compiled once.

The jar of MLlib registers two functions in every session, `vector_to_array` and `array_to_vector`. For that it starts Scala's reflection,
which is a third of the CPU that a session takes to start. So this home has a copy of the jar that does not register them. `EXTENSION`
does it on demand.

A home that the user chose stays as it is.
"""

from __future__ import annotations

import os
import shutil
import site
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from wirelake.cache_folder import cache_folder
from wirelake.errors import MissingExtra

__all__ = ["EXTENSION", "lean"]

EXTENSION: Final = "org.apache.spark.sql.ml.InternalFunctionRegistration"
"""The value of `spark.sql.extensions` that registers the functions of MLlib."""
_REGISTRATION: Final = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
"""The file in a jar that names `EXTENSION`, so that every session loads it."""
_MLLIB: Final = "spark-mllib_*.jar"


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
    key = f"{real}\n{_version()}\n{(real / 'jars').stat().st_mtime_ns}\n{_REGISTRATION}"  # a jar that was added is part of it
    folder = cache / sha256(key.encode()).hexdigest()[:16]
    if not _has_jars(folder):
        draft = cache / f"{folder.name}-{os.getpid()}"
        try:
            shutil.rmtree(folder, ignore_errors=True)  # links of a PySpark that is gone
            _linked(draft)
            _quicken(draft / "jars")
            draft.rename(folder)
        except (OSError, zipfile.BadZipFile):  # another process was faster, or the disk is full
            shutil.rmtree(draft, ignore_errors=True)
    return folder if _has_jars(folder) else None


def _has_jars(folder: Path) -> bool:
    """Whether a home is complete, and its links lead somewhere."""
    return any(jar.is_file() for jar in (folder / "jars").glob("spark-core_*.jar"))


def _linked(folder: Path) -> Path:
    """Make a folder with links to all parts of the installed PySpark but the archive."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in _pyspark().iterdir():
        if part.name != "python":
            (folder / part.name).symlink_to(part)
    return folder


def _quicken(jars: Path) -> None:
    """Make `jars`, a link to a folder, a folder of links, with a copy of MLlib that registers nothing."""
    real = jars.resolve(strict=True)
    jars.unlink()
    jars.mkdir()
    for jar in real.iterdir():
        if not jar.match(_MLLIB):
            (jars / jar.name).symlink_to(jar)
            continue
        with zipfile.ZipFile(jar) as source, zipfile.ZipFile(jars / jar.name, "w") as copy:
            for entry in source.infolist():
                if entry.filename != _REGISTRATION:
                    copy.writestr(entry.filename, source.read(entry))


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

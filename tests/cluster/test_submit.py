"""`spark-submit`: with the package installed on the executors, and with an environment shipped to them as an archive."""

import os
import shutil
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest
from tests.cluster.conftest import ROOT, SMALL, driver, finish, started
from tests.lake.hashing import hashes

from wirelake.lake.session import java

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = str(ROOT / "examples" / "submit.py")


def submit(folder: Path, *words: str):
    """Run spark-submit in a folder of its own; Spark prints all that the driver says."""
    home = java.home(java.find(), folder / "java", folder / "java.log")
    told = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--conf", "spark.driver.host=127.0.0.1", *SMALL, *words]
    return started(folder / "cwd", *command, **told)


def test_the_package_is_installed_on_the_executors(cluster, captures, local, tmp_path):
    python = f"spark.pyspark.python={sys.executable}"
    process = submit(tmp_path, "--master", cluster.url, "--conf", python, SUBMIT, "ingest", str(tmp_path / "lake"), str(captures))
    out, _ = finish(process)
    assert "starting Spark (spark-submit): done" in out
    assert hashes(tmp_path / "lake") == local


def archived(folder: Path, used: Path) -> Path:
    """A stand-in for a packed environment, and the folder it was made of.

    Its interpreter is a script, and the libraries are those that are here; its package tells where it was imported from.
    """
    made = folder / "environment"
    shutil.copytree(ROOT / "src" / "wirelake", made / "lib" / "wirelake", ignore=shutil.ignore_patterns("__pycache__"))
    with (made / "lib" / "wirelake" / "__init__.py").open("a") as package:
        package.write(f"\nwith open({os.fspath(used)!r}, 'a') as used:\n    used.write(__file__ + '\\n')\n")
    python = made / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/lib:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        for name in ("bin", "lib"):
            archive.add(made / name, name)
    return made


def places(used: Path, made: Path) -> set[Path]:
    """The folders of executors in which the package was imported."""
    return {Path(line).parents[3] for line in used.read_text().splitlines()} - {made.parent}


@pytest.mark.parametrize("way", ["spark-submit", "wirelake"])
def test_the_environment_is_shipped_as_an_archive(bare_cluster, captures, local, tmp_path, way):
    """As docs/cluster.md has it, to executors that have neither the package nor a path to it."""
    cwd, used = tmp_path / "cwd", tmp_path / "used"
    made = archived(cwd, used)
    lake, shipped, python = str(tmp_path / "lake"), "environment.tar.gz#environment", "spark.pyspark.python=./environment/bin/python"
    if way == "spark-submit":
        words = ("--master", bare_cluster.url, "--archives", shipped, "--conf", python, SUBMIT, "ingest", lake, str(captures))
        process = submit(tmp_path, "--conf", f"spark.pyspark.driver.python={sys.executable}", *words)
    else:
        words = ("ingest", lake, str(captures), "--master", bare_cluster.url, "--conf", f"spark.archives={shipped}", "--conf", python)
        process = driver(cwd, "-m", "wirelake.cli.main", *words, *SMALL)
    finish(process)
    assert hashes(tmp_path / "lake") == local
    assert {place.parent.parent.name for place in places(used, made)} <= {"one", "two"}
    assert places(used, made), "no executor imported the package of the archive"

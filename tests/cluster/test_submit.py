"""`spark-submit`: with the package installed on the executors, and with an environment shipped to them as an archive."""

import os
import shutil
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest
from tests.cluster.conftest import ROOT, SMALL, finish, started
from tests.lake.hashing import hashes

from wirelake.lake import java

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent
SUBMIT = str(ROOT / "examples" / "submit.py")


def submit(folder: Path, *words: str):
    """Run spark-submit in a folder of its own."""
    home = java.home(java.find(), folder / "java", folder / "java.log")
    told = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--conf", "spark.driver.host=127.0.0.1", *SMALL, *words]
    return started(folder / "cwd", *command, **told)


def test_the_package_is_installed_on_the_executors(cluster, captures, local, tmp_path):
    python = f"spark.pyspark.python={sys.executable}"
    process = submit(tmp_path, "--master", cluster.url, "--conf", python, SUBMIT, "ingest", str(tmp_path / "lake"), str(captures))
    _, talk = finish(process)
    assert "starting Spark (spark-submit): done" in talk
    assert hashes(tmp_path / "lake") == local


def test_the_environment_is_shipped_as_an_archive(cluster, captures, local, tmp_path):
    """The archive has an interpreter that tells where it ran, and the package; the libraries are those that are here."""
    made, used = tmp_path / "cwd" / "environment", tmp_path / "used"
    shutil.copytree(ROOT / "src" / "wirelake", made / "lib" / "wirelake", ignore=shutil.ignore_patterns("__pycache__"))
    python = made / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\nhere=$(cd "$(dirname "$0")/.." && pwd)\necho "$here" >> {used}\n'
        f'PYTHONPATH="$here/lib:$PYTHONPATH" exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        for name in ("bin", "lib"):
            archive.add(made / name, name)
    shipped = ("--archives", f"{tmp_path / 'environment.tar.gz'}#environment", "--conf", "spark.pyspark.python=./environment/bin/python")
    driver = ("--conf", f"spark.pyspark.driver.python={sys.executable}")
    finish(submit(tmp_path, "--master", cluster.url, *shipped, *driver, SUBMIT, "ingest", str(tmp_path / "lake"), str(captures)))
    assert hashes(tmp_path / "lake") == local
    places = {Path(line) for line in used.read_text().splitlines()}
    assert places - {made}, "no executor ran the interpreter of the archive"
    assert os.fspath(made.parent) not in {os.fspath(place.parent) for place in places - {made}}

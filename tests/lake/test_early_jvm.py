"""A JVM that starts before Spark is imported: what it is told, how Spark finds it, and how it ends."""

from __future__ import annotations

import os
import time

import pytest

from wirelake.lake.session import early_jvm
from wirelake.lake.session.early_jvm import EarlyJvm


@pytest.fixture
def java(tmp_path):
    """A Java that notes its arguments, is ready at once, and ends with its standard input."""
    path = tmp_path / "java"
    path.write_text(
        f"#!/bin/sh\nfor argument do echo \"$argument\"; done >'{tmp_path}/arguments'\necho $PYTHONHASHSEED >'{tmp_path}/seed'\n"
        "printf '\\000\\000\\037\\220\\000\\000\\000\\005token' >\"$_PYSPARK_DRIVER_CONN_INFO_PATH.new\"\n"
        'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"\n'
        f"cat\necho ended >'{tmp_path}/ended'\n"
    )
    path.chmod(0o700)
    return path


def test_spark_joins_it_by_port_and_secret(java, tmp_path):
    jvm = EarlyJvm([str(java), "-Xmx1g", "Main"], {"spark.master": "local[2]", "spark.x": "a b"}, tmp_path)
    assert jvm.is_ready()
    with jvm.joined():
        assert (os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]) == ("8080", "token")
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"} & set(os.environ)
    words = ["-Xmx1g", "Main", "--conf", "spark.master=local[2]", "--conf", "spark.x=a b", "pyspark-shell"]
    assert (tmp_path / "arguments").read_text().splitlines() == words
    assert (tmp_path / "seed").read_text() == "0\n"
    assert not (tmp_path / "gateway").exists()
    jvm.end()
    assert (tmp_path / "ended").exists()
    assert jvm not in early_jvm._running


def test_one_that_ends_at_once_is_not_joined(tmp_path):
    jvm = EarlyJvm(["false"], {}, tmp_path)
    assert not jvm.is_ready()
    assert jvm not in early_jvm._running


def test_it_lives_as_long_as_nobody_ends_it(java, tmp_path):
    EarlyJvm([str(java)], {}, tmp_path)
    jvm = early_jvm._running[-1]
    assert jvm.is_ready()
    time.sleep(0.1)
    assert not (tmp_path / "ended").exists()
    jvm.end()

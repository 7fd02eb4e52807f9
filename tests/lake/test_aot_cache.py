"""The ahead-of-time cache of the JVM: made once, used by all later sessions, and never in the way. Here with a Java of our own."""

import os
import subprocess
import time
import zipfile

import pytest

from wirelake.lake.session import aot_cache, home, java
from wirelake.lake.session.java import Java

JAVA = """\
#!/bin/sh
echo "<$*>"
for argument do
    case "$argument" in
        -XX:AOTCacheOutput=*) printf classes > "${argument#-XX:AOTCacheOutput=}" ;;
    esac
done
exit 3
"""


@pytest.fixture
def new_java(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(aot_cache.SWITCH, raising=False)
    executable = tmp_path / "java 25"
    executable.write_text(JAVA)
    executable.chmod(0o700)
    return Java(str(executable), 25, "PATH")


@pytest.fixture
def spark_home(tmp_path):
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "spark"


def run(tmp_path, found, cache, *arguments):
    kept = (cache.draft, cache.path) if cache.draft else None
    made = java.home(found, tmp_path / "home", tmp_path / "spark.log", flags=cache.flags, kept=kept)
    return subprocess.run([made / "bin" / "java", *arguments], capture_output=True, text=True, timeout=60)


def test_the_first_session_makes_the_cache_and_the_next_one_uses_it(new_java, spark_home, tmp_path):
    first = aot_cache.find(new_java, spark_home, "-Xss4m")
    assert first.draft is not None
    assert run(tmp_path, new_java, first, "SparkSubmit").returncode == 3
    assert first.path.read_text() == "classes"
    second = aot_cache.find(new_java, spark_home, "-Xss4m")
    assert list(first.path.parent.iterdir()) == [first.path]
    assert (second.path, second.draft) == (first.path, None)
    assert f"-XX:AOTCache={first.path}" in run(tmp_path, new_java, second, "SparkSubmit").stdout


def test_one_session_at_a_time_makes_the_cache(new_java, spark_home, monkeypatch):
    assert aot_cache.find(new_java, spark_home, "").draft is not None
    assert aot_cache.find(new_java, spark_home, "") is None
    assert aot_cache.find(new_java, spark_home, "-Xss4m").draft is not None
    monkeypatch.setattr(aot_cache, "MAKING_SECONDS", 0.0)  # the first one was killed
    assert aot_cache.find(new_java, spark_home, "").draft is not None


def test_the_jvm_that_only_prints_a_command_has_no_flags(new_java, spark_home, tmp_path):
    """Spark reads its output."""
    cache = aot_cache.find(new_java, spark_home, "")
    said = run(tmp_path, new_java, cache, "-cp", "x", "org.apache.spark.launcher.Main", "SparkSubmit")
    assert said.stdout == "<-cp x org.apache.spark.launcher.Main SparkSubmit>\n"
    assert not cache.path.exists()


def test_other_flags_another_java_or_another_pyspark_get_another_cache(new_java, spark_home, tmp_path):
    def path(flags=""):
        return aot_cache.find(new_java, spark_home, flags).path

    before = path()
    assert path("-Xss4m") != before
    os.utime(new_java.executable, ns=(1, 1))
    changed = path()
    os.utime(spark_home / "jars", ns=(1, 1))
    assert len({before, changed, path()}) == 3


@pytest.mark.parametrize("options", ["-XX:AOTCache=/mine", "-XX:AOTMode=off"])
def test_flags_of_the_user_come_first(new_java, spark_home, options):
    assert aot_cache.find(new_java, spark_home, options) is None


def test_no_cache_without_java_25_or_where_it_is_switched_off(new_java, spark_home, monkeypatch):
    assert aot_cache.find(Java(new_java.executable, 24, "PATH"), spark_home, "") is None
    monkeypatch.setenv(aot_cache.SWITCH, "off")
    assert aot_cache.find(new_java, spark_home, "") is None


def test_no_cache_where_nothing_can_be_written(new_java, spark_home, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert aot_cache.find(new_java, spark_home, "") is None


def test_no_cache_is_made_on_a_full_disk(new_java, spark_home, monkeypatch):
    monkeypatch.setattr(aot_cache, "LEAST_FREE", 1 << 62)
    assert aot_cache.find(new_java, spark_home, "") is None


def test_old_caches_and_drafts_are_deleted(new_java, spark_home):
    folder = aot_cache.find(new_java, spark_home, "").path.parent
    for age, name in enumerate(["a.aot", "b.aot", "c.aot", "d.aot", "e.aot", "f-1.new", "f-1.new.config", "f.making"]):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - 7200 - age, time.time() - 7200 - age))
    (folder / "g-1.new").touch()
    other = aot_cache.find(new_java, spark_home, "other").path.with_suffix(".making")
    assert other.exists()
    kept = {path.name for path in folder.iterdir() if path.suffix != ".making"}
    assert kept == {"a.aot", "b.aot", "c.aot", "g-1.new"}
    assert not (folder / "f.making").exists()


@pytest.fixture
def pyspark(tmp_path, monkeypatch):
    """An installed PySpark, as far as a Spark home is concerned."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "pyspark"
    for part in ("bin", "jars", "python"):
        (folder / part).mkdir(parents=True)
    (folder / "version.py").write_text("4.3")
    (folder / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    with zipfile.ZipFile(folder / "jars" / "spark-mllib_2.13-4.3.0.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0")
        jar.writestr("META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider", home.EXTENSION)
        jar.writestr("org/apache/spark/ml/linalg.class", b"class")
    monkeypatch.setattr(home, "_pyspark", lambda: folder)
    return folder


def test_a_spark_home_lasts_and_is_made_again_when_its_links_are_broken(pyspark, tmp_path):
    with home.lean(tmp_path / "scratch") as first:
        assert os.environ["SPARK_HOME"] == str(first)
        assert not (first / "python").exists()
        assert (first / "jars" / "spark-core_2.13-4.3.0.jar").is_file()
    assert "SPARK_HOME" not in os.environ
    jar = first / "jars" / "spark-core_2.13-4.3.0.jar"
    jar.unlink()
    jar.symlink_to(tmp_path / "gone")
    with home.lean(tmp_path / "scratch") as second:
        assert second == first
        assert jar.is_file()


def test_mllib_registers_no_functions_in_a_spark_home(pyspark, tmp_path):
    with home.lean(tmp_path / "scratch") as folder, zipfile.ZipFile(folder / "jars" / "spark-mllib_2.13-4.3.0.jar") as jar:
        assert jar.namelist() == ["META-INF/MANIFEST.MF", "org/apache/spark/ml/linalg.class"]
        assert jar.read("org/apache/spark/ml/linalg.class") == b"class"
        assert not list(folder.parent.glob("*-*"))


def test_a_jar_that_was_added_to_pyspark_has_another_spark_home(pyspark, tmp_path):
    with home.lean(tmp_path / "scratch") as before:
        assert before is not None
    (pyspark / "jars" / "delta.jar").touch()
    os.utime(pyspark / "jars", ns=(1, 1))
    with home.lean(tmp_path / "scratch") as after:
        assert after != before
        assert (after / "jars" / "delta.jar").is_file()


def test_a_spark_home_is_made_once(pyspark, tmp_path, monkeypatch):
    with home.lean(tmp_path / "scratch") as first:
        assert first is not None
    monkeypatch.delattr(home, "_quicken")
    with home.lean(tmp_path / "scratch") as second:
        assert second == first


def test_a_jar_that_cannot_be_read_leaves_spark_as_it_is(pyspark, tmp_path):
    (pyspark / "jars" / "spark-mllib_2.13-4.3.0.jar").write_bytes(b"no jar")
    with home.lean(tmp_path / "scratch") as lasting:
        assert lasting is None
        assert (tmp_path / "scratch" / "jars" / "spark-mllib_2.13-4.3.0.jar").is_file()
    assert not list((tmp_path / "cache" / "wirelake" / "spark").iterdir())


def test_a_spark_home_without_a_cache_folder_lies_in_the_scratch_folder(pyspark, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with home.lean(tmp_path / "scratch") as lasting:
        assert lasting is None
        assert os.environ["SPARK_HOME"] == str(tmp_path / "scratch")

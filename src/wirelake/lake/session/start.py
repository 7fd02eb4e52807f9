"""Start a Spark session, and with it the JVM: interpreter, Java, settings, scratch folder.

Starting the JVM takes seconds, so only Spark work calls this. Importing this module does not import Spark.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from wirelake import scratch
from wirelake.errors import LakeError, MissingExtra
from wirelake.extras import need
from wirelake.lake.session import aot_cache, java, launch
from wirelake.lake.session import home as session_home
from wirelake.lake.session import settings as session_settings
from wirelake.lake.session.early_jvm import EarlyJvm
from wirelake.lake.session.settings import SHORT_SESSION
from wirelake.masking import keep_secret, keep_secrets, looks_secret, mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOCAL_MASTER", "SHORT_SESSION", "activate", "is_connect", "is_submitted", "place", "set_for_now", "spark_session", "suited"]

LOCAL_MASTER: Final = "local[*]"
"""The default master: driver and executors in one JVM on this machine, on all cores."""
CONNECT_PORT: Final = 15002
"""Default port of a Spark Connect server."""
CONNECT_SECONDS: Final = 10.0
TOKEN: Final = "WIRELAKE_TOKEN"  # noqa: S105 - a name
"""The environment variable with the token of a Spark Connect server."""
_TRIES: Final = 10
_TRY_SECONDS: Final = 0.2
"""How often, and at what interval, a connection to the JVM is tried."""


def is_submitted() -> bool:
    """Whether `spark-submit` started this process: then the JVM runs already, and has its settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def place(master: str | None) -> str:
    """Return where Spark is going to run, for messages."""
    return mask(master) if master else "spark-submit" if is_submitted() else LOCAL_MASTER


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread, because Spark finds data sources only there.

    A new or interrupted thread has none. An interrupt closes the connection to the JVM, which may close the next one with it: then it is
    tried again.
    """
    from py4j.protocol import Py4JNetworkError  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql.types import StructType  # noqa: PLC0415

    for left in reversed(range(_TRIES)):
        try:
            spark.createDataFrame([], StructType())  # the one public call that does it
        except Py4JNetworkError:
            if not left:
                raise
            time.sleep(_TRY_SECONDS)
        else:
            return


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session, and restore them afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    except KeyboardInterrupt:
        activate(spark)
        raise
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


@contextmanager
def suited(spark: SparkSession) -> Iterator[None]:
    """Let a session that the caller started find our data sources and write times as a lake needs.

    Restores it afterwards.
    """
    activate(spark)
    with set_for_now(spark, session_settings.NEEDED):
        yield


def _complaint(log: Path) -> str:
    """Return the first error in the JVM's log, in one line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    except OSError:
        return ""
    blamed = [line for line in lines if "Exception" in line or line.startswith(("Error", "Invalid", "Unrecognized"))]
    return f": {(blamed or lines)[0]}" if lines else ""


def spark_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session of this process; start the JVM if there is none.

    Settings come from `session/settings.py`; `conf` and the options of `spark-submit` override them. A master `sc://host:port` is a
    Spark Connect server, whose token may be in the environment as WIRELAKE_TOKEN.
    """
    keep_secrets(conf or {})
    need("pyspark")
    if (running := _running()) is not None:
        return running
    if master and master.startswith("sc://"):
        return _connect(master, conf or {})

    home = scratch.folder("spark")
    overrides = dict(conf or {}) | ({"spark.master": master} if master else {})
    if is_submitted():
        overrides = _submitted() | overrides
        return _start(_prepared(overrides, home), "with spark-submit", home / "spark.log")
    overrides.setdefault("spark.master", LOCAL_MASTER)
    chosen, log = java.find(), home / "spark.log"
    # Workers on other machines have their own Spark home, and an interpreter that the caller chose may have no PySpark.
    is_ours = session_settings.is_local(overrides["spark.master"]) and "spark.pyspark.python" not in overrides
    with session_home.lean(home / "spark") if is_ours else nullcontext() as lasting:
        cache = aot_cache.find(chosen, lasting, overrides.get("spark.driver.extraJavaOptions", "")) if lasting else None
        flags, kept = (cache.flags, (cache.draft, cache.path) if cache.draft else None) if cache else ([], None)
        settings = _prepared(overrides, home)
        command = launch.find(chosen, lasting, settings, home) if lasting else None
        folder = java.home(chosen, home / "java", log, flags=flags, kept=kept, printed=command.printed if command else None)
        with _java_home(folder):
            if command is not None and command.printed is None:
                early = EarlyJvm([str(folder / "bin" / "java"), *command.words()], settings, home)
                _import_spark()
                if early.is_ready():
                    with _ended_on_failure(early), early.joined():
                        return _start(settings, f"with {chosen}", log)
                command.forget()
            started = _start(settings, f"with {chosen}", log)
        if command is not None:
            command.keep()
        return started


def _running() -> SparkSession | None:
    """Return the session of this process, if there is one: then Spark is imported already."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only Spark work pays for importing Spark

    return SparkSession.getActiveSession()


def _import_spark() -> None:
    """Import what the first call of the JVM imports, too, while the JVM starts."""
    import pyspark.sql  # noqa: PLC0415 - only Spark work pays for importing Spark
    import pyspark.testing.utils  # noqa: F401, PLC0415 - PySpark asks it whether there is NumPy


@contextmanager
def _ended_on_failure(jvm: EarlyJvm) -> Iterator[None]:
    try:
        yield
    except BaseException:
        jvm.end()
        raise


@contextmanager
def _java_home(folder: Path) -> Iterator[None]:
    """Let the JVM that is started in here be that of `folder`."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _connect(address: str, conf: Mapping[str, str]) -> SparkSession:
    """Connect to a Spark Connect server. It has settings of its own: only those of a session are set."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only Spark work pays for importing Spark
    from pyspark.sql import SparkSession  # noqa: PLC0415

    address = _with_token(address)
    shown, target = mask(address), urlsplit(address)
    try:  # the client itself would try again for minutes
        socket.create_connection((target.hostname or "", target.port or CONNECT_PORT), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise LakeError(f"no Spark Connect server at {shown}: {error.strerror or error}") from error
    try:
        started = SparkSession.builder.remote(address).getOrCreate()
        for name, value in ({one.name: str(one.value) for one in session_settings.SESSION} | dict(conf)).items():
            started.conf.set(name, value)
    except ImportError as error:
        raise MissingExtra(error.name or "grpcio", "connect") from error
    except PySparkException as error:
        raise LakeError(
            f"the Spark Connect server at {shown} refused the session or a setting: {mask(str(error).strip().splitlines()[0])}"
        ) from error
    return started


def _with_token(address: str) -> str:
    """Add the token of the environment to an address without one; mask its secrets from now on."""
    parameters = dict(parse_qsl(urlsplit(address).path.lstrip("/;"), separator=";"))
    token = os.environ.get(TOKEN, "")
    if token and "token" not in parameters:
        base = address.rstrip(";")
        address = f"{base}{'' if urlsplit(base).path else '/'};token={quote(token, safe='')}"
        parameters["token"] = token
    for name, value in parameters.items():
        if looks_secret(name):
            for form in (value, unquote(value), quote(value, safe="")):
                keep_secret(form)
    return address


def _submitted() -> dict[str, str]:
    """Return the settings of `spark-submit`."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - only Spark work pays for importing Spark

    SparkContext._ensure_initialized()  # there is no public way to ask the JVM before there is a context
    return dict(SparkConf().getAll())


def _prepared(configuration: dict[str, str], home: Path) -> dict[str, str]:
    """Return all settings of a session, and set the environment variables that go with them."""
    master = configuration.get("spark.master", LOCAL_MASTER)
    chosen = {"spark.master": master, "spark.app.name": "wirelake"} | session_settings.settings(master, home) | configuration
    os.environ["PYSPARK_PYTHON"] = chosen["spark.pyspark.python"]
    os.environ["PYSPARK_DRIVER_PYTHON"] = chosen["spark.pyspark.driver.python"]
    if chosen.get("spark.driver.bindAddress") == "127.0.0.1":
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return chosen


def _start(settings: dict[str, str], how: str, log: Path) -> SparkSession:
    """Start the JVM, here or on a cluster, and a session in it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only Spark work pays for importing Spark

    before = signal.getsignal(signal.SIGINT)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        started = builder.getOrCreate()
    except Exception as error:  # of any kind: the user needs one line, and `from` keeps the rest
        raise LakeError(
            mask(f"Spark did not start on {settings['spark.master']} {how}{_complaint(log) or f': {error}'} (log: {log})")
        ) from error
    started.sparkContext.setLogLevel("WARN")
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler calls the JVM in the middle of another call, which fails; Ctrl-C is for the caller.
        signal.signal(signal.SIGINT, before)
    return started

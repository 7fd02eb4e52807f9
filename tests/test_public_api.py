"""`import wirelake` gives the public names, lazily, and `python -m wirelake` is the command line."""

from __future__ import annotations

import importlib.metadata
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import wirelake

PROTOCOLS = ("emp", "event_mesh", "relink", "yamp", "wolpertinger")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", wirelake.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(wirelake, name)
    assert name in dir(wirelake)


def test_dir_names_only_what_exists() -> None:
    assert all(hasattr(wirelake, name) for name in dir(wirelake))
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        wirelake.frobnicate  # noqa: B018


def test_the_version_is_the_one_of_the_package() -> None:
    assert wirelake.__version__ == importlib.metadata.version("wirelake")


def test_import_alone_loads_nothing_heavy() -> None:
    loaded = set(python("import sys; before = set(sys.modules); import wirelake; print(*(set(sys.modules) - before))").split())
    assert {name for name in loaded if name.startswith("wirelake")} == {"wirelake"}
    assert not loaded & {"msgspec", "asyncio", "click", "pyspark", "pyarrow", "numpy", "numba", "duckdb"}


def test_a_protocol_loads_no_library_of_the_lake() -> None:
    loaded = set(python("import sys; from wirelake import emp, relink, Recorder; print(*sys.modules)").split())
    assert "wirelake.peers.emp" in loaded
    assert not loaded & {"pyspark", "pyarrow", "numpy", "numba", "duckdb", "wirelake.lake", "wirelake.peers.yamp"}


def test_python_m_wirelake_is_the_command_line() -> None:
    result = subprocess.run([sys.executable, "-m", "wirelake", "--version"], check=True, capture_output=True, text=True)
    assert wirelake.__version__ in result.stdout


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_has_the_same_entry_points(name: str) -> None:
    module: ModuleType = getattr(wirelake, name)
    ways_in = ("node",) if name == "event_mesh" else ("connect", "serve")
    assert set(module.__all__) >= {*ways_in, "Options"}
    assert all(hasattr(module, one) for one in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for way in ways_in:
        signature = inspect.signature(getattr(module, way))
        assert signature.parameters["options"].default is None
        assert len(str(signature)) < 400, "help() fits on a screen"
    if "connect" in ways_in:
        assert inspect.signature(module.connect).parameters["reconnect"].default is None
        assert inspect.signature(module.connect).parameters["connect_timeout"].default == 10.0
        assert inspect.signature(module.serve).parameters["limits"].default is None

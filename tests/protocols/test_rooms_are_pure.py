"""Nothing under protocols/ reads a clock, a socket, a file or a die: what it must not import, it does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import wirelake.protocols

FORBIDDEN = {
    *("time", "datetime", "asyncio", "logging", "random", "secrets", "uuid", "os", "pathlib", "io", "sys"),
    *("socket", "ssl", "select", "selectors", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "warnings"),
    *("pyspark", "typer", "rich"),
}
VALUES = {"datetime": {"UTC", "date", "datetime", "timedelta"}, "uuid": {"UUID"}}
"""Types of values that may be imported by name, for what a clock or a die made elsewhere."""
MADE_BY_A_CLOCK_OR_A_DIE = {"now", "utcnow", "today", "fromtimestamp", "uuid1", "uuid4"}
ROOT = Path(wirelake.protocols.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def imported(source: str) -> set[str]:
    """The top-level packages a module imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not {alias.name for alias in node.names} <= VALUES.get(node.module or "", set()):
            names.add((node.module or "").partition(".")[0])
    return names


def attributes_of_values(source: str) -> set[str]:
    """What is asked of the types in VALUES, by the names they are imported under."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {node.attr for node in nodes if node.value.id in VALUES["datetime"] | VALUES["uuid"]}


def calls(source: str) -> set[str]:
    return {node.func.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_protocol_module_knows_no_world(path):
    source = path.read_text()
    assert imported(source) & FORBIDDEN == set()
    assert attributes_of_values(source) & MADE_BY_A_CLOCK_OR_A_DIE == set()
    assert calls(source) & {"open", "print", "input", "__import__"} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_protocol_module_imports_nothing_of_ours_but_protocols_extras_and_errors(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wirelake"):
            assert node.module.startswith(("wirelake.protocols", "wirelake.extras", "wirelake.errors")), node.module
            assert node.level == 0


def test_the_check_itself_sees_every_way_to_import():
    source = "import time as t\ndef f():\n    from os.path import join\nif 1:\n    import asyncio.tasks\n"
    assert imported(source) & FORBIDDEN == {"time", "os", "asyncio"}
    assert imported("from datetime import datetime, time\nfrom uuid import uuid4\n") & FORBIDDEN == {"datetime", "uuid"}
    assert imported("from datetime import datetime\nfrom uuid import UUID\n") & FORBIDDEN == set()
    assert attributes_of_values("datetime.now(UTC)\nself.now\nnow = date.today\n") == {"now", "today"}
    assert len(MODULES) > 10

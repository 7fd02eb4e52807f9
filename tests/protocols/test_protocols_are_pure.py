"""Protocol modules are pure: they import nothing that reads a clock, a socket or a file, or makes random numbers."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import wirelake.protocols

FORBIDDEN = {
    *("time", "datetime", "asyncio", "logging", "random", "secrets", "uuid", "os", "pathlib", "io", "sys"),
    *("socket", "ssl", "select", "selectors", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "warnings"),
    *("pyspark", "typer", "rich"),
}
VALUES = {"datetime": {"UTC", "date", "datetime", "timedelta"}, "uuid": {"UUID"}, "sys": {"getsizeof"}}
"""What may be imported by name: types of values that a clock or a die made elsewhere, and the size of an object."""
MADE_BY_A_CLOCK_OR_A_DIE = {"now", "utcnow", "today", "fromtimestamp", "uuid1", "uuid4"}
OURS = ("wirelake.protocols", "wirelake.extras", "wirelake.errors")
"""What protocols may import of ours; `kernel.py` alone also imports the cache of compiled kernels."""
ROOT = Path(wirelake.protocols.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


@functools.cache
def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of a module."""
    return list(ast.walk(ast.parse(source)))


def imported(source: str) -> set[str]:
    """The top-level packages a module imports, wherever in it the import stands."""
    names = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not {alias.name for alias in node.names} <= VALUES.get(node.module or "", set()):
            names.add((node.module or "").partition(".")[0])
    return names


def attributes_of_values(source: str) -> set[str]:
    """What is asked of the types in VALUES, by the names they are imported under."""
    nodes = [node for node in nodes_of(source) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {node.attr for node in nodes if node.value.id in VALUES["datetime"] | VALUES["uuid"]}


def calls(source: str) -> set[str]:
    return {node.func.id for node in nodes_of(source) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def test_protocol_modules_use_no_clock_socket_file_or_randomness():
    for path in MODULES:
        source = path.read_text()
        assert imported(source) & FORBIDDEN == set(), path
        assert attributes_of_values(source) & MADE_BY_A_CLOCK_OR_A_DIE == set(), path
        assert calls(source) & {"open", "print", "input", "__import__"} == set(), path


def test_protocol_modules_import_nothing_of_ours_but_protocols_extras_and_errors():
    for path in MODULES:
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wirelake"):
                assert node.module.startswith(OURS) or path.name == "kernel.py", (path, node.module)
                assert node.level == 0, path


def test_the_check_itself_sees_every_way_to_import():
    source = "import time as t\ndef f():\n    from os.path import join\nif 1:\n    import asyncio.tasks\n"
    assert imported(source) & FORBIDDEN == {"time", "os", "asyncio"}
    assert imported("from datetime import datetime, time\nfrom uuid import uuid4\n") & FORBIDDEN == {"datetime", "uuid"}
    assert imported("from datetime import datetime\nfrom uuid import UUID\n") & FORBIDDEN == set()
    assert attributes_of_values("datetime.now(UTC)\nself.now\nnow = date.today\n") == {"now", "today"}
    assert len(MODULES) > 10

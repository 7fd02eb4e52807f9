"""The files of vectors, and the runner of each. No vector is known by its name.

The directory is the project's own copy, or the one WIRELAKE_VECTORS names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.conformance import emp, emp_sessions, event_mesh, relink, relink_scenarios, relink_sessions, wolpertinger, yamp

RUNNERS: Final[dict[str, Callable[[Any], None]]] = {
    "emp.json": emp.run,
    "emp-session.json": emp_sessions.run,
    "event-mesh.json": event_mesh.run,
    "relink.json": relink.run,
    "relink-scenarios.json": relink_scenarios.run,
    "relink-sessions.json": relink_sessions.run,
    "wolpertinger.json": wolpertinger.run,
    "yamp.json": yamp.run,
}
"""File name -> what runs one of its vectors; it raises for a vector that does not hold, and for one it does not understand."""


def directory() -> Path:
    named = os.environ.get("WIRELAKE_VECTORS")
    return Path(named) if named else Path(__file__).parent.parent / "vectors"


OWN: Final = Path(__file__).parent / "own"
"""Vectors made here; they do not replace those of the directory."""


def files(where: Path | None = None) -> list[Path]:
    """Every file of vectors."""
    return sorted((where or directory()).glob("*.json"))


def vectors(path: Path) -> list[Any]:
    """The vectors of a file: a list, or the one that stands alone."""
    content = json.loads(path.read_text())
    return content if isinstance(content, list) else [content]


def label(path: Path, index: int, vector: Any) -> str:
    """For people: the file, the place, and whatever name there is."""
    name = vector.get("name", "") if isinstance(vector, dict) else ""
    return f"{path.stem}-{index}-{name}".removesuffix("-")

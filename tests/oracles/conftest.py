"""Captures of others: `make oracles` fetches them and passes their folder as WIRELAKE_ORACLES."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from wirelake.protocols.kernel import use_compiled

HERE = Path(__file__).parent
collect_ignore_glob = [] if os.environ.get("WIRELAKE_ORACLES") else ["test_*.py"]
"""Without captures there is nothing to test: only `make oracles` has these tests."""


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


@pytest.fixture(scope="session")
def folder() -> Path:
    return Path(os.environ["WIRELAKE_ORACLES"])


@pytest.fixture(scope="session")
def opinions(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Both lists of opinions, of the packages that were chosen; every capture they speak of is there."""
    packages = os.environ.get("WIRELAKE_ORACLES_PACKAGES", "").split()
    chosen = {
        name: [row for row in lines(f"{name}.jsonl") if not packages or row["path"].split("/")[0] in packages]
        for name in ("captures", "tcp-streams", "explained")
    }
    missing = [row["path"] for row in chosen["captures"] if not (folder / row["sha256"]).exists()]
    assert not missing, f"{len(missing)} captures are not in {folder}: run make oracles"
    return chosen


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirelake.protocols.kernel._use_compiled", False)
    use_compiled()

"""What the tests of reports and queries share: lakes made of rows, without Spark and without captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.explore.rows import SPOKEN, Rows

from wirelake.lake.store import delta, journal
from wirelake.lake.store.parquet import Sheet
from wirelake.lake.tables.catalog import GOLD, TABLES

SLOW = (
    "test_comments.py",
    "test_diff.py",
    "test_export.py",
    "test_fairness.py",
    "test_mcp.py",
    "test_model.py",
    "test_skipping.py",
    "test_web.py",
)
"""Files whose tests open a lake each, serve it or start a process: a tenth of a second to three seconds a test."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of these files."""
    for item in items:
        if item.path.name in SLOW and item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.slow)


def _fill(lake: Path, rows: Rows, *, without: Sequence[str] = ()) -> Path:
    journal.initialise(lake)
    for table in TABLES.values():
        if rows and table not in GOLD and table.name not in rows:
            continue  # a table that is not there is as good as an empty one, and takes no time
        delta.create(lake, table)
        if table.name in without:
            continue
        sheet = Sheet(lake, table, 1)
        if given := list(rows.get(table.name, ())):
            strange = {name for row in given for name in row} - set(table.schema.names)
            assert not strange, strange
            sheet.add(pa.RecordBatch.from_pylist(given, schema=table.schema))
        file = sheet.close()
        if rows:
            delta.append(lake, table, [file] if file else [], 1)
    return lake


@pytest.fixture(scope="session")
def fill() -> Callable[..., Path]:
    """fill(folder, rows): a lake with these rows in one batch; gold tables named in `without` are left behind."""
    return _fill


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a little of everything. Tests only read it."""
    return _fill(tmp_path_factory.mktemp("explore") / "spoken", SPOKEN)


@pytest.fixture(scope="session")
def page(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of that lake."""
    from wirelake.explore.report import write_report

    return write_report(lake, tmp_path_factory.mktemp("page") / "report.html").read_text()

"""SQL about the column `severity` of the table `violations`. Needs no Arrow."""

from __future__ import annotations

from typing import Final

__all__ = ["FORBIDDEN", "GRAVITY"]

FORBIDDEN: Final = "coalesce(severity, 'error') NOT IN ('warning', 'info')"
"""SQL, for Spark and DuckDB: the specification forbids it, so it counts as a violation."""
GRAVITY: Final = "CASE severity WHEN 'error' THEN 0 WHEN 'tolerated' THEN 1 WHEN 'warning' THEN 2 WHEN 'info' THEN 3 ELSE 4 END"
"""SQL: sorts findings, the gravest first."""

"""The version of this code: the only place that has the number. `pyproject.toml` reads it from here."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"

"""The version of the installed package; `pyproject.toml` holds the number."""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__"]


def _installed() -> str:
    try:
        return metadata.version("wirelake")
    except metadata.PackageNotFoundError:  # run from a source tree that was not installed
        return "0+unknown"


__version__ = _installed()

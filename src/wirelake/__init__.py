"""Wirelake: speak five messaging protocols, and query every message they carry."""

__version__ = "0.1.0"
__all__ = ["__version__"]

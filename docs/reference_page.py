"""The page docs/reference.md, made from the code: ports, addresses, what Python programs import, errors, data sources of Spark.

`docs/generate.py` writes it. Data sources are read from their source text, so that Spark is not imported.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import wirelake
from wirelake import errors, lake, protocols
from wirelake.protocols import entry_points

SOURCES = {
    "wirelake.lake.sources.messages": "messages of captures: the columns of `messages`, and both endpoints",
    "wirelake.lake.sources.packets": "packets of captures",
    "wirelake.lake.sources.silver": "a silver table, straight from captures",
}
"""Module of a data source -> what its rows are."""
OPTIONS = {
    "protocol": "only messages of this protocol, such as `emp`",
    "ports": 'port and protocol as JSON, such as `{"6000": "emp"}`. They are added to the default ports',
    "table": "the name of a table, such as `emp`; required",
}
"""Option of a data source -> its meaning."""
ALSO = {
    "wirelake.transports.tls": "`client_context`, `server_context`: TLS with your own certificates",
    "wirelake.transports.memory": "`pair()`: two ends of a connection within one process",
    "wirelake.protocols.kernel": "`use_compiled()`: scan with Numba, once at the start of a long-lived process",
    "wirelake.explore.query": "`stream`: rows of a query as they are computed",
    "wirelake.explore.reading.watch": "`Watcher`: every broken rule of live peers, as it happens",
    "wirelake.filters": "the filter language of every command and page",
}
"""Module that is not at the top -> what programs take from it."""


def pages(made: Mapping[str, Callable[[], str]], note: str) -> dict[str, Callable[[], str]]:
    """File name -> function that makes it: this page, and the pages of protocols, called references."""
    pages: dict[str, Callable[[], str]] = {"reference.md": partial(reference, note)}
    for name in entry_points.OURS:
        file = f"{name.replace('_', '-')}.md"
        pages[file] = partial(_named, made[file], name)
    return pages


def _named(make: Callable[[], str], protocol: str) -> str:
    """A page of a protocol under the title of a reference, with a link to its guide."""
    _, note, rest = make().split("\n\n", 2)
    title = f"# {protocols.get(protocol).title} reference: state machine, options and faults"
    guide = f"How to use it is in the [guide]({protocol.replace('_', '-')}-live.md)."
    return "\n\n".join([title, note, guide, rest])


def reference(note: str) -> str:
    """The page, with a note that it is generated."""
    return "\n".join(["# Ports, imports, data sources\n", note, *_ports(), *_imports(), *_errors(), *_sources()])


def _ports() -> list[str]:
    rows = []
    for name in entry_points.OURS:
        described = protocols.get(name)
        live = import_module(f"wirelake.peers.{name}")
        schemes = getattr(live, "SCHEMES", None) or import_module(f"{live.__name__}.node").SCHEMES
        shown = ", ".join(f"`{scheme}://`" for scheme in schemes if scheme != "memory")
        optional = "yes" if described.default_port is not None else "no"
        rows.append(f"| {described.title} | `{name}` | {described.port} | {optional} | {shown} |")
    return [
        "## Default ports and addresses\n",
        "In captures, a connection on the port is read as this protocol; `--port emp=6000` adds one. `wirelake serve` listens there",
        "if no address is given. Where an address may leave the port out, this port is meant.\n",
        "| protocol | name | port | may be left out | addresses |",
        "|---|---|---:|---|---|",
        *rows,
        "",
    ]


def _imports() -> list[str]:
    names = [name for name in wirelake.__all__ if not name.startswith("_")]
    top = [f"| `wirelake.{name}` | {_about(import_module('wirelake'), name)} |" for name in names]
    live = []
    for name in entry_points.OURS:
        public = [one for one in import_module(f"wirelake.peers.{name}").__all__ if one != "SCHEMES"]
        live.append(f"| `wirelake.{name}` | {', '.join(f'`{one}`' for one in public)} |")
    table = [f"| `wirelake.lake.{name}` | {_summary(lake._MODULES[name], name)} |" for name in lake.__all__]
    for module, text in ALSO.items():
        for name in re.findall(r"`(\w+)(?:\(\))?`", text):
            assert _summary(module, name), f"{module}.{name}"
    return [
        "## What Python programs import\n",
        "`from wirelake import …` gives everything that most programs need. A name is loaded when it is first used.\n",
        "| name | content |",
        "|---|---|",
        *top,
        "",
        "Each protocol has these names:\n",
        "| module | names |",
        "|---|---|",
        *live,
        "",
        "The lake (`wirelake[lake]`):\n",
        "| name | what it does |",
        "|---|---|",
        *table,
        "",
        "In deeper modules:\n",
        "| module | content |",
        "|---|---|",
        *(f"| `{module}` | {text} |" for module, text in ALSO.items()),
        "",
    ]


def _about(module: object, name: str) -> str:
    """The first line of the docstring of a public name."""
    value = getattr(module, name)
    return (inspect.getdoc(value) or "").split("\n")[0].rstrip(".")


def _summary(module: str, name: str) -> str:
    """The first line of a function's or class's docstring, from its source text."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in (name, f"write_{name}"):
            return (ast.get_docstring(node) or "").split("\n")[0].rstrip(".")
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _summary(node.module or "", name)
    raise AssertionError(f"{name} is not in {module}")


def _errors() -> list[str]:
    tree = (errors.__doc__ or "").split("```")[1].strip("\n")
    return [
        "## Errors\n",
        "All are in `wirelake.errors`. Programs use their type, `fault`, `clause` and `code`; the wording may change.\n",
        f"```text\n{tree}\n```\n",
    ]


def _sources() -> list[str]:
    rows = []
    for module, about in SOURCES.items():
        name, options = _source(module)
        assert set(options) <= set(OPTIONS), options
        listed = "; ".join(f"`{option}`: {OPTIONS[option]}" for option in options) or "none"
        rows.append(f"| `{name}` | {about} | {listed} |")
    return [
        "## Data sources of Spark\n",
        "`wirelake.lake.register(spark)` adds them to a session. `load()` takes files, folders and patterns. An unknown option",
        "is an error that names the known ones. Filters on `ts` and on ports are applied while reading",
        "([captures.md](captures.md#without-a-lake)).\n",
        "| format | rows | options |",
        "|---|---|---|",
        *rows,
        "",
        "A lake is read with `wirelake.lake.open_lake(path).frame(spark, table)`, or with any reader of Delta Lake tables",
        "([lake.md](lake.md#what-readers-see)).\n",
    ]


def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """The format of a data source, and the options that its reader accepts."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    name, options = "", ()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        match node:
            case ast.AnnAssign(target=ast.Name(id="FORMAT"), value=ast.Constant(value=str(found))):
                name = found
            case ast.Call(func=ast.Attribute(attr="known"), args=[_, _, names]):
                options = ast.literal_eval(names)
    assert name, module
    return name, options

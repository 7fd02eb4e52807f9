"""Writes the pages of docs/ that are made from the code: commands, tables, protocols. `make docs` runs it; a test compares.

With --check it writes nothing and says which pages are out of date.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import msgspec
import rule_pages

from wirelake import protocols
from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import COMMANDS, app
from wirelake.lake.session import home as session_home
from wirelake.lake.session import settings as session_settings
from wirelake.lake.tables.catalog import GOLD, SILVER
from wirelake.lake.tables.schema import Table, comment
from wirelake.protocols import entry_points
from wirelake.protocols.faults import Origin, Strength
from wirelake.rulebook.book import book
from wirelake.rulebook.facts import facts

DOCS = Path(__file__).parent
PLAIN = (int, float, str, bool, type(None))
NOTE = "<!-- Made by docs/generate.py: change the code, then run `make docs`. -->\n"

CLI = """\
Data goes to stdout, everything else to stderr, `-` is stdin. `-v` may stand before or behind the command.

Control characters, changes of direction and line breaks in traffic are printed visibly: `\\x1b`, `\\u202e`, `\\n`. This holds for text,
errors and log lines. In JSON they are JSON escapes, so that its values are exact.

A protocol's name is printed as its table is called (`event_mesh`); `event-mesh` is taken, too.
"""
COMPLETION = """\
## Completion

Shells complete commands, options, protocols, and the tables of a lake. One line in the shell's start file:

| shell | file | line |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(_WIRELAKE_COMPLETE=bash_source wirelake)"` |
| zsh | `~/.zshrc` | `eval "$(_WIRELAKE_COMPLETE=zsh_source wirelake)"` |
| fish | `~/.config/fish/completions/wirelake.fish` | `_WIRELAKE_COMPLETE=fish_source wirelake \\| source` |
"""


def cli() -> str:
    """The command line, from its own help."""
    parts = ["# The command line\n", NOTE, CLI]
    context = click.Context(app, info_name="wirelake", max_content_width=110, terminal_width=110)
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        parts.append(_help(f"## wirelake {name}", command))
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=f"wirelake {name}")
            for protocol in command.list_commands(inner):
                verb = command.get_command(inner, protocol)
                assert verb is not None
                parts.append(_help(f"### wirelake {name} {protocol}", verb))
    rows = "\n".join(f"| {code.value} | {code.name} | {code.meaning} |" for code in ExitCode)
    parts.append(f"## Exit codes\n\nEach code means the same in every command.\n\n| code | name | meaning |\n|---|---|---|\n{rows}\n")
    parts.append(COMPLETION)
    return "\n".join(parts)


def _help(title: str, command: click.Command) -> str:
    context = click.Context(command, info_name=title.lstrip("# "), max_content_width=110, terminal_width=110)
    return f"{title}\n\n```text\n{command.get_help(context)}\n```\n"


def tables() -> str:
    """The table dictionary, from the schemas of record."""
    parts = ["# The tables\n", NOTE, "Every row leads back to its bytes: `source`, `offset`, `length`.\n"]
    for title, group in (("Written where captures are decoded", SILVER), ("Built from those", GOLD)):
        parts.append(f"## {title}\n")
        parts += [_table(table) for table in group]
    return "\n".join(parts)


def _table(table: Table) -> str:
    rows = "\n".join(f"| `{field.name}` | {_type(str(field.type))} | {comment(field)} |" for field in table.schema)
    return f"### `{table.name}`\n\n{table.doc} Key: {', '.join(table.grain)}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"


def _type(text: str) -> str:
    return text.replace("|", "\\|") if len(text) < 40 else text.split("<", 1)[0] + "<…>"


def spark() -> str:
    """The settings of a Spark session, each with its reason."""
    parts = ["# How Spark is started\n", NOTE]
    parts.append(
        "`wirelake ingest` and `wirelake demo` start Spark, and so does `wirelake.lake.spark_session` in Python; nothing else does.\n"
        "`--master` names the master; the default is `local[*]`, or the master of `spark-submit`. Every setting below, and any other,\n"
        "can be changed with `--conf NAME=VALUE`, with `spark_session(conf={…})`, or on the command line of `spark-submit`. The tables do\n"
        "not depend on settings: while they are written and built, times are microseconds in UTC. Under `spark-submit` the JVM runs\n"
        "already, so give `spark.driver.memory` and other settings of the JVM to `spark-submit`.\n"
    )
    groups = (
        ("In every session, also in one of a Spark Connect server", session_settings.SESSION),
        ("In every Spark that is started here", session_settings.EVERYWHERE),
        ("On this machine (`local…`)", session_settings.LOCAL),
        ("On a cluster", session_settings.CLUSTER),
        ("On this machine, and on a cluster whose master is on loopback", session_settings.LOOPBACK),
    )
    for title, group in groups:
        parts += [f"## {title}\n", "| setting | value | why |", "|---|---|---|"]
        parts += [f"| `{one.name}` | {one.shown or f'`{one.value}`'} | {one.why} |" for one in group]
        parts.append("")
    parts += [
        "## Beside the settings\n",
        "On this machine, Python workers import PySpark as it is installed. Spark's default is an archive, which each of the dozen",
        "processes of an ingest would compile again. `SPARK_HOME` and `spark.pyspark.python` are used if they are set.\n",
        "MLlib is there, but its functions `vector_to_array` and `array_to_vector` (`pyspark.ml.functions`) are not. Registering them is a",
        "third of the work of starting a session. To have them:\n",
        f"`spark.sql.extensions={session_home.EXTENSION}`\n",
        "Shuffle files and logs of Spark are in a folder `wirelake-spark-…` in the system's folder for temporary files (`TMPDIR`). It is",
        "removed with the process. The folder of a killed process is removed when the next one starts.\n",
    ]
    parts += [
        "`wirelake ingest` and `wirelake demo` use JVM flags for short sessions (`SHORT_SESSION`) where there is little to do.",
        f"That is up to {session_settings.SHORT_SESSION_BYTES // 2**20} MiB of captures and messages in the lake.",
        "The JVM then starts faster and reaches a lower peak speed. The same setting given with `--conf` takes precedence:\n",
    ]
    parts += [f"`{name}={value}`\n" for name, value in session_settings.SHORT_SESSION.items()]
    parts += [
        "`wirelake ingest` of more uses another collector (`LONG_INGEST`): blocks of some MiB keep the default one busy. The JVM starts",
        "0.3 s later then. `--conf` takes precedence here, too:\n",
    ]
    parts += [f"`{name}={value}`" for name, value in session_settings.LONG_INGEST.items()]
    return "\n".join(parts) + "\n"


def page(protocol: str) -> str:
    """One protocol: its state machine as a diagram, its limits and options, and its faults as a table."""
    described = protocols.get(protocol)
    rules = book(protocol)
    assert rules is not None
    rule_page = rules.page.removeprefix("docs/")
    parts = [f"# {described.title}: state machine, options and rules\n", NOTE, "## State machine\n", *rule_pages.state_diagram(described)]
    parts.append(f"A message that is not drawn is forbidden. [The rules of {described.title}]({rule_page}) introduce the protocol.\n")
    parts += [
        "## Limits\n",
        "For `--set NAME=VALUE` of commands that read or speak, and `Limits` in Python.\n",
        _settings(described.limits),
    ]
    live = import_module(f"wirelake.peers.{protocol}").Options
    parts += ["## Options\n", f"Arguments of `wirelake.{protocol}.Options` in Python; times are seconds.\n", _settings(live)]
    known = facts(protocol)
    answers = any(fault.answer != "nothing" for fault in known)
    parts.append("## Faults\n")
    parts.append(
        "The origin of a rule is the `text` of the specification, or this side. Then it is a `ruling`, a `limit` or `local` state.\n"
        "The strength says how strongly the specification itself speaks about it. Only what the text demands (`must`) can be violated.\n"
        "What it recommends (`should`) has severity `warning` in the lake. All else has severity `info`, and so has every time that is\n"
        "a number of ours. A live peer may still end the session on it.\n"
        "The last column names the table in which the lake reports it, or why the recorded history cannot show it.\n"
    )
    parts += [f"- `{Origin[name]}`: {said}" for name, said in _attribute_docs(Origin).items()] + [""]
    parts += [f"- `{Strength[name]}`: {said}" for name, said in _attribute_docs(Strength).items()] + [""]
    more = ["answered with"] * answers + ["in the lake"]
    parts.append("| " + " | ".join(["fault", "clause", "meaning", "origin", "strength", "a live peer", *more]) + " |")
    parts.append("|---|---|---|---|---|---|" + "---|" * len(more))
    for fault in known:
        said = f" {fault.answer} |" if answers else ""
        clause = rule_pages.link(rules, fault.clause, rule_page)
        standing = f"{fault.origin} | {fault.strength}"
        parts.append(f"| `{fault.name}` | {clause} | {fault.text} | {standing} | {fault.live_peer} |{said} {fault.lake} |")
    return "\n".join(parts) + "\n"


def _settings(kind: type) -> str:
    """A struct's fields with their defaults and what their docstrings say."""
    rows = ["| name | default | meaning |", "|---|---|---|"]
    said = _attribute_docs(kind)
    for field in msgspec.structs.fields(kind):
        default = "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`" if isinstance(field.default, PLAIN) else ""
        rows.append(f"| `{field.name}` | {default} | {said.get(field.name, '')} |")
    return "\n".join(rows) + "\n"


def _attribute_docs(kind: type) -> dict[str, str]:
    """The docstring of each attribute of a class and its bases, on one line."""
    said: dict[str, str] = {}
    for base in reversed([one for one in kind.__mro__ if one.__module__.startswith("wirelake")]):
        said |= _own_attribute_docs(base)
    return said


def _own_attribute_docs(kind: type) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    said = {}
    for attribute, after in itertools.pairwise(tree.body):
        if isinstance(attribute, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            target = attribute.target if isinstance(attribute, ast.AnnAssign) else attribute.targets[0]
            said[ast.unparse(target)] = " ".join(str(after.value.value).split())
    return said


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "tables.md": tables,
    "spark.md": spark,
    **{f"{name.replace('_', '-')}.md": partial(page, name) for name in entry_points.OURS},
    "rules/index.md": partial(rule_pages.index, _attribute_docs),
    **{f"rules/{name.replace('_', '-')}.md": partial(rule_pages.page, name) for name in entry_points.OURS},
}
PAGES |= import_module("reference_page").pages(PAGES, NOTE)


def main() -> int:
    """Write, or compare."""
    stale = [name for name, make in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != make()]
    if "--check" in sys.argv:
        print("out of date, run `make docs`: " + ", ".join(stale) if stale else "the generated pages are up to date")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(PAGES[name]())
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

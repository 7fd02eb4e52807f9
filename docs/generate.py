"""Writes the pages of docs/ that are made from the code: the commands, the tables, the conversations. `make docs` runs it; a test compares.

With --check it writes nothing and says which pages are out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from wirelake import protocols
from wirelake.cli.exits import ExitCode
from wirelake.cli.main import COMMANDS, app
from wirelake.lake.catalog import GOLD, SILVER
from wirelake.lake.schema import Table, comment
from wirelake.protocols.emp.conversation import INITIAL, TRANSITIONS, Speaker
from wirelake.protocols.emp.faults import RULES, Severity
from wirelake.protocols.emp.messages import name_of

DOCS = Path(__file__).parent
NOTE = "<!-- Made by docs/generate.py: change the code, then run `make docs`. -->\n"


def cli() -> str:
    """The command line, from its own help."""
    parts = ["# The command line\n", NOTE, "Data goes to stdout, talk to stderr, `-` is stdin.\n"]
    context = click.Context(app, info_name="wirelake", max_content_width=110, terminal_width=110)
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=f"wirelake {name}", max_content_width=110, terminal_width=110)
        parts.append(f"## wirelake {name}\n\n```text\n{command.get_help(inner)}\n```\n")
    rows = "\n".join(f"| {code.value} | {code.name} |" for code in ExitCode)
    parts.append(f"## Exit codes\n\n| code | name |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def tables() -> str:
    """The table dictionary, from the schemas of record."""
    parts = ["# The tables\n", NOTE, "Every row leads back to its bytes: `source`, `offset`, `length`.\n"]
    for title, group in (("Written where captures are decoded", SILVER), ("Built by Spark SQL from those", GOLD)):
        parts.append(f"## {title}\n")
        parts += [_table(table) for table in group]
    return "\n".join(parts)


def _table(table: Table) -> str:
    rows = "\n".join(f"| `{field.name}` | {_type(str(field.type))} | {comment(field)} |" for field in table.schema)
    return f"### `{table.name}`\n\n{table.doc} Key: {', '.join(table.grain)}.\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"


def _type(text: str) -> str:
    return text.replace("|", "\\|") if len(text) < 40 else text.split("<", 1)[0] + "<…>"


def emp() -> str:
    """EMP: its conversation as a picture, and its faults as a table."""
    parts = ["# EMP: the conversation and its rules\n", NOTE, "## Who may say what when\n", "```mermaid", "stateDiagram-v2"]
    parts.append(f"    [*] --> {INITIAL.name}")
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, speaker, message), after in TRANSITIONS.items():
        who = "client" if speaker is Speaker.CLIENT else "server"
        arrows.setdefault((state.name, after.name), []).append(f"{who} {name_of(message)}")
    parts += [f"    {before} --> {after}: {', '.join(said)}" for (before, after), said in arrows.items()]
    parts += ["```\n", "What is not drawn is forbidden, and which rule it breaks is in the table below.\n", "## Faults\n"]
    parts.append("| fault | clause | meaning | severity | answered with |\n|---|---|---|---|---|")
    for fault, rule in RULES.items():
        severity = "ends the session" if fault.severity is Severity.ERROR else "tolerated"
        answer = "nothing" if rule.error_code is None else f"error {int(rule.error_code)}"
        parts.append(f"| `{fault.name}` | {rule.clause} | {rule.text} | {severity} | {answer} |")
    return "\n".join(parts) + "\n"


PAGES = {"cli.md": cli, "tables.md": tables, **{f"{name}.md": emp for name in protocols.ROOMS}}


def main() -> int:
    """Write, or compare."""
    stale = [name for name, make in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != make()]
    if "--check" in sys.argv:
        print("out of date, run `make docs`: " + ", ".join(stale) if stale else "the generated pages are up to date")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name]())
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

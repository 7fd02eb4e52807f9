"""The answers in docs/cookbook.md and docs/tutorial.md: `python docs/answers.py FOLDER` writes them.

FOLDER has `demo-lake/`, made by `wirelake demo`. Its lake is changed: one recipe revokes a key. Tests read the pages with the same
functions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
COOKBOOK, TUTORIAL = DOCS / "cookbook.md", DOCS / "tutorial.md"
CAPTURE = DOCS / "tutorial" / "shop.pcap"
SHOWN = 5
"""Rows of an answer that the cookbook shows."""
WIDTH = 140
"""Characters of a row that it shows."""
_BLOCK = re.compile(r"```(sql|sh)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
_CONSOLE = re.compile(r"```console\n\$ (.*?)\n(.*?)```\n", re.DOTALL)
_SHELL = f'wirelake() {{ {sys.executable} -m wirelake "$@"; }}\n'


class Recipe(NamedTuple):
    """A question and a block that answers it."""

    question: str
    language: str
    """`sql` or `sh`."""
    code: str
    answer: str | None
    """The lines shown below it; None where nothing is shown."""
    is_empty: bool
    """Whether the page says that there are no rows."""


def recipes(text: str) -> list[Recipe]:
    """Every block of the cookbook that is below a question."""
    found = []
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        question, body = part.split("\n", 1)
        body = body.split("\n## ")[0]
        found += [Recipe(question, match[1], match[2], match[3], "\nNo rows" in body) for match in _BLOCK.finditer(body)]
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """Every command of the tutorial, and what it prints to stdout; to stderr, if that is empty."""
    return [(match[1], match[2]) for match in _CONSOLE.finditer(text)]


def run(code: str, folder: Path) -> str:
    """What shell code prints in a folder, without the folder's path: stdout, or stderr if that is empty."""
    done = subprocess.run(["bash", "-ec", _SHELL + code], cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603, S607 - our own pages
    return (done.stdout or done.stderr).replace(str(folder.resolve()), "…")


def answer(language: str, code: str, folder: Path) -> str:
    """What a recipe prints, cut to what the cookbook shows."""
    if language == "sql":
        lines = run(f"wirelake query demo-lake/lake - 2>&- <<'END'\n{code}END\n", folder).splitlines()[: SHOWN + 2]
        lines = [line[:WIDTH] for line in lines]
    else:
        lines = run(f"{{ {code} }} 2>&-", folder).splitlines()
        if not code.rstrip().endswith(("-V", "csv", "json")):
            lines = lines[:SHOWN]
    return "".join(line.rstrip() + "\n" for line in lines)


def write_cookbook(folder: Path) -> None:
    """Write every answer below its question, in the order of the page."""
    text = COOKBOOK.read_text()
    first = text.index("\n### ")

    def filled(match: re.Match[str]) -> str:
        if match.start() < first:
            return match[0]
        shown = answer(match[1], match[2], folder)
        return f"```{match[1]}\n{match[2]}```\n" + (f"\n```text\n{shown}```\n" if shown else "")

    COOKBOOK.write_text(_BLOCK.sub(filled, text))


def write_tutorial(folder: Path) -> None:
    """Write what every command prints, in the order of the page."""
    shutil.copy(CAPTURE, folder)
    TUTORIAL.write_text(_CONSOLE.sub(lambda match: f"```console\n$ {match[1]}\n{run(match[1], folder)}```\n", TUTORIAL.read_text()))


if __name__ == "__main__":
    write_tutorial(Path(sys.argv[1]))
    if "--tutorial" not in sys.argv:
        write_cookbook(Path(sys.argv[1]))

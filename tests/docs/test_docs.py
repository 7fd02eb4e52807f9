"""What the documents say is true: generated pages are up to date, examples run, links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]


def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_python_of_the_readme_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"b'HELLO'\n", b"")


def test_the_console_of_the_readme_shows_what_is_printed():
    (session,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exchanges = re.findall(r"^\$ echo (\S+) \| wirelake (.*)\n((?:[^$].*\n)+)", session, re.MULTILINE)
    assert len(exchanges) == session.count("$ ")
    for typed, words, shown in exchanges:
        done = subprocess.run(
            [sys.executable, "-m", "wirelake.cli.main", *shlex.split(words)], input=typed, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_name_exist(page):
    from wirelake.cli.main import COMMANDS

    for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL):
        for command in re.findall(r"(?:^|[|$] ?)wirelake (\w+)", block, re.MULTILINE):
            assert command in COMMANDS

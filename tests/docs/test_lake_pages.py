"""The tutorial and the cookbook: every command and every query runs, and its answer is what the page shows.

The tutorial's capture is the same each time, so its output is compared word by word. The demo is not: of an answer in the cookbook the
columns are compared, and that it has rows, unless the page says that it has none. One Spark session makes both lakes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

import pytest

from wirelake.cli.main import run
from wirelake.lake import query

ROOT = Path(__file__).parents[2]
MESSAGES = 400
"""Requests of the demo, about: few, but every kind of traffic is there."""
pytestmark = pytest.mark.timeout(600)  # Spark starts


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # a NamedTuple looks itself up
    spec.loader.exec_module(module)
    return module


answers = _module(ROOT / "docs" / "answers.py")
RECIPES = answers.recipes(answers.COOKBOOK.read_text())
REVOKED = ("What does a revoked key spoil?", "Which subjects do those packets have?")
"""Questions to the lake after its keys changed."""


def wirelake(folder: Path, command: str) -> str:
    """What a command prints in a folder: stdout, or stderr if that is empty. In this process, so that it finds the Spark session."""
    program, *words = shlex.split(command)
    assert program == "wirelake", command
    out, talk = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(talk):
            assert run(words) == 0, talk.getvalue()
    finally:
        os.chdir(before)
    return (out.getvalue() or talk.getvalue()).replace(str(folder.resolve()), "…")


def _steady(text: str) -> str:
    """Output without what another machine, or another second, changes: times, the Java that was found, finished steps."""
    text = re.sub(r"^.*: done \(.*\)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"Java: .*", "Java: …", re.sub(r"\d+\.\d s\b", "# s", text))


def test_the_capture_of_the_tutorial_is_what_its_script_makes():
    made = _module(ROOT / "docs" / "tutorial" / "make_capture.py")
    assert made.make() == answers.CAPTURE.read_bytes()


def test_every_command_of_the_tutorial_prints_what_the_page_shows(spark, tmp_path):
    shutil.copy(answers.CAPTURE, tmp_path)
    commands = answers.commands(answers.TUTORIAL.read_text())
    assert len(commands) >= 10
    for command, shown in commands:
        assert _steady(wirelake(tmp_path, command)) == _steady(shown), command


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory) -> Iterator[Path]:
    """A folder with a small demo in `demo-lake/`, made once."""
    from wirelake.peers.demo import KEYS, record

    folder = tmp_path_factory.mktemp("cookbook")
    recordings = folder / "demo-lake" / "recordings"
    recordings.mkdir(parents=True)
    asyncio.run(record(recordings, MESSAGES))
    keys = " ".join(f"--keys demo-lake/recordings/{name}" for name in KEYS)
    wirelake(folder, f"wirelake ingest demo-lake/lake demo-lake/recordings {keys}")
    return folder


@pytest.fixture(scope="module")
def revoked(folder, tmp_path_factory) -> Path:
    """A copy of it, after the commands of the recipe that revokes a key."""
    copy = tmp_path_factory.mktemp("revoked")
    shutil.copytree(folder / "demo-lake", copy / "demo-lake")
    (recipe,) = [one for one in RECIPES if one.language == "sh" and "keys revoke" in one.code]
    *before, last = recipe.code.splitlines()
    answers.run("\n".join(before), copy)
    wirelake(copy, last)
    return copy


def test_there_are_thirty_questions_and_each_is_asked_once():
    questions = [one.question for one in RECIPES if one.language == "sql"]
    assert len(questions) == len(set(questions)) >= 30
    assert set(REVOKED) <= set(questions)
    readme = re.search(r"cookbook\]\(\S+\) has (\d+) questions", (ROOT / "README.md").read_text())
    assert readme is not None
    assert int(readme[1]) == len({one.question for one in RECIPES})


@pytest.mark.parametrize("recipe", [one for one in RECIPES if one.language == "sql"], ids=lambda recipe: recipe.question)
def test_every_query_answers_with_the_columns_that_the_page_shows(recipe, folder, request):
    lake = (request.getfixturevalue("revoked") if recipe.question in REVOKED else folder) / "demo-lake" / "lake"
    table = query(lake, recipe.code)
    assert recipe.answer is not None, "the page shows no answer"
    header, rule, *rows = recipe.answer.splitlines()
    assert header.split() == table.column_names
    assert set(rule) == {"-", " "}
    assert (table.num_rows == 0) == recipe.is_empty
    assert (not rows) == recipe.is_empty


def _shape(line: str) -> str:
    return re.sub(r"…?/\S*/|\b[0-9a-f]{8,}\b|\d+", "#", line)


@pytest.mark.parametrize(
    "recipe", [one for one in RECIPES if one.language == "sh" and "keys revoke" not in one.code], ids=lambda recipe: recipe.question
)
def test_every_command_prints_lines_like_those_that_the_page_shows(recipe, folder):
    lines = [line for command in recipe.code.splitlines() for line in wirelake(folder, command).splitlines()]
    printed = {_shape(line.rstrip()) for line in lines}
    assert recipe.answer
    for line in recipe.answer.splitlines():
        assert _shape(line) in printed, line


@pytest.mark.slow
def test_the_commands_before_the_first_question_exist():
    first = answers.COOKBOOK.read_text().split("\n### ")[0]
    for command in re.findall(r"^wirelake (\w+)", first, re.MULTILINE):
        done = subprocess.run([sys.executable, "-m", "wirelake", command, "--help"], capture_output=True, timeout=60)
        assert done.returncode == 0

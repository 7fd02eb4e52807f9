"""Where an extra is not installed, every command that needs it says so in one line, and has done nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.missing_extras import CASES, complaint

from wirelake import extras
from wirelake.errors import MissingExtra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

BARE = """
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from wirelake.cli.main import run
seen = []
for words in json.loads(sys.argv[2]):
    with contextlib.redirect_stderr(io.StringIO()) as talk, contextlib.redirect_stdout(io.StringIO()) as out:
        code = run(words)
    seen.append((int(code), talk.getvalue(), out.getvalue()))
print(json.dumps(seen))
"""
"""Runs commands in a process that has no optional library."""


@pytest.mark.slow
def test_a_missing_extra_is_one_line_before_anything_listens_or_runs(tmp_path):
    absent = [*extras.LIBRARIES, "google"]
    commands = [[word.format(tmp=tmp_path) for word in words] for words, _ in CASES]
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(absent), json.dumps(commands)], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    wrong = {" ".join(words[:3]): complaint(code, talk, extra) for (words, extra), (code, talk, _) in zip(CASES, seen, strict=True)}
    assert {words: text for words, text in wrong.items() if text} == {}
    assert {out for _, _, out in seen} == {""}
    assert list(tmp_path.iterdir()) == []  # no recording, no lake


def libraries(extra: str) -> set[str]:
    """The libraries that an extra names itself."""
    names = (re.match(r"[\w-]+", one).group() for one in PROJECT["optional-dependencies"][extra])
    return {name for name in names if name != "wirelake"}


def test_every_library_is_in_the_extra_that_its_error_names():
    """`lake` contains `fast`, and `connect` names what pyspark[connect] brings."""
    contained = {"lake": libraries("lake") | libraries("fast"), "connect": {"grpcio", "grpcio-status", "googleapis-common-protos"}}
    for name, extra in extras.LIBRARIES.values():
        assert name in contained.get(extra, libraries(extra)), (name, extra)


def test_every_library_of_every_extra_is_known():
    named = {name for extra in PROJECT["optional-dependencies"] for name in libraries(extra)}
    assert named - {name for name, _ in extras.LIBRARIES.values()} == set()


def test_all_contains_every_other_extra():
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(everything.removeprefix("wirelake[").removesuffix("]").split(",")) == set(PROJECT["optional-dependencies"]) - {"all"}


def test_the_page_about_installing_lists_every_extra_with_its_libraries():
    page = (ROOT / "docs" / "install.md").read_text()
    rows = {
        line.split("|")[1].strip().strip("`"): line for line in page.splitlines() if line.startswith("| `") and "pip install" not in line
    }
    assert set(rows) == set(PROJECT["optional-dependencies"])
    for extra in set(rows) - {"all"}:
        assert [name for name in libraries(extra) if f"`{name}" not in rows[extra]] == []


def test_a_library_that_no_extra_installs_is_no_missing_extra():
    assert extras.missing("nonsense") is None
    with pytest.raises(ModuleNotFoundError):
        extras.library("nonsense")


def test_an_error_keeps_its_fields_between_processes():
    import pickle

    error = pickle.loads(pickle.dumps(MissingExtra("aioquic", "quic")))  # noqa: S301 - our own bytes
    assert (error.library, error.extra) == ("aioquic", "quic")
    assert str(error) == "aioquic is not installed: run `pip install 'wirelake[quic]'`"

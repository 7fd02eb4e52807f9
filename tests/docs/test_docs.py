"""What the documents say is true: generated pages are up to date, examples run."""

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
CAPTURED = {"capture_output": True, "text": True, "timeout": 60}


@pytest.mark.slow
def test_generated_pages_are_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_python_of_the_readme_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"b'HELLO'\n", b"")


@pytest.mark.slow
def test_the_console_of_the_readme_shows_what_is_printed():
    (session,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exchanges = re.findall(r"^\$ (.*)\n((?:[^$].*\n)+)", session, re.MULTILINE)
    assert len(exchanges) == session.count("$ ")
    for command, shown in exchanges:
        done = subprocess.run(["bash", "-c", f'wirelake() {{ {sys.executable} -m wirelake "$@"; }}\n{command}'], cwd=ROOT, **CAPTURED)
        assert done.stdout == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_pages_name_exist(page):
    from wirelake.cli.main import COMMANDS

    for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL):
        for command in re.findall(r"(?:^|[|$] ?)wirelake (\w+)", block, re.MULTILINE):
            assert command in COMMANDS


SOURCE = ROOT / "src" / "wirelake"
WALKED = ("glossary.md", "architecture.md")


def _paths(page: str) -> set[str]:
    """The files and folders of the source that a page names, in backticks."""
    return set(re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?)`", (ROOT / "docs" / page).read_text()))


@pytest.mark.parametrize("page", WALKED)
def test_every_path_that_a_page_names_exists(page):
    paths = _paths(page)
    assert len(paths) > 20
    missing = sorted(path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists())
    assert not missing, missing


def test_every_folder_drawn_in_the_tree_exists():
    (tree,) = re.findall(r"```\nsrc/wirelake/\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    above: dict[int, Path] = {2: SOURCE}
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        names = list(itertools.takewhile(lambda word: word.endswith(("/", ".py")), line.split()))
        assert names, line
        for name in names:
            assert (above[indent] / name).exists(), line
        above[indent + 2] = above[indent] / names[0]


def test_the_glossary_has_20_to_40_terms():
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^\| (?!term )([a-zA-Z].*?) \| (.+) \| .+ \|$", text, re.MULTILINE)
    assert 20 <= len(terms) <= 40
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(
    ("terms", "files"),
    [
        (["TCP retransmission"], ["capture/packets/tcp_stream.py"]),
        (["Delta commit"], ["lake/store/delta.py"]),
        (["state machine"], [f"protocols/{name}/state_machine.py" for name in ("emp", "event_mesh", "relink", "yamp", "wolpertinger")]),
        (["micro-batch"], ["lake/jobs/micro_batch.py"]),
        (["violation", "text"], ["protocols/emp/faults.py"]),
        (["JVM"], ["lake/session/start.py"]),
    ],
)
def test_one_search_finds_the_file_that_the_architecture_names(terms, files):
    where = (ROOT / "docs" / "architecture.md").read_text().split("## Where is …?")[1].split("\n## ")[0]
    (row,) = [line for line in where.splitlines() if all(term.lower() in line.lower() for term in terms)]
    assert re.search(r"`(\S+\.py)`", row)[1] == files[0]
    for file in files:
        about = ast.get_docstring(ast.parse((SOURCE / file).read_text())) or ""
        for term in terms:
            assert term.lower() in about.lower(), f"{file} does not say {term!r} in its docstring"

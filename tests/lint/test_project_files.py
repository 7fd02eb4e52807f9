"""The files around the code agree: one version number, help for every target, hooks without a network."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from wirelake import __version__

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_one_file_has_the_version():
    assert "version" not in PROJECT["project"]
    assert (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text().count(f'"{__version__}"') == 1


def test_the_changelog_begins_with_this_version():
    assert re.findall(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__


def test_every_target_is_phony_and_has_help():
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert targets == phony
    assert targets == set(re.findall(r"^([a-z]+):.*  ## \S", MAKEFILE, re.MULTILINE))


def test_the_checks_before_a_merge_call_targets_that_exist():
    lines = [line.partition("#")[0] for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    called = {target for line in lines for words in re.findall(r"\b(?:make|both) ([a-z ]+)", line) for target in words.split()}
    assert (
        {"lint", "site", "docker", "wheel", "test", "fuzz", "oracles"} <= called <= set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    )


def test_the_workflow_calls_them():
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "checks.yml").read_text()


def test_hooks_fetch_nothing():
    assert set(re.findall(r"repo: (\S+)", (ROOT / ".pre-commit-config.yaml").read_text())) == {"local"}


def test_containers_do_not_run_as_root():
    users = re.findall(r"^USER (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_of_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []

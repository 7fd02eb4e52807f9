"""Links between pages lead to a file and to a heading of it; every page is in the navigation of the site; pictures are small."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
MAX_PICTURE = 200_000


def _links(page: Path) -> list[tuple[str, str]]:
    """(path, anchor) of each link to a file or heading of the project."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text)


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page: those that it names, and one for each heading, as repositories and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)) | set(re.findall(r"\{#([\w.§-]+)[ }]", text))
    anchors: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.+?)(?: \{#.*\})?$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchors[anchor] = anchors.get(anchor, -1) + 1
    return named | {anchor if not again else f"{anchor}-{again}" for anchor, last in anchors.items() for again in range(last + 1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_to_a_heading(page):
    for path, anchor in _links(page):
        target = page.parent / path if path else page
        assert target.exists(), f"{path} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in _anchors(target.resolve()), f"{path}#{anchor}: no such heading"


def test_every_page_of_docs_is_in_the_navigation_and_nothing_else():
    nav = set(re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.MULTILINE))
    outside = {"index.md", "contributing.md", "changelog.md", "security.md", "measuring.md"}
    assert nav - outside == {page.name for page in (ROOT / "docs").glob("*.md")}
    assert "  - Rule book: rules/\n" in (ROOT / "mkdocs.yml").read_text()


def test_pictures_are_shown_described_and_small():
    shown = {
        (page.parent / path).resolve(): text
        for page in PAGES
        for text, path in re.findall(r"!\[([^\]]*)\]\(([^)#:\s]+)\)", page.read_text())
    }
    stored = {path for path in (ROOT / "docs" / "pictures").iterdir() if path.suffix in (".png", ".svg")}
    assert stored == set(shown)
    assert all(shown.values()), "a picture has a text for readers who do not see it"
    assert {path.name: path.stat().st_size for path in stored if path.stat().st_size > MAX_PICTURE} == {}


def test_the_site_loads_nothing_from_elsewhere():
    for file in ("mkdocs.yml", "docs/assets/site.css", "docs/assets/iframe-worker.js"):
        assert "//" not in re.sub(r"^ *//.*|http://www.w3.org/\S+", "", (ROOT / file).read_text(), flags=re.MULTILINE), file

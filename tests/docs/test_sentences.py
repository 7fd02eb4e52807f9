"""Sentences of the pages are short: 20 words is the aim, 25 the limit. Code, tables and headings do not count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_WORDS = 25
ALLOWED = {"performance.md": 45}
"""Page -> its own limit: sentences that list figures."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sentences(text: str) -> list[str]:
    """The sentences of a page; code is one word, and a link is its text."""
    for block in (r"^```.*?^```", r"^\|.*$", r"<!--.*?-->", r"^#.*$"):
        text = re.sub(block, "\n", text, flags=re.MULTILINE | (re.DOTALL if "`" in block or "!" in block else 0))
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        line = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", " ".join(paragraph.split())))
        found += re.split(r"(?<=[.!?])\s+(?=[A-Z\[*\"(]|code)|(?<=:)\s+(?=[A-Z])", line)
    return found


def test_sentences_are_found_across_lines_and_without_code():
    text = "# A title\n\nOne `a b c` and\ntwo. Three:\n\n```sh\nnot. this\n```\n\n- four [five](six.md)\n- seven\n\n| a | table |\n"
    assert [one for one in sentences(text) if one] == ["One code and two.", "Three:", "- four [five]", "- seven"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_long(page):
    limit = ALLOWED.get(page.name, MAX_WORDS)
    long = [one for one in sentences(page.read_text()) if len(re.findall(r"[\w'’]+", one)) > limit]
    assert not long, f"over {limit} words: {long[0]}"

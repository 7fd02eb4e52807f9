"""Text is escaped unless it was built as markup."""

from __future__ import annotations

import pytest

from wirelake.explore.markup import element, join, text, trusted


def test_text_is_text() -> None:
    assert element("p", "<b>&\"'") == "<p>&lt;b&gt;&amp;&quot;&#x27;</p>"


def test_elements_nest() -> None:
    assert element("ul", (element("li", str(one)) for one in (1, 2))) == "<ul><li>1</li><li>2</li></ul>"


def test_attributes_are_escaped_and_named() -> None:
    made = element("td", "x", class_="a", data_label='"><script>', title=None)
    assert made == '<td class="a" data-label="&quot;&gt;&lt;script&gt;">x</td>'


def test_trusted_html_is_not_escaped() -> None:
    assert join([trusted("<svg></svg>"), "<svg>"]) == "<svg></svg>&lt;svg&gt;"


@pytest.mark.parametrize(
    ("hidden", "seen"),
    [("\x00", "\\x00"), ("\x1b[31m", "\\x1b[31m"), ("\u202e", "\\u202e"), ("\ud800", "\\ud800"), ("é\n", "é\n"), ("\u200b", "\\u200b")],
)
def test_invisible_characters_are_written_out(hidden: str, seen: str) -> None:
    assert text(f"a{hidden}b") == f"a{seen}b"

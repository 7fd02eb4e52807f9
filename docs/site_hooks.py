"""Hooks of mkdocs (`make site`): pages from outside docs/, the rule book in the navigation, diagrams as SVG.

Pages are written for people who read them in the repository. Here their links are turned to where the same file is in the site.
"""

from __future__ import annotations

import html
import itertools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "measuring.md",
}
"""Page outside docs/ -> its name in the site."""
SOURCE = "source/"
"""Folder of the site for files of the repository that pages link to, such as examples."""
RULES = "rules/"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_numbers = itertools.count()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw diagrams while building, name anchors as repositories do, and list the rule book."""
    fence = {"name": "mermaid", "class": "mermaid", "format": draw}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    config.nav = list(_present(config.nav or []))
    return config


def _present(entries: list[Any]) -> Iterator[Any]:
    """The entries of the navigation, with all pages of the rule book, and without files that this checkout does not have."""
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            yield {title: list(_present(target))}
        elif target == RULES:
            if pages := sorted(
                (ROOT / "docs" / RULES).glob("*.md"), key=lambda page: (page.name not in ("README.md", "index.md"), page.name)
            ):
                yield {title: [RULES + page.name for page in pages]}
        elif target not in OUTSIDE.values() or any((ROOT / path).exists() for path, name in OUTSIDE.items() if name == target):
            yield entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, and every file of the repository that a page links to."""
    for path, name in OUTSIDE.items():
        if (ROOT / path).exists():
            files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    for page in list(files.documentation_pages()):
        home = _home(page.src_uri)
        for target in sorted({match[2] for match in _LINK.finditer(page.content_string)}):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(home), target))
            if _is_source(path) and SOURCE + path not in files.src_uris:
                files.append(File.generated(config, SOURCE + path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links that leave docs/ to where the file is in the site; a folder that is not in the site loses its link."""
    home = _home(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), match[2]))
        name = _name_in_site(path)
        if name is None:
            return match[1] if (ROOT / path).is_dir() else match[0]
        return f"[{match[1]}]({posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or '.')}{match[3] or ''})"

    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in _FENCE.split(markdown))


def _home(uri: str) -> str:
    """Where a page of the site is in the repository."""
    return next((path for path, name in OUTSIDE.items() if name == uri), f"docs/{uri}")


def _is_source(path: str) -> bool:
    return not path.startswith(("docs/", "..")) and path not in OUTSIDE and (ROOT / path).is_file()


def _name_in_site(path: str) -> str | None:
    """Where a file or folder of the repository is in the site; None if it is not there."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if _is_source(path):
        return SOURCE + path
    if (ROOT / path).is_dir():  # a folder is shown by its README, as repositories do
        readme = next((name for name in ("README.md", "index.md") if (ROOT / path / name).exists()), None)
        return None if readme is None else _name_in_site(f"{path}/{readme}")
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def draw(source: str, *_: Any, **__: Any) -> str:
    """A mermaid diagram as SVG in the page: nothing has to be loaded or run to see it."""
    svg = mmdr.render(source).svg().replace("merman", f"diagram-{next(_numbers)}")
    return f'<div class="diagram" role="img" aria-label="{html.escape(source.split(None, 1)[0])}">{svg}</div>'

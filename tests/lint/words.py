"""Find private words in user-visible text: `python -m tests.lint.words`, run by `make lint`.

User-visible text is: the pages at the top (README.md, …), docs/*.md, help texts of commands, texts of raised errors, lines that commands
print, and column comments.
`WORDS` lists each private word with the field's term to write instead. Text in backticks is code and is not checked.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]

WORDS: Final = {
    r"rooms?(?! (?:for|to) )": "protocol",  # "no room for one" is plain English, and the text of a rule
    r"furniture": "modules",
    r"manners": "timeouts, options",
    r"haste|hasty": "JVM flags for short sessions",
    r"courses": "state changes",
    r"portions?": "micro-batch",
    r"parcels?": "packet batch",
    r"shipments?|shipped": "transfer, sent",
    r"dealt": "partitioned",
    r"stretch(?:es)?": "byte range",
    r"tongues?": "serializer",
    r"ears?": "passive decoder",
    r"prologues?": "handshake",
    r"tall(?:y|ies)": "accounting, minute index",
    r"talks": "speaks, connection index",
    r"books": "ledger entries",
    r"anew": "again",
    r"whoever": "name the actor or the condition",
    r"somebody|anybody": "name the actor",
    r"refuses to know": "does not depend on",
    r"told": "configured, reported, given",
}
"""Regular expression of a private word -> the term to write instead."""

_PATTERN: Final = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
_CODE: Final = re.compile(r"``.+?``|`[^`]*`")
_PRINTED: Final = {"say", "echo", "UsageError", "LakeError"}
"""Functions whose arguments people read; errors that are made before they are raised are here, too."""
_COMMAND: Final = re.compile(r"(?:click|\w+)\.(?:command|group)\b")


class Finding(NamedTuple):
    """One private word, and where it stands."""

    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.word!r}: write {self.instead}"


def _instead(word: str) -> str:
    return next(instead for pattern, instead in WORDS.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def in_text(path: Path, text: str, first: int = 1) -> Iterator[Finding]:
    """Find private words in a text that begins on a line of a file."""
    blank = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for number, line in enumerate(blank.split("\n"), first):
        for match in _PATTERN.finditer(line):
            yield Finding(path, number, match[0], _instead(match[0]))


def _strings(node: ast.AST) -> Iterator[ast.Constant]:
    """The string literals in an expression; the words between the values of an f-string are among them."""
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child


def _visible(tree: ast.Module) -> Iterator[ast.Constant]:
    """The string literals of a module that people read: errors, help texts, printed lines, column comments."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=args, keywords=keywords)):
                for argument in (*args, *keywords):
                    yield from _strings(argument)
            case ast.Call(func=ast.Name(id="column" | "field") | ast.Attribute(attr="column" | "field"), args=[_, _, comment, *_]):
                yield from _strings(comment)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in _PRINTED:
                for argument in args:
                    yield from _strings(argument)
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if keyword.arg in ("help", "short_help"):
                        yield from _strings(keyword.value)
            case ast.FunctionDef(decorator_list=decorators, body=[ast.Expr(value=ast.Constant() as doc), *_]):
                if any(_COMMAND.match(ast.unparse(one)) for one in decorators):
                    yield doc


def in_module(path: Path) -> Iterator[Finding]:
    """Find private words in what a module shows to people."""
    for string in {id(one): one for one in _visible(ast.parse(path.read_text()))}.values():
        yield from in_text(path, str(string.value), string.lineno)


def findings() -> list[Finding]:
    """Every private word in user-visible text of the project, by place."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
    found = [one for page in pages for one in in_text(page, page.read_text())]
    return sorted([*found, *(one for path in (ROOT / "src").rglob("*.py") for one in in_module(path))])


def main() -> int:
    """Print findings; return 1 if there is one."""
    found = findings()
    for one in found:
        print(one)
    print(f"private words in user-visible text: {len(found)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

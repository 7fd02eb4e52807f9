"""Check the first line of a commit message: `python -m tests.lint.commit_subject FILE`, run by git (`make hooks`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

MAX_LENGTH: Final = 72
"""Characters of a subject."""
_SUBJECT: Final = re.compile(r"(?:fixup! |squash! )?[a-z][a-z0-9_.]*(?:, [a-z][a-z0-9_.]*)*: \S")
_BY_GIT: Final = ("Merge ", "Revert ")


def problem(message: str) -> str:
    """Describe what is wrong with the subject of a commit message; empty if nothing is."""
    subject, _, rest = message.partition("\n")
    if subject.startswith(_BY_GIT):
        return ""
    if len(subject) > MAX_LENGTH:
        return f"the subject has {len(subject)} characters; write at most {MAX_LENGTH}, and the rest into the body"
    if not _SUBJECT.match(subject):
        return f"{subject!r} names no area; write `area: what changes`, as `relink: resume a channel after a reconnect`"
    if rest.strip() and not rest.startswith("\n"):
        return "the body begins on the second line; leave that line empty"
    return ""


def main() -> int:
    """Print the problem of a message in a file; return 1 if there is one."""
    wrong = problem(Path(sys.argv[1]).read_text())
    if wrong:
        print(wrong, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every bug can still be seeded: its text is in its file once, and its tests exist."""

from __future__ import annotations

from tests.seeding.__main__ import check
from tests.seeding.bugs import BUGS


def test_every_bug_can_be_seeded() -> None:
    check(BUGS)
    assert len({bug.name for bug in BUGS}) == len(BUGS)

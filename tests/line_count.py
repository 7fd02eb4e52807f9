"""Count the lines of chosen modules that an action runs: a measure of work that is equal on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(action: Callable[[], object], *modules: ModuleType) -> int:
    """Count the lines of these modules that the action runs."""
    files, count = {module.__file__ for module in modules}, 0

    def inside(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return inside

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        return inside if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        action()
    finally:
        sys.settrace(before)
    return count

"""Errors across the Spark boundary: codes go in, one-line errors come out.

Spark turns the error of a task into text before the driver sees it. So functions that Spark calls run inside `coded`, which adds a line
with a stable code. `translated` finds that line on the driver. Only codes are matched, never wording.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException

from wirelake.errors import CaptureError, ErrorCode, LakeError, WirelakeError
from wirelake.masking import mask

__all__ = ["coded", "one_line_if_full", "translated"]

_CODED: Final = re.compile(r"^\[(WL-[A-Z-]+)\] (.+)$", re.MULTILINE)
"""The line that `coded` adds, as it stands in the text of Spark's error."""

_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)
"""Any other error of a task, for instance of a full disk. Only shown to people."""


_FULL: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
"""How a full disk shows: the JVM and delta-rs hand on the text of the system's error, and not its number."""


@contextmanager
def coded() -> Iterator[None]:
    """Add the code and the text of our errors as a note, which Python prints below the error.

    Their type and text stay.
    """
    try:
        yield
    except WirelakeError as error:
        line = f"[{error.code}] {' '.join(str(error).splitlines())}"
        if line not in getattr(error, "__notes__", ()):
            error.add_note(line)
        raise


@contextmanager
def translated(lake: Path) -> Iterator[None]:
    """Raise one LakeError, with one line of text and a code, in place of what Spark wrapped around it."""
    try:
        yield
    except CaptureError as error:  # on the driver, while planning
        raise _lake_error(str(error), error.code) from error
    except PySparkException as error:
        text = str(error)
        if lines := _CODED.findall(text):
            code, message = lines[-1]  # the outermost error comes last
            raise _lake_error(message, ErrorCode(code) if code in list(ErrorCode) else ErrorCode.OTHER) from error
        causes = _PYTHON_ERROR.findall(text) or text.strip().splitlines()[:1] or [type(error).__name__]
        raise LakeError(mask(f"{lake}: the Spark job failed: {causes[-1]}")) from error


@contextmanager
def one_line_if_full(lake: Path) -> Iterator[None]:
    """Raise one LakeError with one sentence in place of any error that a full disk caused."""
    try:
        yield
    except (OSError, WirelakeError, PySparkException) as error:
        if not any(text in str(error) for text in _FULL):
            raise
        text = f"{lake}: no space left on a disk: make room, and run the command again; the lake is as of its last whole batch"
        raise _lake_error(text, ErrorCode.DISK_FULL) from error


def _lake_error(text: str, code: ErrorCode) -> LakeError:
    error = LakeError(text)
    error.code = code
    return error

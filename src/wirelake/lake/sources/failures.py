"""Notes of failed tasks: the sources a task could not decode, as files for the driver.

Spark hands on the text of an error, not its sources. So a task that fails writes a note beside the lake's tables: a code, the sources, the
reason. The driver takes the notes of a failed attempt and acts on their codes. Then it retries the batch.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from wirelake.capture.blocks.block import Source
from wirelake.errors import ErrorCode, LakeError, WirelakeError
from wirelake.lake.store import journal

__all__ = ["Failure", "fail", "folder", "guard", "take"]

_FOLDER: Final = "failures"
_NAMED: Final = 3
"""Sources that the text of an error names."""


class Failure(msgspec.Struct, frozen=True):
    """Sources that a task could not decode, and why."""

    code: ErrorCode
    """DECODER_FAILED: retry with these sources in quarantine.

    NEEDS_SHUFFLE: retry with all connections partitioned.
    """
    sources: list[Source]
    reason: str


def folder(lake: Path, attempt: str) -> Path:
    """The folder where the tasks of an attempt write their notes."""
    return lake / journal.FOLDER / _FOLDER / (attempt or "attempt")


def fail(notes: Path | None, failure: Failure, detail: str = "") -> LakeError:
    """Write a note, if there is a folder for it, and make the error to raise."""
    if notes is not None:
        notes.mkdir(parents=True, exist_ok=True)
        draft = notes / f"{uuid.uuid4().hex}.new"
        draft.write_bytes(msgspec.json.encode(failure))
        draft.rename(draft.with_suffix(".json"))
    names = ", ".join(source.path for source in failure.sources[:_NAMED]) or "unknown source"
    error = LakeError(f"{names}: {failure.reason}{f': {detail}' if detail else ''}")
    error.code = failure.code
    return error


def take(lake: Path, attempt: str) -> list[Failure]:
    """Read the notes of an attempt; the notes of all attempts are removed."""
    notes = [msgspec.json.decode(path.read_bytes(), type=Failure) for path in sorted(folder(lake, attempt).glob("*.json"))]
    shutil.rmtree(lake / journal.FOLDER / _FOLDER, ignore_errors=True)
    return notes


@contextmanager
def guard(notes: Path | None, suspects: Callable[[], list[Source]]) -> Iterator[None]:
    """Turn an unexpected error of decoding into one that names its sources.

    Errors of ours and of a disk pass unchanged.
    """
    try:
        yield
    except (OSError, WirelakeError):
        raise
    except Exception as error:
        reason = f"decoder failed: {type(error).__name__}"
        raise fail(notes, Failure(ErrorCode.DECODER_FAILED, suspects(), reason), str(error)) from error

"""Failures of tasks: which sources a task could not decode, told to the driver by files beside the lake's tables.

Spark wraps the error of a task into text. The driver must not act on wording, so a task writes down a code, the sources and the reason
before it fails. The driver takes these notes after a failed attempt, and repeats the batch with those sources in quarantine.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from wirelake.capture.blocks.block import (
    ORIGIN_OFFSET,
    ORIGIN_START,
    SEGMENT_FLOW,
    SEGMENT_START,
    SEGMENT_STOP,
    SOURCE_SHIFT,
    Block,
    Source,
)
from wirelake.errors import CaptureError, LakeError, WirelakeError
from wirelake.lake.store import journal
from wirelake.masking import mask

if TYPE_CHECKING:
    from wirelake.lake.decode.decoder import Batches, Decoder

__all__ = ["Code", "Failure", "decode", "finish", "folder", "note", "noted", "plainly", "take"]

_FOLDER: Final = "failures"


class Code(StrEnum):
    """What the driver is to do about a failure."""

    DECODER = "decoder"
    """Repeat the batch with these sources in quarantine."""
    NOT_ALONE = "not alone"
    """Repeat the batch, and deal all connections among tasks."""


class Failure(msgspec.Struct, frozen=True):
    """Sources that a task could not decode."""

    code: Code
    sources: list[Source]
    reason: str


def folder(lake: Path, attempt: str) -> Path:
    """Where the tasks of an attempt write down their failures."""
    return lake / journal.FOLDER / _FOLDER / (attempt or "attempt")


def note(place: Path | None, failure: Failure) -> None:
    """Write down a failure, unless there is no place for it."""
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        draft = place / f"{uuid.uuid4().hex}.new"
        draft.write_bytes(msgspec.json.encode(failure))
        draft.rename(draft.with_suffix(".json"))


def take(lake: Path, attempt: str) -> list[Failure]:
    """The failures of an attempt; all notes are removed."""
    found = [msgspec.json.decode(path.read_bytes(), type=Failure) for path in sorted(folder(lake, attempt).glob("*.json"))]
    shutil.rmtree(lake / journal.FOLDER / _FOLDER, ignore_errors=True)
    return found


@contextmanager
def noted(place: Path | None, blamed: Callable[[], list[Source]]) -> Iterator[None]:
    """Turn any error of decoding into one that names the sources. Errors that say what is wrong already, or of a disk, stay as they are."""
    try:
        yield
    except (OSError, WirelakeError):
        raise
    except Exception as error:
        sources = blamed()
        reason = f"decoder failed: {type(error).__name__}"
        note(place, Failure(Code.DECODER, sources, reason))
        names = ", ".join(source.path for source in sources[:3]) or "unknown source"
        raise LakeError(f"{names}: {reason}: {error}") from error


def decode(
    decoder: Decoder, blocks: Iterable[Block], source: Source | None, fresh: Callable[[], Decoder], place: Path | None
) -> Iterator[Batches]:
    """The rows of blocks, which come of a source, or of several if it is None; `fresh` makes a decoder to find out whose block fails."""
    coming, current = iter(blocks), list[Block]()

    def blamed() -> list[Source]:
        if current:
            return _culprits(current[0], fresh)
        return [source] if source is not None else decoder.decoder_state.sources

    while True:
        current.clear()
        with noted(place, blamed):
            current.extend(islice(coming, 1))
            if not current:
                return
            rows = decoder.feed(current[0])
        yield rows


def finish(decoder: Decoder, place: Path | None) -> Batches:
    """What is left when no more blocks come. If that fails, all sources are to blame of which something waited."""
    waiting = list(decoder.decoder_state.sources)
    with noted(place, lambda: waiting):
        return decoder.finish()


def _culprits(block: Block, fresh: Callable[[], Decoder]) -> list[Source]:
    """The sources of those connections of a block that cannot be decoded by themselves; all of its sources if each of them can."""
    sources = block.all_sources()
    if len(sources) == 1:
        return sources
    guilty: set[int] = set()
    for number in range(len(block.flows)):
        segments = block.segments[block.segments[:, SEGMENT_FLOW] == number]
        alone = Block(block.source, block.data, segments, block.origins, block.flows, sources=block.sources, spans=block.spans)
        try:
            fresh().feed(alone)
        except Exception:  # whatever it is: it was raised before
            for start, stop in segments[:, [SEGMENT_START, SEGMENT_STOP]].tolist():
                first = np.searchsorted(block.origins[:, ORIGIN_START], start, side="right") - 1
                last = np.searchsorted(block.origins[:, ORIGIN_START], stop, side="left")
                guilty |= set((block.origins[first:last, ORIGIN_OFFSET] >> SOURCE_SHIFT).tolist())
    return [sources[number] for number in sorted(guilty)] or sources


_OURS: Final = re.compile(r"^(?:wirelake\.errors\.)(\w+): (.+)$", re.MULTILINE)
"""How one of our errors, raised in a task or at commit, looks in the text of Spark's."""

_PYTHONS: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)
"""How any other error of a task looks there, for instance of a full disk: the last one is the cause."""


@contextmanager
def plainly(lake: Path) -> Iterator[None]:
    """Say what went wrong in one line, whatever Spark wrapped around it."""
    try:
        yield
    except CaptureError as error:  # on the driver, while planning
        raise LakeError(str(error)) from error
    except WirelakeError:
        raise
    except Exception as error:
        from pyspark.errors import PySparkException  # noqa: PLC0415 - only Spark work pays for importing Spark

        if not isinstance(error, PySparkException):
            raise
        text = str(error)
        if ours := _OURS.findall(text):
            raise LakeError(ours[-1][1]) from error
        blamed = _PYTHONS.findall(text) or text.strip().splitlines()[:1]
        raise LakeError(mask(f"{lake}: the Spark job failed: {blamed[-1]}")) from error

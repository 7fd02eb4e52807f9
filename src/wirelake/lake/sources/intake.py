"""What an ingest reads and removes: files sorted by what the ledger says of them. Contents count, not names.

Each function looks at a lake that is held for writing, and changes nothing that a table counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.compute as pc

from wirelake.capture.blocks.block import Source
from wirelake.capture.containers.walk import CUT_SHORT
from wirelake.capture.files.growing import Offset
from wirelake.capture.files.identity import KnownFile, identify
from wirelake.errors import CaptureError, LakeError
from wirelake.lake.store import delta, journal, state_file
from wirelake.lake.store.journal import Following
from wirelake.lake.store.progress import Positions, positions
from wirelake.lake.store.removal import Inventory, Removal
from wirelake.lake.tables import quarantine

__all__ = ["Like", "Plan", "again", "continued", "forget", "new"]

_LOG: Final = logging.getLogger("wirelake.lake")


class Like(msgspec.Struct, frozen=True):
    """The source whose contents a file has."""

    path: str
    is_part: bool = False
    """Whether the file is but the beginning of it."""


class Plan(msgspec.Struct):
    """What is to be done."""

    fresh: list[Source] = []
    """Sources to read."""
    read: dict[bytes, int] = {}
    """How far those of them were read before that have grown since."""
    skipped: dict[str, bytes] = {}
    """Files that the lake has already, or has with another one of these files, and which source each is."""
    likes: dict[str, Like] = {}
    """What each of them equals."""
    changed: list[str] = []
    removal: Removal | None = None
    """Sources whose rows go, whether or not they are read again."""
    following: Following | None = None
    """What following goes on with after that; None if nothing was ever followed."""
    reread: list[str] = []
    """Sources that nobody named: they are read again because they were decoded together with one that goes."""
    continued: list[str] = []
    """Files that ended in the middle of a record when they were read, and have grown: they are read from their first byte."""


def new(lake: Path, paths: Iterable[str]) -> Plan:
    """Read files that the lake does not have, and the rest of those that have grown."""
    sources = list(map(identify, paths))
    return _continued(lake, sources, sources) or _sorted(Plan(), positions(lake), sources)


def continued(lake: Path, paths: Iterable[str]) -> Plan:
    """Remove sources that ended in the middle of a record, and whose files here have grown since: following reads them whole."""
    sources = []
    for path in paths:
        with suppress(CaptureError):  # it is gone again
            sources.append(identify(path))
    return _continued(lake, sources, []) or Plan()


def _continued(lake: Path, sources: list[Source], found: list[Source]) -> Plan | None:
    """Read files from their first byte that have grown since their last record was cut; None if there are none, or it cannot be done.

    Their last bytes are in quarantine, and the record that they belong to is whole now.
    """
    columns = {"columns": ["source", "offset", "length"], "filter": pc.field("reason") == CUT_SHORT}
    cuts = {(row["source"], row["offset"] + row["length"]) for row in delta.dataset(lake, quarantine.TABLE).to_table(**columns).to_pylist()}
    if not cuts:
        return None
    known = positions(lake)
    paths = {one.source.id: one.source.path for one in known.all if (one.source.path, one.end) in cuts}
    grown: dict[bytes, str] = {}
    for one in sources:
        if one.id not in paths and one.path not in paths.values():
            continue  # comparing contents costs a read
        told = known.place(one)
        if told.is_known and not told.is_other and told.end < one.size and (paths.get(told.source.id), told.end) in cuts:
            grown[told.source.id] = one.path
    if not grown:
        return None
    try:
        plan = _without(lake, Inventory(lake), set(grown), found)
    except LakeError as error:
        _LOG.warning("%s: read on after its end, which was cut in the middle of a record: %s", ", ".join(grown.values()), error)
        return None
    if not found and not set(plan.reread) <= {one.path for one in sources}:
        return None  # following would not read the others again
    plan.continued = sorted(grown.values())
    return plan


def _sorted(plan: Plan, known: Positions, sources: Iterable[Source]) -> Plan:
    named = list(sources)
    # The longest first: a shorter copy of it has nothing new, whatever their names.
    for found in sorted(named, key=lambda one: (-one.size, one.path)):
        told = known.place(found)
        if told.is_other:
            plan.changed.append(found.path)
        elif told.is_known and told.end == found.size:
            plan.skipped[found.path] = told.source.id
            plan.likes[found.path] = Like(told.like, told.is_part)
        else:
            plan.fresh.append(told.source)
            plan.read |= {told.source.id: told.end} if told.end else {}
            known.add(KnownFile(told.source, found.size, is_here=True))
    plan.skipped = {one.path: plan.skipped[one.path] for one in named if one.path in plan.skipped}  # in the order of the arguments
    return plan


def again(lake: Path, paths: Iterable[str]) -> Plan:
    """Read files from their first byte, whatever the lake has of them or of others that had their names; that goes."""
    known, inventory = positions(lake), Inventory(lake)
    found = [identify(path) for path in paths]
    asked: set[bytes] = set()
    for one in found:
        told = known.place(one)
        if told.is_part and one.path != told.like:
            continue  # the source is longer than this file: without it, bytes would be gone
        asked |= inventory.at(one.path) if told.is_other else {told.source.id} if told.is_known else set()
    return _without(lake, inventory, asked, found)


def forget(lake: Path, names: Iterable[str]) -> Plan:
    """Remove sources, by their path, id, or unique file name."""
    inventory = Inventory(lake)
    return _without(lake, inventory, {one for name in names for one in inventory.named(name)}, [])


def _without(lake: Path, inventory: Inventory, asked: set[bytes], found: list[Source]) -> Plan:
    """Remove sources that somebody asked for, with those that depend on them; read the latter again, and the files that were found."""
    if not asked:
        return _sorted(Plan(), positions(lake), found)
    removal = inventory.removal(asked)
    rest = inventory.without(removal)
    others = [] if removal.ids == asked else _others(lake, removal, asked, {one.path for one in found})
    plan = Plan(removal=removal, following=_following(lake, inventory, removal), reread=[one.path for one in others])
    return _sorted(plan, rest, [*found, *others])


def _others(lake: Path, removal: Removal, asked: set[bytes], named: set[str]) -> list[Source]:
    """The files of sources that go though nobody named them; each must still have what was read of it."""
    known = positions(lake)
    others = []
    for one in known.all:
        if one.source.id not in removal.ids - asked or one.source.path in named:
            continue
        path = one.source.path
        why = "it has other contents now"
        try:
            there = identify(path)
            told = known.place(there)
            if told.is_known and told.source.id == one.source.id:
                others.append(there)
                continue
        except CaptureError as error:
            why = error.reason
        raise LakeError(
            f"{path} cannot be read again ({why}), and has connections that go on in a source that is to go: name it, too, or bring it back"
        )
    return others


def _following(lake: Path, inventory: Inventory, removal: Removal) -> Following | None:
    """What following goes on with when sources are gone: without their positions, and without a memory of their connections."""
    now = journal.following(lake)
    if now is None:
        return None
    files = tuple(one for one in now.offset.files if one.id not in removal.ids)
    if not files and all(one.source.id in removal.ids for one in now.waiting):
        return Following(Offset(settled=now.offset.settled), now.buckets)  # nothing is left to go on with: no state is read
    if now.offset.is_open or now.waiting:
        raise LakeError(
            f"{lake} waits for more of a folder that was followed: end that first with `wirelake ingest LAKE --follow FOLDER --once`"
        )
    gone = inventory.connections(removal)
    memories = {}
    for bucket, name in now.memories.items():
        assembly, taken = state_file.read(lake, name)
        decoder_state = state_file.decoder_state(lake, name, taken)
        decoder_state.drop(gone)
        memories[bucket] = state_file.write(lake, name.rsplit("-", 1)[0], assembly, decoder_state.take())
    return Following(msgspec.structs.replace(now.offset, files=files), now.buckets, memories)

"""What an ingest reads and removes: files sorted by what the ledger says of them. Contents count, not names.

Each function looks at a lake that is held for writing, and changes nothing that a table counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from wirelake.capture.blocks import Source
from wirelake.capture.following import Offset
from wirelake.capture.identity import Known, identify, mark
from wirelake.errors import CaptureError, LakeError
from wirelake.lake import journal, state_file
from wirelake.lake.journal import Following
from wirelake.lake.positions import Positions, positions
from wirelake.lake.removal import Inventory, Removal

__all__ = ["Plan", "again", "forget", "new"]


class Plan(msgspec.Struct):
    """What is to be done."""

    fresh: list[Source] = []
    """Sources to read."""
    read: dict[bytes, int] = {}
    """How far those of them were read before that have grown since."""
    skipped: dict[str, bytes] = {}
    """Files that the lake has already, and which source each is."""
    changed: list[str] = []
    removal: Removal | None = None
    """Sources whose rows go, whether or not they are read again."""
    following: Following | None = None
    """What following goes on with after that; None if nothing was ever followed."""
    reread: list[str] = []
    """Sources that nobody named: they are read again because they were decoded together with one that goes."""


def new(lake: Path, paths: Iterable[str]) -> Plan:
    """Read files that the lake does not have, and the rest of those that have grown."""
    return _sorted(Plan(), positions(lake), map(identify, paths))


def _sorted(plan: Plan, known: Positions, sources: Iterable[Source]) -> Plan:
    for found in sources:
        told = known.place(found)
        if told.is_other:
            plan.changed.append(found.path)
        elif told.is_known and told.end == found.size:
            plan.skipped[found.path] = told.source.id
        else:
            plan.fresh.append(told.source)
            plan.read |= {told.source.id: told.end} if told.end else {}
            known.add(Known(told.source, found.size, mark(found, found.size)))
    return plan


def again(lake: Path, paths: Iterable[str]) -> Plan:
    """Read files from their first byte, whatever the lake has of them or of others that had their names; that goes."""
    known, inventory = positions(lake), Inventory(lake)
    found = [identify(path) for path in paths]
    asked: set[bytes] = set()
    for one in found:
        told = known.place(one)
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
        memory = state_file.memory(lake, name, taken)
        memory.drop(gone)
        memories[bucket] = state_file.write(lake, name.rsplit("-", 1)[0], assembly, memory.take())
    return Following(msgspec.structs.replace(now.offset, files=files), now.buckets, memories)

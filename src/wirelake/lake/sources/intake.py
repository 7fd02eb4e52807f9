"""Intake: which sources a job reads and removes, by content and not by name.

Input files are compared with the ledger. Sources that the ledger has are skipped, which makes an ingest idempotent. Each function needs the
lake's lock, and changes no table.
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
from wirelake.lake.tables import ledger, quarantine

__all__ = ["Like", "Plan", "again", "continued", "forget", "named", "new"]

_LOG: Final = logging.getLogger("wirelake.lake")


class Like(msgspec.Struct, frozen=True):
    """The source whose contents a file has."""

    path: str
    is_part: bool = False
    """Whether the file is only the beginning of it."""


class Plan(msgspec.Struct):
    """Sources to read and to remove."""

    fresh: list[Source] = []
    """Sources to read."""
    read: dict[bytes, int] = {}
    """Source id -> bytes that were read before, for sources that have grown since."""
    skipped: dict[str, bytes] = {}
    """Path -> source id, of files that the lake has already or gets with another one of these files."""
    likes: dict[str, Like] = {}
    """Path of a skipped file -> the source that it equals."""
    changed: list[str] = []
    """Files that the lake has with other contents: they are not read."""
    removal: Removal | None = None
    """Sources whose rows are removed, whether or not they are read again."""
    following: Following | None = None
    """The stream state after the removal; None if no folder was ever followed."""
    reread: list[str] = []
    """Sources that the caller did not name, read again because they were decoded with a removed one."""
    continued: list[str] = []
    """Files that ended in the middle of a record and have grown since: read again from their first byte."""


def named(lake: Path, plan: Plan, observer: str = "") -> Plan:
    """Give the sources to read the name of their observer: the one that the lake has, or else this one.

    A source that is read again has the new name, or else keeps its own.
    """
    rows = delta.dataset(lake, ledger.TABLE).to_table(columns=["source_id", "observer"], filter=pc.field("observer").is_valid())
    known = dict(zip(rows["source_id"].to_pylist(), rows["observer"].to_pylist(), strict=True))
    asked = {source.id for source in plan.fresh if source.path not in plan.reread} & (plan.removal.ids if plan.removal else set())
    names = [(observer if source.id in asked else "") or known.get(source.id) or observer for source in plan.fresh]
    plan.fresh = [msgspec.structs.replace(source, observer=name) for source, name in zip(plan.fresh, names, strict=True)]
    return plan


def new(lake: Path, paths: Iterable[str]) -> Plan:
    """Plan an ingest: files that the lake does not have, and the rest of those that have grown."""
    sources = list(map(identify, paths))
    return _continued(lake, sources, sources) or _sorted(Plan(), positions(lake), sources)


def continued(lake: Path, paths: Iterable[str]) -> Plan:
    """Plan the removal of sources that ended in the middle of a record and have grown since.

    `follow` then reads them whole.
    """
    sources = []
    for path in paths:
        with suppress(CaptureError):  # it is gone again
            sources.append(identify(path))
    return _continued(lake, sources, []) or Plan()


def _continued(lake: Path, sources: list[Source], fresh: list[Source]) -> Plan | None:
    """Plan to read files again that have grown since their last record was cut.

    Returns None if there are none, or it cannot be done.

    Their last bytes are in quarantine. The record that these bytes belong to is complete now.
    """
    columns = {"columns": ["source", "offset", "length"], "filter": pc.field("reason") == CUT_SHORT}
    cuts = {(row["source"], row["offset"] + row["length"]) for row in delta.dataset(lake, quarantine.TABLE).to_table(**columns).to_pylist()}
    if not cuts:
        return None
    known = positions(lake)
    paths = {one.source.id: one.source.path for one in known.all if (one.source.path, one.end) in cuts}
    grown: dict[bytes, str] = {}
    for source in sources:
        if source.id not in paths and source.path not in paths.values():
            continue  # comparing contents costs a read
        position = known.place(source)
        is_same = position.is_known and not position.is_other
        if is_same and position.end < source.size and (paths.get(position.source.id), position.end) in cuts:
            grown[position.source.id] = source.path
    if not grown:
        return None
    try:
        plan = _without(lake, Inventory(lake), set(grown), fresh)
    except LakeError as error:
        _LOG.warning("%s: continued after its end, which was cut in the middle of a record: %s", ", ".join(grown.values()), error)
        return None
    if not fresh and not set(plan.reread) <= {one.path for one in sources}:
        return None  # `follow` would not read the others again
    plan.continued = sorted(grown.values())
    return plan


def _sorted(plan: Plan, known: Positions, sources: Iterable[Source]) -> Plan:
    """Add sources to a plan: to be read, skipped or changed."""
    named = list(sources)
    # The longest first: a shorter copy of it has nothing new, whatever their names.
    for source in sorted(named, key=lambda source: (-source.size, source.path)):
        position = known.place(source)
        if position.is_other:
            plan.changed.append(source.path)
        elif position.is_known and position.end == source.size:
            plan.skipped[source.path] = position.source.id
            plan.likes[source.path] = Like(position.like, position.is_part)
        else:
            plan.fresh.append(position.source)
            plan.read |= {position.source.id: position.end} if position.end else {}
            known.add(KnownFile(position.source, source.size, is_here=True))
    plan.skipped = {one.path: plan.skipped[one.path] for one in named if one.path in plan.skipped}  # in the order of the arguments
    return plan


def again(lake: Path, paths: Iterable[str]) -> Plan:
    """Plan to read files from their first byte, and to remove the rows that the lake has of them.

    Rows of files with their names are removed, too.
    """
    known, inventory = positions(lake), Inventory(lake)
    sources = [identify(path) for path in paths]
    asked: set[bytes] = set()
    for source in sources:
        position = known.place(source)
        if position.is_part and source.path != position.like:
            continue  # the source is longer than this file: removing it would lose bytes
        asked |= inventory.at(source.path) if position.is_other else {position.source.id} if position.is_known else set()
    return _without(lake, inventory, asked, sources)


def forget(lake: Path, names: Iterable[str]) -> Plan:
    """Plan to remove sources, by path, id or unique file name."""
    inventory = Inventory(lake)
    return _without(lake, inventory, {one for name in names for one in inventory.named(name)}, [])


def _without(lake: Path, inventory: Inventory, asked: set[bytes], fresh: list[Source]) -> Plan:
    """Plan to remove the `asked` sources, with those that depend on them.

    It reads the latter again, and the `fresh` files.
    """
    if not asked:
        return _sorted(Plan(), positions(lake), fresh)
    removal = inventory.removal(asked)
    rest = inventory.without(removal)
    others = [] if removal.ids == asked else _others(lake, removal, asked, {one.path for one in fresh})
    plan = Plan(removal=removal, following=_following(lake, inventory, removal), reread=[one.path for one in others])
    return _sorted(plan, rest, [*fresh, *others])


def _others(lake: Path, removal: Removal, asked: set[bytes], named: set[str]) -> list[Source]:
    """The files of removed sources that the caller did not name.

    Each must still have the bytes that were read of it.
    """
    known = positions(lake)
    others = []
    for known_file in known.all:
        if known_file.source.id not in removal.ids - asked or known_file.source.path in named:
            continue
        path = known_file.source.path
        why = "it has other contents now"
        try:
            there = identify(path)
            position = known.place(there)
            if position.is_known and position.source.id == known_file.source.id:
                others.append(there)
                continue
        except CaptureError as error:
            why = error.reason
        raise LakeError(
            f"{path} cannot be read again ({why}), and has connections that go on in a source that is to go: name it, too, or bring it back"
        )
    return others


def _following(lake: Path, inventory: Inventory, removal: Removal) -> Following | None:
    """The stream state without the positions and decoder states of removed sources."""
    now = journal.following(lake)
    if now is None:
        return None
    files = tuple(one for one in now.offset.files if one.id not in removal.ids)
    if not files and all(one.source.id in removal.ids for one in now.waiting):
        return Following(Offset(settled=now.offset.settled), now.buckets)  # nothing is left to continue: no state is read
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

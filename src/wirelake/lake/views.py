"""Views: which session has a connection, and which sessions are views of the same link by several observers.

A session is what one observer saw. Who observed is a fact of each row (`observer`). Which observers saw the same is decided here, from the
connection index and nothing else: so it does not depend on the order of ingests, nor on how they divide the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.capture.blocks.flows import LINK_SIZE, view_id
from wirelake.lake.tables.protocols import LINKS, NODES

__all__ = ["LINK_SIZE", "NO_VIEWS", "USED", "View", "Views", "apart", "counted", "resolved", "view_id", "views"]

NEAR_US: Final = 60_000_000
"""Clocks of two observers may differ by this much: within it the same addresses and ports are the same connection."""
HANDOVER_US: Final = 1_000_000
"""Two capture files of one observer overlap by less: one connection of a link ends while the next begins."""
WIRE: Final = "wire"
_ENDS: Final = ("client_address", "client_port", "server_address", "server_port")
USED: Final = [
    *(
        "protocol",
        "session_id",
        "connection_id",
        "direction",
        "observer",
        "observer_kind",
        "messages",
        "first_seen",
        "last_seen",
        "greeted",
    ),
    *_ENDS,
]
"""Columns of the connection index that views are decided by."""
_KINDS: Final = ("server", "client", WIRE)
"""Kinds of observers: of equally complete views, the first of these is primary."""


class View(msgspec.Struct, frozen=True):
    """A session that is one of several views of the same."""

    link: bytes
    """Equal for all of them."""
    is_primary: bool


class Views(msgspec.Struct, frozen=True):
    """The sessions of all connections, as far as silver tables have others, and the views among them."""

    apart: dict[tuple[bytes, str], bytes] = {}
    """Connection and observer -> the id of the connection as this observer saw it, where two captures have it under one id."""
    sessions: dict[bytes, bytes] = {}
    """Connection -> the session that it is part of, where that is a link."""
    of_session: dict[bytes, View] = {}
    """Session -> what it is, if it is one of several views."""


NO_VIEWS: Final = Views()


class _Seen(NamedTuple):
    """What one observer saw of one session or connection."""

    id: bytes
    observer: str
    kind: str
    first: int
    last: int
    messages: int
    is_greeted: bool

    def overlaps(self, other: _Seen, slack: int = 0) -> bool:
        """Whether both were seen at the same time."""
        return self.first <= other.last + slack and other.first <= self.last + slack

    def with_(self, other: _Seen) -> _Seen:
        """Both together."""
        first = min(self, other, key=lambda one: (one.first, one.observer))
        span = min(self.first, other.first), max(self.last, other.last)
        return first._replace(
            first=span[0], last=span[1], messages=self.messages + other.messages, is_greeted=self.is_greeted or other.is_greeted
        )


def views(index: pa.Table) -> Views:
    """Decide what the rows of a connection index are views of."""
    index = _named(index.select(USED))
    observed = pc.drop_null(pc.unique(index["observer"]))
    is_link = pc.fill_null(pc.is_in(index["protocol"], value_set=pa.array(LINKS, pa.string())), False)
    if len(observed) < 2:
        return Views(sessions=_carried(index.filter(is_link)))
    separate = _separate(index)
    index = apart(index, separate)
    links = index.filter(is_link)
    carried = _carried(links)
    sessions, of_link = _links(links, carried)
    of_pair = _pairs(index.filter(pc.invert(pc.is_in(index["protocol"], value_set=pa.array([*LINKS, *NODES], pa.string())))))
    return Views(separate, sessions, of_link | of_pair)


def resolved(index: pa.Table, known: Views) -> pa.Table:
    """Return the index with the ids of sessions and connections as `known` has them."""
    index = apart(index, known.apart)
    if not known.sessions:
        return index
    is_link = pc.fill_null(pc.is_in(index["protocol"], value_set=pa.array(LINKS, pa.string())), False)
    places = pc.index_in(index["connection_id"], value_set=pa.array(known.sessions, pa.binary()))
    found = pa.array(known.sessions.values(), pa.binary()).take(places.combine_chunks())
    session = pc.if_else(is_link, pc.coalesce(found, index["session_id"]), index["session_id"])
    return _with(index, "session_id", session)


def counted(index: pa.Table, known: Views) -> pa.Table:
    """Return the rows of a resolved index without those of views that are not primary."""
    others = [session_id for session_id, view in known.of_session.items() if not view.is_primary]
    return index.filter(pc.invert(pc.is_in(index["session_id"], value_set=pa.array(others, pa.binary())))) if others else index


def apart(rows: pa.Table, separate: Mapping[tuple[bytes, str], bytes]) -> pa.Table:
    """Give a connection that two captures have under one id the id of each observer. Rows without these columns stay."""
    if not separate or not rows.num_rows:
        return rows
    plain = {name: rows[name].cast(pa.binary() if name != "observer" else pa.string()) for name in ("connection_id", "observer")}
    for (connection_id, observer), other in separate.items():
        chosen = pc.fill_null(pc.and_(pc.equal(plain["connection_id"], connection_id), pc.equal(plain["observer"], observer)), False)
        if not pc.any(chosen).as_py():
            continue
        for name in ("connection_id", "session_id"):
            if name in rows.column_names:
                values = rows[name].cast(pa.binary())
                is_its = pc.and_(chosen, pc.fill_null(pc.equal(values, connection_id), False))
                rows = _with(rows, name, pc.if_else(is_its, pa.scalar(other, pa.binary()), values))
    return rows


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)


def _named(index: pa.Table) -> pa.Table:
    """The index of an older lake has no observers: there a connection's is named after its kind."""
    if not index["observer"].null_count:
        return index
    events = index.filter(pc.is_valid(index["observer_kind"])).group_by("connection_id").aggregate([("observer_kind", "min")])
    places = pc.index_in(index["connection_id"], value_set=events["connection_id"].combine_chunks())
    kinds = events["observer_kind_min"].combine_chunks().take(places.combine_chunks())
    return _with(index, "observer", pc.coalesce(index["observer"].cast(pa.string()), kinds))


def _carried(links: pa.Table) -> dict[bytes, bytes]:
    """Connection -> the link that it carried, also for its messages before the link was agreed on."""
    carried = links.filter(pc.and_(pc.not_equal(links["session_id"], links["connection_id"]), pc.not_equal(links["session_id"], b"")))
    pairs = carried.group_by("connection_id").aggregate([("session_id", "max")])
    return dict(zip(pairs["connection_id"].to_pylist(), pairs["session_id_max"].to_pylist(), strict=True))


def _sums(rows: pa.Table, key: str) -> list[_Seen]:
    """Sum up rows of the index by this key and observer. Keys without messages are left out."""
    said = rows.filter(pc.is_valid(rows["direction"]))
    kinds = rows.filter(pc.is_valid(rows["observer_kind"]))
    of_kind = dict(zip(kinds["observer"].to_pylist(), kinds["observer_kind"].to_pylist(), strict=True))
    times = {name: said[name].cast(pa.int64()) for name in ("first_seen", "last_seen", "greeted")}
    said = pa.table({key: said[key], "observer": said["observer"], "messages": said["messages"], **times})
    how = [("first_seen", "min"), ("last_seen", "max"), ("messages", "sum"), ("greeted", "count")]
    found = said.group_by([key, "observer"]).aggregate(how)
    columns = (found[name].to_pylist() for name in (key, "observer", "first_seen_min", "last_seen_max", "messages_sum", "greeted_count"))
    return [
        _Seen(id_, observer or "", of_kind.get(observer, WIRE), first, last, messages, greeted > 0)
        for id_, observer, first, last, messages, greeted in zip(*columns, strict=True)
        if first is not None
    ]


def _several(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of keys that several observers saw."""
    known = rows.filter(pc.is_valid(rows["observer"]))
    counts = known.group_by(list(keys)).aggregate([("observer", "count_distinct")])
    several = counts.filter(pc.greater(counts["observer_count_distinct"], 1)).select(list(keys))
    return rows.join(several, list(keys), join_type="left semi") if several.num_rows else rows.slice(0, 0)


def _chains(seen: Iterable[_Seen]) -> list[list[_Seen]]:
    """Divide what was seen of one link or connection: parts of one kind that follow each other are of one observer.

    Files of a rotated capture are such parts, and recordings of one peer that has a recorder for each connection. Captures that were named
    have ids of their own, and stay apart.
    """
    chains: list[tuple[_Seen, list[_Seen]]] = []
    for one in sorted(seen, key=lambda one: (one.first, one.last, one.observer, one.id)):
        for number, (whole, members) in enumerate(chains):
            if one.kind == whole.kind and (one.kind != WIRE or one.id == whole.id) and not _is_twice(whole, one):
                chains[number] = whole.with_(one), [*members, one]
                break
        else:
            chains.append((one, [one]))
    return [[whole._replace(id=members[0].id, observer=members[0].observer), *members] for whole, members in chains]


def _is_twice(before: _Seen, after: _Seen) -> bool:
    """Whether two captures have the same at the same time, and not one after the other."""
    common = min(before.last, after.last) - after.first
    shorter = min(before.last - before.first, after.last - after.first)
    return common > HANDOVER_US or (common >= 0 and 2 * common >= shorter)


def _separate(index: pa.Table) -> dict[tuple[bytes, str], bytes]:
    """The connections that two captures have under one id, at the same time. Nodes keep all sightings."""
    rows = index.filter(pc.fill_null(pc.invert(pc.is_in(index["protocol"], value_set=pa.array(NODES, pa.string()))), False))
    rows = rows.filter(pc.not_equal(rows["connection_id"], b""))
    by_connection: dict[bytes, list[_Seen]] = {}
    for one in _sums(_several(rows, ["connection_id"]), "connection_id"):
        by_connection.setdefault(one.id, []).append(one)
    return {
        (id_, one.observer): view_id(id_, whole.observer)
        for id_, seen in by_connection.items()
        for whole, *parts in _chains(seen)[1:]
        for one in parts
        if one.kind == WIRE  # a recorder gives each connection an id of its own
    }


def _links(links: pa.Table, carried: Mapping[bytes, bytes]) -> tuple[dict[bytes, bytes], dict[bytes, View]]:
    """Connection -> session, and the views of each link. A link that several observers have under one id is divided."""
    places = pc.index_in(links["connection_id"], value_set=pa.array(carried, pa.binary()))
    session = pc.coalesce(pa.array(carried.values(), pa.binary()).take(places.combine_chunks()), links["session_id"])
    rows = _with(links, "session_id", session)
    rows = rows.append_column("link", pc.binary_slice(session, 0, LINK_SIZE))
    rows = _several(rows, ["link"])
    by_link: dict[bytes, list[_Seen]] = {}
    for one in _sums(rows, "session_id"):
        by_link.setdefault(one.id[:LINK_SIZE], []).append(one)
    sessions = dict(carried)
    names: dict[tuple[bytes, str], bytes] = {}
    found: dict[bytes, View] = {}
    for link, seen in by_link.items():
        used: dict[bytes, _Seen] = {}
        for whole, *parts in _chains(seen):
            name = whole.id if whole.id not in used else view_id(whole.id, whole.observer)
            used[name] = whole._replace(id=name)
            names |= {(one.id, one.observer): name for one in parts}
        found |= _judged(link, list(used.values()), lambda one, other: one.kind != other.kind or one.overlaps(other))
    if any(session_id != name for (session_id, _), name in names.items()):
        by = ["connection_id", "session_id", "observer"]
        used_by = rows.filter(pc.is_valid(rows["observer"])).group_by(by).aggregate([])
        for connection_id, session_id, observer in zip(*(used_by[name].to_pylist() for name in by), strict=True):
            if connection_id in carried:
                sessions[connection_id] = names.get((session_id, observer), carried[connection_id])
    return sessions, found


def _pairs(index: pa.Table) -> dict[bytes, View]:
    """The views of connections: the same addresses and ports, at the same time, by several observers."""
    events = index.filter(pc.and_(pc.is_null(index["direction"]), pc.is_valid(index["client_port"])))
    events = events.filter(pc.and_(pc.greater(events["client_port"], 0), pc.not_equal(events["client_address"], "")))
    ends = _several(events.select(["protocol", *_ENDS, "connection_id", "observer"]), ["protocol", *_ENDS])
    if not ends.num_rows:
        return {}
    pair_of = {row["connection_id"]: tuple(row[name] for name in ("protocol", *_ENDS)) for row in ends.to_pylist()}
    rows = index.filter(pc.is_in(index["connection_id"], value_set=pa.array(pair_of, pa.binary())))
    by_pair: dict[tuple[object, ...], dict[bytes, _Seen]] = {}
    for one in _sums(rows, "connection_id"):
        mine = by_pair.setdefault(pair_of[one.id], {})
        mine[one.id] = mine[one.id].with_(one) if one.id in mine else one
    found: dict[bytes, View] = {}
    for mine in by_pair.values():
        groups = _groups([[one] for one in mine.values()], lambda one, other: one.overlaps(other))
        for group in _groups(groups, _is_near):
            found |= _viewed(None, group)
    return found


def _is_near(one: _Seen, other: _Seen) -> bool:
    """Whether clocks may explain that two observers saw a connection at other times.

    Observers of one kind are hosts of one clock. Of two captures, one without a handshake is the rest of the other.
    """
    is_begun = one.is_greeted and other.is_greeted if one.kind == other.kind == WIRE else one.kind != other.kind
    return is_begun and one.overlaps(other, NEAR_US)


def _groups(groups: list[list[_Seen]], is_same: Callable[[_Seen, _Seen], bool]) -> list[list[_Seen]]:
    """Put together what is the same, the most complete first. Each observer is in a group once."""
    found: list[list[_Seen]] = []
    for group in sorted(groups, key=lambda group: _completeness(group[0])):
        mine = {one.observer for one in group}
        for other in found:
            if mine.isdisjoint(one.observer for one in other) and is_same(other[0], group[0]):
                other.extend(group)
                break
        else:
            found.append(list(group))
    return found


def _completeness(one: _Seen) -> tuple[object, ...]:
    """Sorts views: the most messages first; of as many, that of the server, then of the client."""
    return -one.messages, _KINDS.index(one.kind), one.observer, one.first, one.id


def _judged(link: bytes, seen: Sequence[_Seen], is_same: Callable[[_Seen, _Seen], bool]) -> dict[bytes, View]:
    """The views of one link."""
    return {session_id: view for group in _groups([[one] for one in seen], is_same) for session_id, view in _viewed(link, group).items()}


def _viewed(link: bytes | None, group: Sequence[_Seen]) -> dict[bytes, View]:
    """The views of a group, of which the first is primary; none if it is alone."""
    if len(group) < 2:
        return {}
    return {one.id: View(link or group[0].id[:LINK_SIZE], not place) for place, one in enumerate(group)}

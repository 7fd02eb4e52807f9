"""Relink's rules over history: each is found where it is broken and nowhere else, and history and live links agree."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.lake.relink_cases import CASES
from tests.lake.relink_recording import Tape, TapedWorld, tell
from tests.protocols.relink.pair import C, L

from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import table
from wirelake.protocols.relink.analyzer import Analyzer
from wirelake.protocols.relink.faults import OURS, TOLERATED, UNREADABLE, Fault

SESSIONS = Path(__file__).parents[1] / "vectors" / "relink-sessions.json"
LEGAL, INTRUDED = range(24), range(100, 170)
NETWORK = {"CLOSED_WITHOUT_PARTING", "MESSAGE_CUT"}
"""What happens where connections are cut, whoever sees it first."""


class Run(msgspec.Struct):
    """Where in the recording something is, and what a live session said of it."""

    start: int
    stop: int
    heard: list[Fault] = []
    is_first: bool = False
    """The link was on its first connection."""
    world: TapedWorld | None = None


def recorded_sessions(tape):
    """What a reference implementation said, cut and taken up again."""
    told = json.loads(SESSIONS.read_text())
    for name in (name for name in told if name.startswith("session")):
        steps, connection = [], "1"
        for step in told[name]:
            if "#" in step["name"]:
                who, number = step["name"].split("#")
                steps += [("cut", b"")] * (number != connection)
                connection = number
                steps.append(("client" if who == "connector" else "server", bytes.fromhex(step["hex"])))
        start = tape.place
        tell(tape, [*steps, ("closed", b"")])
        yield name, Run(start, tape.place)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Everything that is recorded, by name, in one file."""
    tape = Tape(tmp_path_factory.mktemp("rules") / "all.pcapng")
    found = {}
    for link, (name, (story, _)) in enumerate(CASES.items(), 1000):
        start = tape.place
        tell(tape, story(link))
        found[name] = Run(start, tape.place)
    found.update(recorded_sessions(tape))
    for seed in LEGAL:
        for observer in (C, L):
            start = tape.place
            world = TapedWorld(tape, seed, observer)
            world.run()
            found[f"legal {seed} {observer.name}"] = Run(start, tape.place, world.heard, world=world)
    for seed in INTRUDED:
        for observer in (C, L):
            start = tape.place
            world = TapedWorld(tape, seed, observer)
            for _ in range(5 + seed % 40):
                world.step()
            world.heard.clear()
            if world.intrude():
                found[f"intruded {seed} {observer.name}"] = Run(start, tape.place, world.heard, not world.taped[-1].is_resumed)
    tape.recorder.close()
    return tape.path, found


@pytest.fixture(scope="module")
def broken(spark, runs):
    """name -> the rows of `violations` about it."""
    path, found = runs
    ingest(spark, path.parent / "lake", [path])
    rows = delta.dataset(path.parent / "lake", table("violations")).to_table().to_pylist()
    return {name: [row for row in rows if run.start <= row["offset"] < run.stop] for name, run in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_is_found_where_it_is_broken_and_nowhere_else(broken, name):
    assert {(row["rule"], row["direction"]) for row in broken[name]} == CASES[name][1]


def test_a_link_that_ends_without_parting_ended_on_it(broken):
    (row,) = broken["closed without parting"]
    assert (row["ended_session"], row["severity"], row["clause"], row["length"]) == (True, "info", "RELINK-23", 0)
    (row,) = broken["acknowledged too much"]
    assert (row["ended_session"], row["clause"], row["length"]) == (False, "RELINK-15", 8)


def test_the_reference_breaks_no_rule(broken, runs):
    names = [name for name in runs[1] if name.startswith("session")]
    assert len(names) == 2
    assert [row for name in names for row in broken[name]] == []


def test_links_in_a_hostile_network_break_nothing_that_they_did_not_notice_themselves(broken, runs):
    for name, run in runs[1].items():
        if name.startswith("legal"):
            noticed = Counter(fault.name for fault in run.heard if fault in TOLERATED)
            found = Counter(row["rule"] for row in broken[name] if row["rule"] not in NETWORK)
            assert found == noticed, name


@pytest.fixture(scope="module")
def delivered(broken, runs):
    """name -> the rows of `exchanges` about it."""
    path, found = runs
    tables = {name: delta.dataset(path.parent / "lake", table(name)).to_table() for name in ("messages", "exchanges")}
    places = dict(zip(*(tables["messages"].column(name).to_pylist() for name in ("message_id", "offset")), strict=True))
    rows = [(places[row["request_message_id"]], row) for row in tables["exchanges"].to_pylist()]
    return {name: [row for place, row in rows if run.start <= place < run.stop] for name, run in found.items()}


def test_history_resolves_messages_as_the_live_link_did(delivered, runs):
    """RELINK-22, RELINK-27: consumed, results and closed, over reconnections and channels that are opened again."""
    outcomes: Counter[str] = Counter()
    for name, run in runs[1].items():
        if run.world is None:
            continue
        sender = "client" if run.world.observer is C else "server"
        found = Counter(
            (row["correlation_id"], row["outcome"])
            for row in delivered[name]
            if row["requested_by"] == sender and row["outcome"] is not None
        )
        assert run.world.resolved <= found, name
        assert run.world.is_lost or found == run.world.resolved, name
        outcomes.update(outcome for _, outcome in found.elements())
    assert set(outcomes) == {"consumed", "committed", "uncommitted", "rolled back"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("consumed, then closed", [("61/0", 1, "consumed"), ("61/1", 1, "consumed")]),
        ("opened anew", [("61/0", 1, "consumed"), ("61/0", 1, "consumed"), ("61/1", 1, "consumed")]),  # the first life says closed alone
        ("results, consumed, then closed", [("61/0", 1, "committed"), ("61/1", 1, "rolled back")]),
        ("closed with an undecided message", [("61/0", 1, "committed"), ("61/1", 1, "rolled back")]),
        ("closed that nobody asked for", [("61/0", 1, None)]),
        ("closed that nobody asked for, told", [("61/0", 1, None)]),
        ("closed crosses the close that is repeated", [("61/0", 1, "consumed"), ("61/0", 1, "consumed")]),
        (
            "a channel of before is told, though it lives anew",
            [("61/0", 1, "consumed"), ("61/0", 2, "consumed"), ("61/1", 1, "consumed")],
        ),
    ],
)
def test_closed_resolves_what_was_sent_on_its_channel(delivered, name, expected):
    """RELINK-22, RELINK-29: and nothing on a channel of the same id after it, nor on one whose sender did not close it."""
    found = sorted(delivered[name], key=lambda row: (row["correlation_id"], row["attempts"]))
    assert [(row["correlation_id"], row["attempts"], row["outcome"]) for row in found] == expected
    assert {row["status"] for row in found} == {"answered" if outcome else "unanswered" for _, _, outcome in expected}


def test_history_judges_what_a_stranger_says_as_the_live_link_did(broken, runs):
    agreed: Counter[str] = Counter()
    for name, run in runs[1].items():
        if name.startswith("intruded"):
            judged = {fault.name for fault in run.heard if not fault.rule.unseen}
            found = {row["rule"] for row in broken[name]} - NETWORK
            assert found <= judged, name
            if run.is_first:
                assert found == judged, name
            agreed.update(found)
    assert {"ACKNOWLEDGED_TOO_MUCH", "TRANSACTIONS_OFF", "DECIDED_TOO_MUCH", "CHANNEL_UNKNOWN", "RESUME_UNEXPECTED"} <= set(agreed)


def test_every_rule_is_found_or_it_is_said_why_not():
    by_messages = {Fault.LINK_ID_RANGE, Fault.LINK_WITHOUT_EPOCH, Fault.EPOCH_ZERO, Fault.VERSION_UNSUPPORTED, Fault.HANDSHAKE_ORDER}
    by_history = {Fault[rule] for _, expected in CASES.values() for rule, _ in expected}
    unseen = {fault for fault in Fault if fault.rule.unseen}
    assert set(Fault) - unseen == UNREADABLE | by_messages | by_history | set(Analyzer.ODDITIES)
    assert unseen > OURS

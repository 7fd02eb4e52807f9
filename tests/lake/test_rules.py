"""Every rule of every room: the lake tells where it was broken, or says why it cannot."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pyarrow as pa
import pytest
from tests.lake import broken_sessions
from tests.lake.conftest import CASES, record
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.relink_sessions import STORY as RELINK_STORY
from tests.lake.relink_sessions import record as record_relink
from tests.lake.wolpertinger_sessions import record as record_wolpertinger
from tests.lake.yamp_sessions import record as record_yamp
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.lake.store import delta
from wirelake.lake.tables.catalog import GOLD, RULES_VERSION
from wirelake.lake.tables.rules import FAULTS
from wirelake.protocols.faults import VIOLATIONS
from wirelake.protocols.wolpertinger.trust.keyring import Keyring


@pytest.fixture(scope="session")
def told(spark, tmp_path_factory):
    """(table -> protocol -> the rules that a lake of everything that is ever wrong in tests has there, the lake)."""
    from wirelake.lake.jobs.ingest import ingest
    from wirelake.lake.tables.catalog import table

    folder = tmp_path_factory.mktemp("rules")
    record(folder / "cases.pcapng", CASES)
    record_mesh(folder / "mesh.pcapng", STORY)
    record_relink(folder / "relink.pcapng", RELINK_STORY)
    record_yamp(folder / "yamp.pcapng")
    record_wolpertinger(folder / "wolpertinger.pcapng")
    broken_sessions.record(folder)
    ingest(spark, folder / "lake", [folder], keys=broken_sessions.keys(), keyring=Keyring([KEYS]))
    found = {name: {protocol: set() for protocol in FAULTS} for name in ("violations", "security")}
    for name, rules in found.items():
        for row in delta.dataset(folder / "lake", table(name)).to_table(columns=["protocol", "rule"]).to_pylist():
            rules[row["protocol"]].add(row["rule"])
    return found, folder / "lake"


@pytest.mark.parametrize("protocol", FAULTS)
def test_every_rule_is_told_or_it_is_said_why_not(told, protocol):
    rules = {fault.name for fault in FAULTS[protocol]}
    unseen = {fault.name for fault in FAULTS[protocol] if fault.rule.unseen}
    by_keys = {fault.name for fault in FAULTS[protocol] if fault.rule.by_keys}
    found, _ = told
    assert found["violations"][protocol] == rules - unseen - by_keys
    assert found["security"][protocol] >= by_keys


@pytest.mark.parametrize("protocol", FAULTS)
def test_a_reason_why_history_cannot_tell_is_one_plain_sentence(protocol):
    for reason in filter(None, (fault.rule.unseen for fault in FAULTS[protocol])):
        assert reason == reason.strip()
        assert reason
        assert not reason.endswith(".")
        assert "|" not in reason


def test_findings_are_told_with_their_origin_and_info_is_counted_nowhere(told):
    """What only a ruling or a limit of ours forbids is no violation of its sender (EMM-10, YAMP-5)."""
    _, lake = told
    book = {(protocol, fault.name): fault for protocol, faults in FAULTS.items() for fault in faults}
    read = {each.name: delta.dataset(lake, each).to_table().to_pylist() for each in GOLD if each.name != "topology"}
    for row in read["violations"]:
        fault = book[row["protocol"], row["rule"]]
        assert (row["severity"], row["origin"]) == (fault.severity.label, fault.origin)
        assert row["severity"] == "info" or row["origin"] == "text"
    assert {row["origin"] for row in read["violations"]} == {"text", "ruling", "limit", "local"}
    assert any(row["severity"] == "info" and row["ended_session"] for row in read["violations"]), "a session may end on it all the same"
    broken = Counter(row["session_id"] for row in read["violations"] if row["severity"] in VIOLATIONS)
    assert {row["session_id"]: row["violations"] for row in read["sessions"]} == {
        row["session_id"]: broken[row["session_id"]] for row in read["sessions"]
    }
    counted = sum(row["severity"] in VIOLATIONS and row["ts"] is not None for row in read["violations"])
    assert sum(row["violations"] for row in read["metrics"]) == counted


FINGERPRINTS = {
    "exchanges": "a133f91b1c823f0e",
    "violations": "d9567a8e021dc1f7",
    "sessions": "7b08805efd1a67b6",
    "security": "dbe46c482e40bbca",
    "metrics": "e8e240e633531810",
    "topology": "58bff7a48d4142da",
}
"""What gold tables say of that lake."""


LEFT_OUT = ("source", "client", "observer", "is_primary", "link", "uncounted", "unconfirmed")


def test_tables_that_say_something_else_are_of_another_edition(told):
    """Lakes that were built before would go on saying what they said.

    If rules or builders have changed, raise RULES_VERSION and write down the new fingerprints; if only what is recorded here has, only
    these.
    """
    _, lake = told
    found = {}
    for each in GOLD:
        # Ids and pairs of nodes are made of the names of files. Observers have random names, and version 6 had no views.
        columns = [field.name for field in each.schema if not (pa.types.is_binary(field.type) and field.name.endswith("_id"))]
        rows = delta.dataset(lake, each).to_table(columns=[name for name in columns if name not in LEFT_OUT]).to_pylist()
        rows = [{"observed_by" if name == "observer_kind" else name: value for name, value in row.items()} for row in rows]
        found[each.name] = sha256("\n".join(sorted(repr(row) for row in rows)).encode()).hexdigest()[:16]
    assert RULES_VERSION == 8
    assert found == FINGERPRINTS

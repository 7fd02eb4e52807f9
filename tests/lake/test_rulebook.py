"""Every rule of every room: the lake tells where it was broken, or says why it cannot."""

from __future__ import annotations

import pytest
from tests.lake import broken_talk
from tests.lake.conftest import CASES, record
from tests.lake.mesh import STORY
from tests.lake.mesh import record as record_mesh
from tests.lake.relink_talk import STORY as RELINK_STORY
from tests.lake.relink_talk import record as record_relink
from tests.lake.wolpertinger_talk import record as record_wolpertinger
from tests.lake.yamp_talk import record as record_yamp
from tests.protocols.wolpertinger.pair import KEYS

from wirelake.lake.rulebook import ROOMS
from wirelake.protocols.wolpertinger.keyring import Keyring


@pytest.fixture(scope="session")
def told(spark, tmp_path_factory):
    """Table -> protocol -> the rules that a lake of everything that is ever wrong in tests has there."""
    from wirelake.lake import delta
    from wirelake.lake.catalog import table
    from wirelake.lake.ingest import ingest

    folder = tmp_path_factory.mktemp("rules")
    record(folder / "cases.pcapng", CASES)
    record_mesh(folder / "mesh.pcapng", STORY)
    record_relink(folder / "relink.pcapng", RELINK_STORY)
    record_yamp(folder / "yamp.pcapng")
    record_wolpertinger(folder / "wolpertinger.pcapng")
    broken_talk.record(folder)
    ingest(spark, folder / "lake", [folder], keys=broken_talk.keys(), keyring=Keyring([KEYS]))
    found = {name: {protocol: set() for protocol in ROOMS} for name in ("violations", "security")}
    for name, rules in found.items():
        for row in delta.dataset(folder / "lake", table(name)).to_table(columns=["protocol", "rule"]).to_pylist():
            rules[row["protocol"]].add(row["rule"])
    return found


@pytest.mark.parametrize("protocol", ROOMS)
def test_every_rule_is_told_or_it_is_said_why_not(told, protocol):
    room = ROOMS[protocol]
    rules, unseen, by_keys = ({fault.name for fault in faults} for faults in (room.faults, room.unseen, room.by_keys))
    assert told["violations"][protocol] == rules - unseen - by_keys
    assert told["security"][protocol] >= by_keys


@pytest.mark.parametrize("protocol", ROOMS)
def test_a_reason_is_one_plain_sentence_about_a_rule_of_its_room(protocol):
    room = ROOMS[protocol]
    assert set(room.unseen) <= set(room.faults)
    for reason in room.unseen.values():
        assert reason == reason.strip()
        assert reason
        assert not reason.endswith(".")
        assert "|" not in reason

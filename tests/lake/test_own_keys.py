"""Lakes that trust keys that packets bring along, or do not judge their times: settings of a lake (EMM-17, EMM-24)."""

from __future__ import annotations

import shutil

import pytest
from tests.lake.mesh import ALICE, MALLORY, other, record
from tests.protocols.event_mesh import speech
from tests.protocols.event_mesh.receiving import store
from tests.protocols.event_mesh.speech import MADE, SEED, maced, signed, tlv

from wirelake.errors import LakeError, UsageError
from wirelake.lake.jobs.follow import FollowOptions, follow
from wirelake.lake.jobs.ingest import ingest
from wirelake.lake.store import delta, journal, settings
from wirelake.lake.tables.catalog import table
from wirelake.protocols.event_mesh.packet.builder import public_key_of

STRANGER = bytes(range(7, 39))


def brought(message_id, seed=SEED, made=MADE):
    """Signed by a key that the packet brings along, for a node that no store knows."""
    key = tlv(0x13, public_key_of(seed))
    return signed(speech.name + other + key, seed, speech.name + key + other, message_id=message_id, made=made)


def spoilt(data):
    return data[:-1] + bytes((data[-1] ^ 1,))


EARLY = [
    (0, MALLORY, "spoilt", spoilt(brought(1, STRANGER))),
    (1, ALICE, "first", brought(2)),
    (2, ALICE, "known", maced(message_id=3)),
]
LATE = [
    (10, ALICE, "same key", brought(4)),
    (11, MALLORY, "other key", brought(5, STRANGER)),
    (400, ALICE, "old", brought(6)),
]
NONE = (None, None, None, None)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own-keys")
    return record(folder / "early.pcapng", EARLY), record(folder / "late.pcapng", LATE)


def judged(lake):
    """Message id -> verdict, trust, rule, and whether it was verified when it was read."""
    verified = {row["message_id"]: row["verified"] for row in delta.dataset(lake, table("messages")).to_table().to_pylist()}
    rows = delta.dataset(lake, table("security")).to_table().to_pylist()
    return {row["packet_id"]: (row["verdict"], row["trust"], row["rule"], verified[row["message_id"]]) for row in rows}


def test_in_band_keys_need_no_others_and_later_ones_are_used(spark, recordings, tmp_path):
    lake = tmp_path / "lake"
    ingest(spark, lake, [recordings[0]], trust="in-band")
    ingest(spark, lake, [recordings[1]])
    spoilt_one = ("SIGNATURE_MISMATCH", "none", "SIGNATURE_MISMATCH", False)
    by_itself = ("GENUINE", "in-band", None, True)
    expected = {1: spoilt_one, 2: by_itself, 3: NONE, 4: by_itself, 5: by_itself, 6: ("GENUINE", "in-band", "STALE", True)}
    assert judged(lake) == expected
    ingest(spark, lake, [], keys=store())
    assert judged(lake) == expected | {3: ("GENUINE", "store", None, None)}
    with pytest.raises(LakeError, match="in-band"):
        ingest(spark, lake, [], trust="store")


def test_following_a_folder_judges_as_the_lake_was_created_to(spark, recordings, tmp_path):
    lake = tmp_path / "lake"
    ingest(spark, lake, [recordings[0]], trust="in-band", freshness=False)
    (tmp_path / "late").mkdir()
    shutil.copy(recordings[1], tmp_path / "late")
    follow(spark, lake, tmp_path / "late", FollowOptions(once=True))
    by_itself = ("GENUINE", "in-band", None, True)
    assert {number: row for number, row in judged(lake).items() if number > 3} == dict.fromkeys((4, 5, 6), by_itself)
    with pytest.raises(LakeError, match="--no-freshness"):
        follow(spark, lake, tmp_path / "late", FollowOptions(once=True), freshness=True)


def test_the_first_key_of_all_history_counts_in_whatever_order_files_come(spark, recordings, tmp_path):
    first = ("GENUINE", "first-use", None, None)
    expected = {
        1: ("SIGNATURE_MISMATCH", "none", "SIGNATURE_MISMATCH", False),
        2: first,
        3: NONE,
        4: first,
        5: ("UNTRUSTED_KEY", "none", "UNTRUSTED_KEY", None),
        6: first,
    }
    for number, order in enumerate((recordings, recordings[::-1])):
        lake = tmp_path / f"lake-{number}"
        for recording in order:
            ingest(spark, lake, [recording], trust="first-use", freshness=False)
        assert judged(lake) == expected


def test_settings_are_fixed_and_say_which_they_are(tmp_path):

    journal.initialise(tmp_path)
    settings.hold(tmp_path, settings.Wanted(trust="first-use", freshness=False))
    assert settings.hold(tmp_path) == settings.Settings(trust="first-use", freshness=False)
    for wanted, word in (
        (settings.Wanted(trust="store"), "--trust first-use"),
        (settings.Wanted(freshness=True), "--no-freshness"),
        (settings.Wanted(late_seconds=1.0), "late"),
    ):
        with pytest.raises(LakeError, match=word):
            settings.hold(tmp_path, wanted)
    with pytest.raises(UsageError, match="trust"):
        settings.hold(tmp_path, settings.Wanted(trust="everything"))

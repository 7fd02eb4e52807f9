"""Compare our reader with capinfos and tshark on 984 captures of others; each difference is explained."""

from __future__ import annotations

from tests.oracles import verdicts
from tests.oracles.conftest import lines
from tests.oracles.reasons import REASONS


def test_every_difference_has_a_reason_and_every_reason_a_difference():
    explained = lines("explained.jsonl")
    assert {row["reason"] for row in explained} == set(REASONS)
    keys = [(row["path"], row.get("stream")) for row in explained]
    assert len(keys) == len(set(keys))
    known = {row["path"] for row in lines("captures.jsonl")}
    assert {path for path, _ in keys} <= known
    assert len(lines("captures.jsonl")) == 984
    assert len(lines("tcp-streams.jsonl")) == 186


def test_packets_bytes_and_times_are_those_of_capinfos_or_explained(folder, opinions, compiled):
    explained = {row["path"]: row for row in opinions["explained"] if "stream" not in row}
    wrong = []
    for row in opinions["captures"]:
        found = verdicts.counts(folder / row["sha256"])
        ours = {"packets": found.packets, "data_bytes": found.data_bytes, "first": found.first, "last": found.last}
        theirs = {
            "packets": row.get("packets"),
            "data_bytes": row.get("data_bytes"),
            "first": verdicts.moment(row.get("start")),
            "last": verdicts.moment(row.get("end")),
        }
        told = explained.pop(row["path"], None)
        if ours != (theirs if told is None else told["ours"]) or (ours == theirs and told):
            wrong.append((row["path"], ours, theirs, told))
        if told and told["reason"] == "32 bits" and found.wrapped != (theirs["first"], theirs["last"]):
            wrong.append((row["path"], found.wrapped, theirs, told))
    assert wrong == []
    assert not explained


def test_streams_are_those_of_tshark_or_explained(folder, opinions, compiled):
    explained = {(row["path"], row["stream"]): row for row in opinions["explained"] if "stream" in row}
    wrong = []
    for row in opinions["tcp-streams"]:
        mine = verdicts.streams(folder / row["sha256"])
        for theirs in row["streams"]:
            same = [one.turned(theirs["nodes"][0]) for one in mine if set(one.ends) == set(theirs["nodes"])]
            sums = sorted([verdicts.digest(said) for said in one.said] for one in same)
            told = explained.pop((row["path"], theirs["filter"]), None)
            if theirs["sha256"] in sums if told else theirs["sha256"] not in sums:
                wrong.append((row["path"], theirs, sums, told))
            if told and told["ours"] != sums:
                wrong.append((row["path"], theirs, sums, told))
    assert wrong == []
    assert not explained

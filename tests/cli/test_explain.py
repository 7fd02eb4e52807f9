"""`wirelake explain`: rules by id, section, fault and protocol, and the nearest ones where there is none."""

import json
import subprocess
import sys

import pytest

from wirelake.protocols.entry_points import OURS
from wirelake.rulebook.book import book, explain_command


def test_a_ruling_is_explained_with_its_faults(wirelake):
    outcome = wirelake("explain", "RELINK-13")
    said = " ".join(outcome.out.decode().split())
    entry = book("relink").find("RELINK-13")
    assert (outcome.code, outcome.talk) == (0, "")
    assert said.startswith(f"RELINK-13 {entry.title} must; from the specification, with details that we decided")
    for part in (f"rule {entry.rule}", f"why {entry.why}", "page docs/rules/relink.md#relink-13"):
        assert part in said
    assert "relink/CHANNEL_CLOSING means a message or operation between close and closed severity error; origin: text" in said
    assert "peer counts it and reads on; answers with nothing lake `violations`, info" in said


@pytest.mark.parametrize("words", [("relink-22",), ("Relink", "22"), ("RELINK", "-22"), ("relink-022",)])
def test_case_and_blanks_of_an_id_do_not_matter(wirelake, words):
    assert wirelake("explain", "--", *words).out == wirelake("explain", "RELINK-22").out


@pytest.mark.parametrize(
    "words",
    [
        ("relink", "§3.3"),
        ("relink §3.3",),
        ("RELINK", "3.3"),
        ("relink/§3.3",),
        ("relink-s3.3",),
        ("relink", "§", "3.3"),
        ("docs/rules/relink.md#relink-s3.3",),
    ],
)
def test_a_section_is_found_with_and_without_its_sign(wirelake, words):
    outcome = wirelake("explain", *words)
    assert outcome.code == 0
    assert outcome.out.decode().startswith("relink §3.3  Closing a channel\n")


def test_a_section_of_several_protocols_is_explained_for_each(wirelake):
    titles = [line for line in wirelake("explain", "§3.3").out.decode().splitlines() if "§3.3  " in line]
    assert titles == ["event_mesh §3.3  Event", "relink §3.3  Closing a channel"]


@pytest.mark.parametrize(
    "words", [("relink/CHANNEL_CLOSING",), ("channel_closing",), ("Relink", "channel-closing"), ("event-mesh/replay",)]
)
def test_a_fault_comes_first_among_those_of_its_clause(wirelake, words):
    (found,) = map(json.loads, wirelake("explain", *words, "-T", "json").out.splitlines())
    name = words[-1].rpartition("/")[2].upper().replace("-", "_")
    assert (found["fault"], found["faults"][0]["name"]) == (name, name)
    assert {one["clause"] for one in found["faults"]} == {found["id"]}


def test_a_fault_of_several_protocols_is_explained_for_each(wirelake):
    found = [json.loads(line) for line in wirelake("explain", "message_cut", "-T", "json").out.splitlines()]
    assert [(one["protocol"], one["id"]) for one in found] == [
        ("emp", "EMP-43"),
        ("relink", "RELINK-14"),
        ("yamp", "YAMP-13"),
        ("wolpertinger", "WOLP-11"),
    ]


def test_an_entry_as_json_has_everything(wirelake):
    (found,) = map(json.loads, wirelake("explain", "emm-23", "-T", "json").out.splitlines())
    entry = book("event_mesh").find("EMM-23")
    assert {name: found[name] for name in ("protocol", "id", "title", "level", "basis", "rule", "why", "page")} == {
        "protocol": "event_mesh",
        "id": "EMM-23",
        "title": entry.title,
        "level": "must",
        "basis": "both",
        "rule": entry.rule,
        "why": entry.why,
        "page": "docs/rules/event-mesh.md#emm-23",
    }
    assert found["see"] == ["event_mesh §7", "EMM-25"]
    assert found["faults"][0] == {
        "name": "REPLAY",
        "clause": "EMM-23",
        "text": "this message id was seen from this node before",
        "origin": "text",
        "strength": "must",
        "severity": "error",
        "live_peer": "drops the packet",
        "answer": "nothing",
        "lake": "`security`",
    }


@pytest.mark.parametrize("protocol", OURS)
def test_a_protocol_lists_its_rules(wirelake, protocol):
    rules = book(protocol)
    outcome = wirelake("explain", protocol.replace("_", "-"))
    said = outcome.out.decode()
    assert outcome.code == 0
    assert said.startswith(rules.specification.title)
    assert " ".join(rules.specification.summary.split()) in " ".join(said.split())
    listed = [json.loads(line)["id"] for line in wirelake("explain", protocol, "-T", "json").out.splitlines()]
    assert listed == [rules.name(entry) for entry in rules.entry]


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (("RELNK-22",), "RELINK-22"),
        (("relink", "§3.33"), "relink §3.3"),
        (("relink/CHANEL_CLOSING",), "relink/CHANNEL_CLOSING"),
        (("pong_unsolicted",), "PONG_UNSOLICITED"),
    ],
)
def test_an_unknown_rule_names_the_nearest_ones(wirelake, words, nearest):
    outcome = wirelake("explain", *words)
    assert (outcome.code, outcome.out) == (64, b"")
    assert outcome.talk.startswith(f"wirelake: no rule, section or fault {' '.join(words)!r}: did you mean ")
    assert nearest in outcome.talk


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("RELINK-222", "the rulings of relink are RELINK-1 to RELINK-33;"),
        ("emp-0", "the rulings of emp are EMP-1 to EMP-47;"),
        ("emp §3.2", "the rulings of emp are EMP-1 to EMP-47, and it has no sections;"),
    ],
)
def test_a_number_that_does_not_exist_names_those_that_do(wirelake, words, meant):
    outcome = wirelake("explain", words)
    assert (outcome.code, outcome.out) == (64, b"")
    assert outcome.talk.startswith(f"wirelake: no rule, section or fault {words!r}: {meant} ")


def test_words_that_resemble_nothing_lead_to_the_lists(wirelake):
    outcome = wirelake("explain", "!?")
    assert outcome.code == 64
    assert outcome.talk == "wirelake: no rule, section or fault '!?'; `wirelake explain PROTOCOL` lists the rules of a protocol\n"


def test_lines_fit_the_terminal(wirelake, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, wirelake("explain", "relink", "§3.3").out.decode().splitlines())) <= 60


def test_no_library_of_the_lake_is_imported():
    check = (
        "import sys; from wirelake.cli.main import run; code = run(['explain', 'message_cut'])\n"
        "print(code, sorted({'numpy', 'pyarrow', 'pyspark', 'numba', 'duckdb'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.stderr == "0 []\n"


def test_a_broken_rule_of_decode_leads_to_its_explanation_once(wirelake):
    bad = bytes.fromhex("000000087f000000")
    outcome = wirelake("decode", "emp", stdin=bad + bad)
    assert (outcome.code, outcome.talk) == (65, "`wirelake explain EMP-24` explains the rule\n")
    assert wirelake("decode", "emp", "--hex", stdin=b"0000000c0000000001000000").talk == ""
    section = wirelake("decode", "event-mesh", "--hex", stdin=b"01")
    assert section.talk == "`wirelake explain event_mesh §2.1` explains the rule\n"


@pytest.mark.parametrize(
    ("broken", "command"),
    [
        (("relink", "CLOSED_UNASKED", "RELINK-13"), "wirelake explain RELINK-13"),
        (("event_mesh", "TLV_OVERRUN", "§6.3"), "wirelake explain event_mesh §6.3"),
        (("pigeon", "NOT_A_FRAME", "§2.1"), "wirelake explain pigeon/NOT_A_FRAME"),
        ((None, "TLV_OVERRUN", "§6.3"), "wirelake explain TLV_OVERRUN"),
        ((None, None, None), ""),
    ],
)
def test_the_command_that_explains_a_broken_rule(broken, command):
    assert explain_command(*broken) == command

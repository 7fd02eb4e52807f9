"""The rule book: every id that is cited resolves, every entry is cited, and its words agree with the code."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tests.lint.words import in_text

from wirelake import protocols
from wirelake.protocols.entry_points import OURS
from wirelake.protocols.faults import Origin, Strength
from wirelake.rulebook.book import Basis, Book, book, explain_command
from wirelake.rulebook.facts import facts
from wirelake.rulebook.lookup import books, look_up

ROOT = Path(__file__).parents[2]
BOOKS = list(books())
PAGES = sorted((ROOT / "docs" / "rules").glob("*.md"))
LONGEST = 20
"""Words of a sentence at most."""


def load(name: str):
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


citations = load("citations")


@pytest.fixture(scope="module")
def cited():
    """Every citation in the project, outside the rule book."""
    return [one for path in citations.files("src", "tests", "docs") for one in citations.in_file(path)]


@pytest.mark.slow
def test_every_cited_id_resolves(cited):
    assert len(cited) > 1500
    lost = [one for one in cited if one.protocol is None or book(one.protocol).find(one.id) is None]
    assert lost == []


def test_every_entry_is_cited(cited):
    known = {(one.protocol, one.id) for one in cited}
    assert [rules.name(entry) for rules in BOOKS for entry in rules.entry if (rules.protocol, entry.id) not in known] == []


@pytest.mark.parametrize(
    ("line", "protocol", "found"),
    [
        ("# RELINK-22: as EMP-14/15 has it", None, [("relink", "RELINK-22"), ("emp", "EMP-14"), ("emp", "EMP-15")]),
        ("§4.2.1, §5: and so on.", "event_mesh", [("event_mesh", "§4.2.1"), ("event_mesh", "§5")]),
        ("see `event-mesh §4.2`", "relink", [("event_mesh", "§4.2")]),
        ("of §3.1", None, [(None, "§3.1")]),
        ("RFC 9000, §5.2.2, §8.1.2", "relink", []),
        ("a TEMP-3 or RELINK-x", None, []),
    ],
)
def test_citations_are_found_in_a_line(line, protocol, found):
    assert [(one.protocol, one.id) for one in citations.in_line(line, protocol)] == found


@pytest.mark.parametrize("protocol", OURS)
def test_every_clause_of_a_fault_has_an_entry(protocol):
    assert [fault.name for fault in protocols.get(protocol).faults if book(protocol).find(fault.clause) is None] == []


@pytest.mark.parametrize("rules", BOOKS, ids=lambda rules: rules.protocol)
def test_numbers_of_rulings_have_no_gap(rules: Book):
    numbers = [int(entry.id.rpartition("-")[2]) for entry in rules.entry if not entry.is_section]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("rules", BOOKS, ids=lambda rules: rules.protocol)
def test_entries_lead_to_others_that_exist_and_are_found_by_every_name(rules: Book):
    for entry in rules.entry:
        assert [one for one in entry.see if rules.find(one) is None or one == entry.id] == [], entry.id
        command = explain_command(rules.protocol, None, entry.id)
        for name in (rules.name(entry), rules.name(entry).lower(), rules.anchor(entry), command.removeprefix("wirelake explain ")):
            assert [(one.protocol, one.entry) for one in look_up(name)] == [(rules.protocol, entry)], name


@pytest.mark.parametrize("rules", BOOKS, ids=lambda rules: rules.protocol)
def test_the_source_of_an_entry_agrees_with_its_faults(rules: Book):
    """Only the text can forbid: an entry that is our decision has no fault of the text, and the other way round."""
    faults = protocols.get(rules.protocol).faults
    excluded = {Basis.DECISION: Origin.TEXT, Basis.TEXT: Origin.RULING}
    for entry in rules.entry:
        assert excluded.get(entry.basis) not in {fault.origin for fault in faults if fault.clause == entry.id}, entry.id
        assert entry.basis is Basis.TEXT or not entry.is_section, entry.id


@pytest.mark.parametrize("rules", BOOKS, ids=lambda rules: rules.protocol)
def test_entries_are_written_in_short_sentences(rules: Book):
    texts = [(entry.id, text) for entry in rules.entry for text in (entry.rule, entry.why)]
    assert [name for name, text in texts if not text.endswith(".") or not (text[0].isupper() or text[0] == "`")] == []
    sentences = [(name, one) for name, text in texts for one in re.split(r"(?<=[.:;?!])\s+", text)]
    assert [(name, one) for name, one in sentences if len(one.split()) > LONGEST] == []


@pytest.mark.parametrize("protocol", OURS)
def test_an_entry_is_as_binding_as_the_rules_of_the_text_that_cite_it(protocol):
    """A fault of a recommendation is cited by an entry that says should; only there may `must` stand for what else the entry says."""
    entries = {entry.id: entry.level for entry in book(protocol).entry}
    for fault in protocols.get(protocol).faults:
        if fault.origin is Origin.TEXT and fault.strength is Strength.MUST:
            assert entries[fault.clause] == "must", fault.name


@pytest.mark.parametrize("protocol", OURS)
def test_facts_are_those_of_its_rule(protocol):
    by_name = {fault.name: fault for fault in protocols.get(protocol).faults}
    assert [one.name for one in facts(protocol)] == list(by_name)
    for one in facts(protocol):
        fault = by_name[one.name]
        if fault.rule.unseen:
            assert one.lake == f"not reported: {fault.rule.unseen}"
        else:
            assert one.lake == ("`security`" if fault.rule.by_keys else f"`violations`, {fault.severity.label}")


def test_answers_and_reactions_of_live_peers():
    known = {(protocol, one.name): one for protocol in OURS for one in facts(protocol)}
    assert known["emp", "TYPE_RESERVED"].answer == "error 3"
    assert known["yamp", "TYPE_UNKNOWN"].answer == "system.close `Unknown type {}`"
    assert known["wolpertinger", "KEY_UNKNOWN"].answer == "result 5"
    assert known["relink", "FORMAT_UNKNOWN"].answer == "nothing"
    assert known["relink", "FORMAT_UNKNOWN"].live_peer == "ends the session"
    assert known["event_mesh", "REPLAY"].live_peer == "drops the packet"
    assert known["emp", "PONG_UNSOLICITED"].live_peer == "counts it and reads on"
    refused = known["emp", "FIELD_OUT_OF_RANGE"]
    assert (refused.live_peer, refused.answer) == ("raises an error in the calling code", "nothing")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_and_links_of_a_page(page):
    text = page.read_text()
    anchors = re.findall(r'<a id="([^"]+)"></a>', text)
    assert len(anchors) == len(set(anchors))
    if page.stem != "index":
        rules = book(page.stem.replace("-", "_"))
        assert anchors == [rules.anchor(entry) for entry in rules.entry]
        assert "stateDiagram-v2" in text
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        other = page.parent / target if target else page
        assert other.exists(), target
        assert not anchor or f'<a id="{anchor}"></a>' in other.read_text(), (target, anchor)


def test_links_of_other_pages_to_rules_lead_to_entries():
    links = [link for page in (ROOT / "docs").glob("*.md") for link in re.findall(r"\]\((rules/[\w-]+\.md)#([^)]*)\)", page.read_text())]
    assert len(links) > 100
    assert [(page, anchor) for page, anchor in links if f'<a id="{anchor}"></a>' not in (ROOT / "docs" / page).read_text()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_no_private_words(page):
    assert [str(one) for one in in_text(page, page.read_text())] == []


@pytest.mark.slow
def test_tests_are_found_by_id_by_name_and_by_fault():
    found = citations.tests_by_citation("event_mesh", {"ENC_LENGTH_MSB": "§4.2.1", "NOBODY": "EMM-99"})
    assert (found["EMM-15"].by, found["§4.2.1"].by) == ("tests", "faults")
    assert ("tests/protocols/event_mesh/test_rulings.py", "test_emm_15_algorithms") in found["EMM-15"].places
    assert ("tests/protocols/event_mesh/test_rulings.py", "test_emm_15_algorithms") in found["§4.2.1"].places
    assert (found["§3.3"].by, {test for _, test in found["§3.3"].places}) == ("files", {""})
    assert all(test.startswith("test_") for _, test in citations.tests_by_citation("emp", {})["EMP-16"].places)
    assert "EMM-99" not in found
    # A file that names rulings in the names of its tests only.
    by_name = ("tests/peers/yamp/test_rulings.py", "test_yamp_38_a_request_of_an_unknown_uri_is_answered_with_an_error")
    assert by_name in citations.tests_by_citation("yamp", {})["YAMP-38"].places
    # A name with two rulings.
    assert "tests/protocols/yamp/test_rulings.py" in {file for file, _ in citations.tests_by_citation("yamp", {})["YAMP-53"].places}


@pytest.mark.slow
@pytest.mark.parametrize("rules", BOOKS, ids=lambda rules: rules.protocol)
def test_every_ruling_is_named_by_a_test_or_its_file(rules: Book):
    found = citations.tests_by_citation(rules.protocol, {fault.name: fault.clause for fault in facts(rules.protocol)})
    named = {one for one, naming in found.items() if any(Path(file).name.startswith("test_") for file, _ in naming.places)}
    assert [entry.id for entry in rules.entry if not entry.is_section and entry.id not in named] == []

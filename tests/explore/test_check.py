"""`wirelake check --fail-on`: rules, threats and incomplete conversations as test cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from tests.explore.rows import SPOKEN, at, exchange, message, session, violation

from wirelake.cli.exit_codes import ExitCode
from wirelake.cli.main import run
from wirelake.rulebook.facts import facts

SCHEMA = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:attributeGroup name="counts">
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="skipped" type="xs:nonNegativeInteger"/>
    <xs:attribute name="time" type="xs:decimal"/>
  </xs:attributeGroup>
  <xs:complexType name="result">
    <xs:simpleContent><xs:extension base="xs:string">
      <xs:attribute name="message" type="xs:string"/><xs:attribute name="type" type="xs:string"/>
    </xs:extension></xs:simpleContent>
  </xs:complexType>
  <xs:element name="testsuites"><xs:complexType>
    <xs:sequence><xs:element ref="testsuite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attributeGroup ref="counts"/>
  </xs:complexType></xs:element>
  <xs:element name="testsuite"><xs:complexType>
    <xs:sequence><xs:element ref="testcase" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attributeGroup ref="counts"/>
  </xs:complexType></xs:element>
  <xs:element name="testcase"><xs:complexType>
    <xs:sequence>
      <xs:choice minOccurs="0">
        <xs:element name="skipped" type="result"/><xs:element name="error" type="result"/><xs:element name="failure" type="result"/>
      </xs:choice>
      <xs:element name="system-out" type="xs:string" minOccurs="0"/>
      <xs:element name="system-err" type="xs:string" minOccurs="0"/>
    </xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="classname" type="xs:string" use="required"/>
    <xs:attribute name="time" type="xs:decimal"/>
  </xs:complexType></xs:element>
</xs:schema>
"""
"""What CI servers read of JUnit's XML: a case is skipped, or has an error or a failure, or passed."""


def suites(text: str) -> dict[str, Any]:
    document = etree.fromstring(text.encode())
    etree.XMLSchema(etree.fromstring(SCHEMA)).assertValid(document)
    for node in (document, *document):
        cases = list(node.iter("testcase"))
        assert int(node.get("tests")) == len(cases)
        assert int(node.get("failures")) == len(list(node.iter("failure")))
        assert int(node.get("skipped")) == len(list(node.iter("skipped")))
    return {suite.get("name"): {case.get("name"): case for case in suite} for suite in document}


def test_each_rule_is_a_test_case_and_failures_name_clause_session_and_place(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(lake), "--fail-on", "violations", "--no-integrity", "-T", "junit"]) == ExitCode.DATA
    found = suites(capsys.readouterr().out)
    assert list(found) == ["violations"]
    cases = found["violations"]
    repeated = SPOKEN["violations"][0]
    failure = cases[f"{repeated['clause']} HELLO_REPEATED"].find("failure")
    assert repeated["clause"] in failure.get("message")
    assert failure.text.splitlines() == [
        "by the server, session 73, /data/a.pcapng at byte 20",
        "by the client, session 73, /data/a.pcapng at byte 396",
    ]
    known = {f"{fact.clause} {fact.name}" for fact in facts("emp")}
    warnings = {f"{fact.clause} {fact.name}" for fact in facts("emp") if fact.severity == "warning"}
    known -= warnings
    assert known <= set(cases)
    assert warnings
    assert not warnings & set(cases)
    assert len(cases) == len(known | {f"{one['clause']} {one['rule']}" for one in SPOKEN["violations"]})


def test_a_reader_of_others_finds_the_same(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`junitparser` reads the reports of many tools. It counts for itself what our attributes say."""
    junitparser = pytest.importorskip("junitparser")
    run(["check", str(lake), "--fail-on", "violations,security,incomplete", "-T", "junit"])
    text = capsys.readouterr().out
    ours = suites(text)
    report = junitparser.JUnitXml.fromstring(text.encode())
    names = ("tests", "failures", "errors", "skipped")
    said = {suite.name: [getattr(suite, name) for name in names] for suite in report}
    whole = [getattr(report, name) for name in names]
    for suite in report:
        suite.update_statistics()
    report.update_statistics()
    assert said == {suite.name: [getattr(suite, name) for name in names] for suite in report}
    assert whole == [getattr(report, name) for name in names]
    assert whole[1] > 0
    assert whole[3] > 0
    for suite in report:
        cases = {case.name: case for case in suite}
        assert list(cases) == list(ours[suite.name])
        for name, case in cases.items():
            own = ours[suite.name][name]
            kinds = [type(result).__name__.lower() for result in case.result]
            assert kinds == [child.tag for child in own if child.tag in ("failure", "skipped")]
            assert case.classname.startswith(f"wirelake.{suite.name}")
            for result, child in zip(case.result, (one for one in own if one.tag in ("failure", "skipped")), strict=True):
                assert (result.message, result.text or None) == (child.get("message"), child.text)
            assert case.is_passed == (not kinds)


def test_a_finding_that_no_specification_forbids_is_no_failure(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(lake), "--fail-on", "violations", "--no-integrity", "-T", "json"])
    cases = {case["name"]: case for case in map(json.loads, capsys.readouterr().out.splitlines())}
    assert cases["UNUSED_BITS_SET"]["passed"] is True
    assert "severity info" in cases["UNUSED_BITS_SET"]["notes"][0]
    assert (cases["HELLO_REPEATED"]["passed"], cases["HELLO_REPEATED"]["count"]) == (False, 2)


def test_a_rule_that_a_lake_cannot_find_is_skipped_not_passed(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(lake), "--fail-on", "violations", "--no-integrity", "-T", "junit"])
    cases = suites(capsys.readouterr().out)["violations"]
    unseen = {f"{fact.clause} {fact.name}" for fact in facts("emp") if fact.lake.startswith("not reported")}
    assert unseen
    assert {name for name, case in cases.items() if case.find("skipped") is not None} == unseen


def test_requests_without_an_answer_are_incomplete(fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {
        "messages": [message(0, "request", message_id=b"q" * 16, protocol="emp", offset=40)],
        "exchanges": [exchange(None, request_message_id=b"q" * 16, subject="orders\x1b[2J", requested_by="client")],
        "sessions": [session(handshake="incomplete")],
        "quarantine": [*SPOKEN["quarantine"]] * 30,
    }
    made = fill(tmp_path / "lake", rows)
    assert run(["check", str(made), "--fail-on", "incomplete", "--no-integrity", "-T", "junit"]) == ExitCode.DATA
    cases = suites(capsys.readouterr().out)["incomplete"]
    assert (
        cases["unanswered"].find("failure").text
        == f"emp request orders\\x1b[2J: by the client, session 73, message {'71' * 16}, a.pcapng at byte 40"
    )
    assert "10.0.0.1:4000" in cases["handshake"].find("failure").text
    assert cases["unreadable"].find("failure").text.splitlines()[-1] == "and 10 more"
    assert run(["check", str(made), "--fail-on", "incomplete", "--no-integrity"]) == ExitCode.DATA
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out
    assert "unanswered: " in printed.out
    assert printed.err.strip() == "32 problems"


def test_threats_are_security_findings(fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clause = facts("event_mesh")[0].clause
    finding = {"protocol": "event_mesh", "threat": "replayed", "rule": "REPLAYED", "clause": clause, "sender": "10.0.0.9:7"}
    place = {"session_id": b"s", "ts": at(3), "source": "/data/a.pcap", "offset": 7}
    made = fill(tmp_path / "lake", {"security": [finding | place, {**place, "protocol": "event_mesh", "offset": 9}]})
    assert run(["check", str(made), "--fail-on", "security", "--no-integrity", "-T", "junit"]) == ExitCode.DATA
    cases = suites(capsys.readouterr().out)["security"]
    assert cases["replayed"].find("failure").text == f"event_mesh {clause} REPLAYED: by 10.0.0.9:7, session 73, /data/a.pcap at byte 7"
    assert [name for name, case in cases.items() if len(case)] == ["replayed"]
    assert run(["check", str(made), "--fail-on", "violations,incomplete", "--no-integrity"]) == ExitCode.OK
    assert "incomplete: none; 3 rules or properties" in capsys.readouterr().err


def test_integrity_is_a_suite_of_its_own(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(lake), "--fail-on", "violations,security", "-T", "junit"])
    found = suites(capsys.readouterr().out)
    assert list(found) == ["integrity", "violations", "security"]
    assert {"journal", "snapshot", "files", "ledger"} <= set(found["integrity"])


def test_concerns_can_fail_together(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(lake), "--fail-on", "violations", "--no-integrity"]) == ExitCode.DATA
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("violations: ") and "session 73" in line for line in lines)


def test_places_of_one_rule_are_bounded(fill: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = fill(tmp_path / "lake", {"violations": [violation("HELLO_REPEATED", offset=number) for number in range(100)]})
    assert run(["check", str(made), "--fail-on", "violations", "--no-integrity"]) == ExitCode.DATA
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 21
    assert printed.out.splitlines()[-1].endswith("… 80 more")
    assert "100 problems" in printed.err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--fail-on", "everything"],
            "'everything' is nothing that a check can fail on; choose from violations, warnings, security, incomplete",
        ),
        (["--no-integrity"], "nothing to check"),
        (["--no-integrity", "--ledger", "--fail-on", "security"], "--ledger"),
    ],
)
def test_what_cannot_be_checked_is_an_error(lake: Path, capsys: pytest.CaptureFixture[str], flags: list[str], text: str) -> None:
    assert run(["check", str(lake), *flags]) == ExitCode.USAGE
    assert text in capsys.readouterr().err

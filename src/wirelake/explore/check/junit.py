"""JUnit: suites of cases as the XML that CI servers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET  # builds documents, and reads none

from wirelake.explore.check.cases import Case, Suite
from wirelake.explore.formatting import many
from wirelake.text import visible

__all__ = ["junit"]

_NAME: Final = "wirelake"


def junit(lake: str, suites: Sequence[Suite]) -> str:
    """Return a document with a suite for each of these, and a test case for each rule."""
    root = ET.Element("testsuites", _counts(f"{_NAME} check {lake}", [case for suite in suites for case in suite.cases]))
    for suite in suites:
        node = ET.SubElement(root, "testsuite", _counts(suite.name, suite.cases))
        for case in suite.cases:
            _add(node, suite, case)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counts(name: str, cases: Sequence[Case]) -> dict[str, str]:
    failures, skipped = sum(bool(case.count) for case in cases), sum(case.skipped is not None for case in cases)
    return {
        "name": visible(name),
        "tests": str(len(cases)),
        "failures": str(failures),
        "errors": "0",
        "skipped": str(skipped),
        "time": "0",
    }


def _add(suite_node: ET.Element, suite: Suite, case: Case) -> None:
    group = ".".join(filter(None, [_NAME, suite.name, case.protocol]))
    node = ET.SubElement(suite_node, "testcase", {"classname": group, "name": visible(case.title), "time": "0"})
    if case.skipped is not None:
        ET.SubElement(node, "skipped", {"message": visible(case.skipped)})
    if case.count:
        message = f"{case.title}, broken {many(case.count, 'time')}: {case.text}"
        failure = ET.SubElement(node, "failure", {"message": visible(message), "type": visible(case.name)})
        left = case.count - len(case.places)
        failure.text = "\n".join([*map(visible, case.places), *([f"and {left:,} more"] if left > 0 and case.places else [])])
    if case.notes:
        ET.SubElement(node, "system-out").text = "\n".join(map(visible, case.notes))

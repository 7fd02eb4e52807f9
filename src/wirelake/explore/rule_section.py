"""Report sections: violations, other findings, and the text of their rules.

Every finding links to its session and to its rule.
"""

from __future__ import annotations

from typing import Final

from wirelake.explore.findings import Finding, RuleText
from wirelake.explore.formatting import count, many
from wirelake.explore.markup import Markup, anchor, element, link
from wirelake.explore.summary import LakeSummary
from wirelake.explore.table_sections import cell, dim, listing, pill, place, rule_link, sentence
from wirelake.rulebook.book import book, explain_command

__all__ = ["findings", "rules"]

_SEVERITY: Final = {"error": "bad", "tolerated": "warn", "warning": "", "info": ""}
"""Severity -> its colour."""
_ORIGIN: Final = {
    "text": "The specification itself says so.",
    "ruling": "Only a ruling of Wirelake forbids it: the specification is silent, or allows it.",
    "limit": "Only a limit of Wirelake forbids it: the specification allows more, and an option can raise it.",
    "local": "Only the state of the receiver forbids it: its application, its keys, or messages it did not see.",
}
"""Origin of a rule -> its meaning."""
_COLUMNS: Final = {"clause": "", "rule": "", "severity": "", "times": "number", "for example": ""}


def findings(summary: LakeSummary) -> Markup:
    """List violations, errors first; then findings that the specification does not forbid."""
    broken = [one for one in summary.findings if one.is_violation]
    notes = [one for one in summary.findings if not one.is_violation]
    if broken:
        intro = element(
            "p",
            "A specification forbids these. A session ends on an error; peers ignore tolerated violations."
            " Each clause links to its rule, and each example to its session.",
        )
        shown = listing(_COLUMNS, [_finding(one, summary) for one in broken])
    else:
        intro, shown = element("p", "None: no message breaks a rule of its specification.", class_="notice good"), Markup()
    contents = [element("h2", "Broken rules"), intro, shown]
    if notes:
        contents += [
            element("h3", "Noted, but no violations"),
            element(
                "p",
                "No specification forbids these. A warning marks what a specification recommends otherwise; the rest only a ruling,"
                " a limit or the state of a receiver forbids. No count of violations includes them, even where a peer ended the session.",
            ),
            listing(_COLUMNS, [_finding(one, summary) for one in notes]),
        ]
    return element("section", contents, id="findings")


def _finding(finding: Finding, summary: LakeSummary) -> list[Markup]:
    sides = [
        f"client {count(finding.by_client)}" if finding.by_client else "",
        f"server {count(finding.by_server)}" if finding.by_server else "",
    ]
    severity = finding.severity or "unknown"
    more = finding.sessions - len(finding.examples)
    return [
        cell("clause", rule_link(finding.protocol, finding.rule, summary, element("strong", finding.clause or "–")), class_="nowrap"),
        cell("rule", sentence(finding.text) or finding.rule, dim(element("code", finding.rule))),
        cell(
            "severity",
            pill(severity, _SEVERITY.get(severity, "")),
            dim(finding.origin) if finding.origin and not finding.is_violation else "",
        ),
        cell(
            "times",
            count(finding.count),
            dim(" · ".join(side for side in sides if side)),
            dim(f"ended {many(finding.ended, 'session')}") if finding.ended else "",
            class_="number",
        ),
        cell(
            "for example",
            (element("p", place(example, summary), class_="one") for example in finding.examples),
            dim(f"and in {many(more, 'more session')}") if more > 0 else "",
            class_="place examples",
        ),
    ]


def rules(summary: LakeSummary) -> Markup:
    """List the rules of the findings, with text and origin."""
    if not summary.rules:
        return Markup()
    columns = {"clause": "", "rule": "", "who forbids it": "", "what a live peer does": ""}
    return element(
        "section",
        element("h2", "Rules"),
        element(
            "p",
            "The rules that the ",
            link("findings", "findings"),
            " refer to. A clause is a section of the specification, or a ruling that settles it."
            " The command below each clause explains it.",
        ),
        listing(columns, [_rule(one) for one in summary.rules], [anchor("rule", one.protocol, one.rule) for one in summary.rules]),
        id="rules",
    )


def _rule(rule: RuleText) -> list[Markup]:
    does = {True: "ends the session, or drops the message", False: "counts it and reads on", None: "–"}[rule.ends]
    rules = book(rule.protocol)
    entry = None if rules is None else rules.find(rule.clause)
    command = explain_command(rule.protocol, rule.rule, rule.clause)
    return [
        cell("clause", element("strong", rule.clause), dim(rule.protocol), dim(element("code", command)), class_="nowrap"),
        cell(
            "rule", sentence(rule.text), dim(element("code", rule.rule)), "" if entry is None else element("p", entry.rule.replace("`", ""))
        ),
        cell("who forbids it", _ORIGIN.get(rule.origin or "", rule.origin or "–")),
        cell("what a live peer does", does),
    ]

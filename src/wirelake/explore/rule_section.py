"""The report's sections on findings: which rules were broken, what is no violation, and what the rules say.

Every finding leads to its session and to its rule.
"""

from __future__ import annotations

from typing import Final

from wirelake.explore.findings import Finding, RuleText
from wirelake.explore.formatting import count, many
from wirelake.explore.markup import Markup, anchor, element, link
from wirelake.explore.summary import Survey
from wirelake.explore.table_sections import cell, dim, listing, pill, place, rule_link, sentence

__all__ = ["findings", "rules"]

_SEVERITY: Final = {"error": "bad", "tolerated": "warn", "info": ""}
"""Severity -> its colour."""
_ORIGIN: Final = {
    "text": "The specification forbids it.",
    "ruling": "Only a ruling of Wirelake forbids it: the specification is silent, or allows it.",
    "limit": "Only a limit of Wirelake forbids it: the specification allows more, and an option can raise it.",
    "local": "Only the state of the receiver speaks against it: its application, its keys, or what it did not see.",
}
"""Origin of a rule -> who says so."""
_COLUMNS: Final = {"clause": "", "rule": "", "severity": "", "times": "number", "for example": ""}


def findings(known: Survey) -> Markup:
    """Broken rules, errors first; and apart from them what the specification does not forbid."""
    broken = [one for one in known.findings if one.is_violation]
    notes = [one for one in known.findings if not one.is_violation]
    if broken:
        said = element(
            "p",
            "What a specification forbids. A session ends on an error; peers read over what is tolerated."
            " Each clause leads to its rule, and each example to its session.",
        )
        shown = listing(_COLUMNS, [_finding(one, known) for one in broken])
    else:
        said, shown = element("p", "None: nobody said anything a specification forbids.", class_="notice good"), Markup()
    contents = [element("h2", "Broken rules"), said, shown]
    if notes:
        contents += [
            element("h3", "Noted, but no violations"),
            element(
                "p",
                "No specification forbids these: only a ruling, a limit or the state of a receiver speaks against them. No count of"
                " violations includes them, even where a peer ended the session.",
            ),
            listing(_COLUMNS, [_finding(one, known) for one in notes]),
        ]
    return element("section", contents, id="findings")


def _finding(one: Finding, known: Survey) -> list[Markup]:
    sides = [f"client {count(one.by_client)}" if one.by_client else "", f"server {count(one.by_server)}" if one.by_server else ""]
    severity = one.severity or "unknown"
    more = one.sessions - len(one.examples)
    return [
        cell("clause", rule_link(one.protocol, one.rule, known, element("strong", one.clause or "–")), class_="nowrap"),
        cell("rule", sentence(one.text) or one.rule, dim(element("code", one.rule))),
        cell("severity", pill(severity, _SEVERITY.get(severity, "")), dim(one.origin) if one.origin and not one.is_violation else ""),
        cell(
            "times",
            count(one.count),
            dim(" · ".join(side for side in sides if side)),
            dim(f"ended {many(one.ended, 'session')}") if one.ended else "",
            class_="number",
        ),
        cell(
            "for example",
            (element("p", place(example, known), class_="one") for example in one.examples),
            dim(f"and in {many(more, 'more session')}") if more > 0 else "",
            class_="place examples",
        ),
    ]


def rules(known: Survey) -> Markup:
    """What the rules say that findings are about, and who says so."""
    if not known.rules:
        return Markup()
    columns = {"clause": "", "rule": "", "who forbids it": "", "what a live peer does": ""}
    return element(
        "section",
        element("h2", "What the rules say"),
        element(
            "p",
            "The rules that the ",
            link("findings", "findings"),
            " are about. A clause is a section of the specification, or a ruling that settles it.",
        ),
        listing(columns, [_rule(one) for one in known.rules], [anchor("rule", one.protocol, one.rule) for one in known.rules]),
        id="rules",
    )


def _rule(one: RuleText) -> list[Markup]:
    does = {True: "ends the session, or drops the message", False: "counts it and reads on", None: "–"}[one.ends]
    return [
        cell("clause", element("strong", one.clause), dim(one.protocol), class_="nowrap"),
        cell("rule", sentence(one.text), dim(element("code", one.rule))),
        cell("who forbids it", _ORIGIN.get(one.origin or "", one.origin or "–")),
        cell("what a live peer does", does),
    ]

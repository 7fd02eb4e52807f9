"""The rules of layer 2 and of the key exchange that texts and keys can break, each with its clause and the error that answers it.

It refuses to know how they are found.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults

__all__ = ["Fault"]


class Rule(NamedTuple):
    """What the table below says of one fault."""

    clause: str
    text: str
    error_code: int | None = 301
    """The code of the RemoteError that answers it in a call; None: it is never received."""


class Fault(Faults):
    """The broken rules of documents, values and keys."""

    DOCUMENT_OVER_LIMIT = 50
    DOCUMENT_NOT_UTF8 = 51
    DOCTYPE_REFUSED = 52
    XML_INVALID = 53
    ROOT_UNKNOWN = 54
    NAMESPACE_WRONG = 55
    STRUCTURE_WRONG = 56
    CALL_ID_INVALID = 57
    ERROR_CODE_INVALID = 58
    TYPE_UNKNOWN = 59
    TYPE_UNSUPPORTED = 60
    VALUE_INVALID = 61
    COMPLEX_INVALID = 62
    VALUE_UNSENDABLE = 80
    KEY_INVALID = 63

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]


RULES: Final[dict[Fault, Rule]] = {
    Fault.DOCUMENT_OVER_LIMIT: Rule("WOLP-17", "a document is larger, deeper or has more elements than the limit"),
    Fault.DOCUMENT_NOT_UTF8: Rule("WOLP-17", "a document is UTF-8 and claims nothing else"),
    Fault.DOCTYPE_REFUSED: Rule("WOLP-17", "a document has no DOCTYPE"),
    Fault.XML_INVALID: Rule("WOLP-16", "not well-formed XML"),
    Fault.ROOT_UNKNOWN: Rule("WOLP-13", "unknown root element", 302),
    Fault.NAMESPACE_WRONG: Rule("WOLP-13", "a foreign namespace, or elements with and without one"),
    Fault.STRUCTURE_WRONG: Rule("WOLP-14", "elements, attributes or text where the schema has none, or none where it has some"),
    Fault.CALL_ID_INVALID: Rule("WOLP-14", "a CallId is a guid"),
    Fault.ERROR_CODE_INVALID: Rule("WOLP-15", "an ErrorCode is a number of 32 bits"),
    Fault.TYPE_UNKNOWN: Rule("WOLP-18", "unknown data type"),
    Fault.TYPE_UNSUPPORTED: Rule("WOLP-18", "a data type that is not supported here", 306),
    Fault.VALUE_INVALID: Rule("WOLP-18", "a text that is no value of its type", 305),
    Fault.COMPLEX_INVALID: Rule("WOLP-18", "a complex value that does not fit its type", 305),
    Fault.VALUE_UNSENDABLE: Rule("WOLP-19", "null, and what no data type or no XML can carry, cannot be sent", None),
    Fault.KEY_INVALID: Rule("WOLP-24", "a public key, IV or token that cannot be used", 305),
}
"""fault -> clause, sentence, and the error it is answered with."""

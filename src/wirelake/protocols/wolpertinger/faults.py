"""The faults of wolpertinger: every rule that can be broken, with clause and answer.

Faults of layer 1 spoil one text, and are answered with a result, or not at all (WOLP-12). Faults of layer 2 spoil the content of a
delivered message, and are answered with a RemoteError, or not at all. A tolerated fault is recorded and nothing else happens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wirelake.protocols.faults import Faults, Origin

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]

SPLITTING: Final = 3
ENCRYPTION: Final = 4
FORMAT: Final = 5


class Rule(NamedTuple):
    """What the table below says of one fault."""

    clause: str
    text: str
    result: int | None = None
    """WOLP-4: the code of the result that answers it, if its text has an id; None: no result."""
    error_code: int | None = None
    """WOLP-16: the code of the RemoteError that answers it; None: no RemoteError."""
    origin: Origin = Origin.TEXT
    """The source of the rule: see `Origin`."""


class Fault(Faults):
    """The broken rules of wolpertinger; 0 in a scanner's row means none."""

    # Where the next text begins is lost.
    TEXT_OVER_LIMIT = 1
    MESSAGE_CUT = 2

    # Layer 1: a text that cannot be read; the next one can.
    METADATA_MISSING = 10
    PAIR_INVALID = 11
    KEY_MALFORMED = 12
    KEY_UNKNOWN = 13
    KEY_REPEATED = 14
    SIGNATURE_REFUSED = 15
    ID_MISSING = 16
    ID_INVALID = 17
    RESULT_INVALID = 18
    RESULT_WITH_OTHERS = 19
    GZIP_NOT_NUMBER = 20
    FRAGMENT_INCOMPLETE = 21
    FRAGMENT_OUT_OF_RANGE = 22

    # Layer 1: a text that can be read, a payload that cannot.
    FRAGMENT_CONFLICT = 40
    FRAGMENTS_OVER_LIMIT = 41
    BASE64_INVALID = 42
    GZIP_INVALID = 43
    INFLATED_OVER_LIMIT = 44
    ENCRYPTION_FAILED = 45

    # Layer 2: a message without content, or with content that is not allowed.
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
    KEY_INVALID = 63
    COMPONENT_UNKNOWN = 64
    METHOD_UNKNOWN = 65
    TRUST_TOO_LOW = 66
    PARAMETERS_WRONG = 67

    # The state machine: earlier messages matter.
    CLEAR_WHEN_ENCRYPTED = 70
    ENCRYPTED_TOO_SOON = 71
    KEYS_UNASKED = 72
    KEYS_CROSSED = 73
    CALLS_OVER_LIMIT = 74
    NOT_CONFIRMED = 75
    NO_ANSWER = 76
    ANSWER_WRONG = 77
    PROOF_WRONG = 78

    # Ours: what the calling code may not ask for, and how sessions end.
    VALUE_UNSENDABLE = 80
    FIELD_OUT_OF_RANGE = 81
    STEP_OUT_OF_ORDER = 82
    CLOSED_WITHOUT_WORD = 83
    CLOSED_INSIDE_MESSAGE = 84

    # Tolerated on receipt, never sent.
    KEY_NOT_LOWER = 90
    ALIAS_USED = 91
    PAYLOAD_BLANKS = 92
    RESULT_PAYLOAD = 93
    RESULT_CODE_UNKNOWN = 94
    RESULT_UNMATCHED = 95
    MESSAGE_REPEATED = 96
    FRAGMENTS_TIMED_OUT = 97
    FRAGMENT_LATE = 98
    RESPONSE_UNMATCHED = 99
    CALL_ID_IN_FLIGHT = 100
    TOO_BUSY = 101

    @property
    def rule(self) -> Rule:
        """The row of the table for this fault."""
        return RULES[self]

    @property
    def error_code(self) -> int | None:
        """The code of the error message that answers it."""
        return self.rule.error_code

    @property
    def result_code(self) -> int | None:
        """WOLP-4: the code of the result that answers it."""
        return self.rule.result


RULES: Final[dict[Fault, Rule]] = {
    Fault.TEXT_OVER_LIMIT: Rule("WOLP-29", "a text is over the limit", FORMAT, origin=Origin.LIMIT),
    Fault.MESSAGE_CUT: Rule("WOLP-11", "the bytes end inside a line", origin=Origin.RULING),
    Fault.METADATA_MISSING: Rule("WOLP-1", "a text begins with metadata"),
    Fault.PAIR_INVALID: Rule("WOLP-1", "metadata is a key, a colon, a value and a semicolon", FORMAT),
    Fault.KEY_MALFORMED: Rule("WOLP-1", "a key is letters, digits and underscores", FORMAT, origin=Origin.RULING),
    Fault.KEY_UNKNOWN: Rule("WOLP-2", "unknown key", FORMAT, origin=Origin.RULING),
    Fault.KEY_REPEATED: Rule("WOLP-2", "a key is said twice", FORMAT, origin=Origin.RULING),
    Fault.SIGNATURE_REFUSED: Rule("WOLP-5", "the specification does not say how to check a signature", FORMAT, origin=Origin.RULING),
    Fault.ID_MISSING: Rule("WOLP-3", "every text has a message_id"),
    Fault.ID_INVALID: Rule("WOLP-3", "a message_id is a number from 0 to 4294967295"),
    Fault.RESULT_INVALID: Rule("WOLP-4", "the code of a result is a number"),
    Fault.RESULT_WITH_OTHERS: Rule("WOLP-4", "a result has a message_id and nothing else"),
    Fault.GZIP_NOT_NUMBER: Rule("WOLP-7", "gzip is followed by a number", FORMAT),
    Fault.FRAGMENT_INCOMPLETE: Rule("WOLP-9", "fragment_index and fragment_count come together", SPLITTING),
    Fault.FRAGMENT_OUT_OF_RANGE: Rule("WOLP-9", "a fragment has an index below its count, and a count within the limit", SPLITTING),
    Fault.FRAGMENT_CONFLICT: Rule("WOLP-9", "fragments of one message contradict each other", SPLITTING),
    Fault.FRAGMENTS_OVER_LIMIT: Rule("WOLP-9", "fragments take more memory than the limit", SPLITTING, origin=Origin.LIMIT),
    Fault.BASE64_INVALID: Rule("WOLP-6", "the payload is not base64 with padding", FORMAT),
    Fault.GZIP_INVALID: Rule("WOLP-7", "the payload is not gzip of the length that was said", FORMAT),
    Fault.INFLATED_OVER_LIMIT: Rule("WOLP-7", "the decompressed payload is over the limit", FORMAT, origin=Origin.LIMIT),
    Fault.ENCRYPTION_FAILED: Rule("WOLP-8", "an encrypted payload that cannot be opened", ENCRYPTION),
    Fault.DOCUMENT_OVER_LIMIT: Rule(
        "WOLP-17", "a document is larger, deeper or has more elements than the limit", None, 301, origin=Origin.LIMIT
    ),
    Fault.DOCUMENT_NOT_UTF8: Rule("WOLP-17", "a document is UTF-8 and says nothing else", None, 301, origin=Origin.RULING),
    Fault.DOCTYPE_REFUSED: Rule("WOLP-17", "a document has no DOCTYPE", None, 301, origin=Origin.RULING),
    Fault.XML_INVALID: Rule("WOLP-16", "not well-formed XML", None, 301),
    Fault.ROOT_UNKNOWN: Rule("WOLP-13", "unknown root element", None, 302),
    Fault.NAMESPACE_WRONG: Rule("WOLP-13", "a foreign namespace, or elements with and without one", None, 301),
    Fault.STRUCTURE_WRONG: Rule("WOLP-14", "elements, attributes or text that the schema does not allow there", None, 301),
    Fault.CALL_ID_INVALID: Rule("WOLP-14", "a CallId is a guid", None, 301),
    Fault.ERROR_CODE_INVALID: Rule("WOLP-15", "an ErrorCode is a number of 32 bits"),
    Fault.TYPE_UNKNOWN: Rule("WOLP-18", "unknown data type", None, 301),
    Fault.TYPE_UNSUPPORTED: Rule("WOLP-18", "a data type that is not supported here", None, 306, origin=Origin.LOCAL),
    Fault.VALUE_INVALID: Rule("WOLP-18", "a text that is no value of its type", None, 305, origin=Origin.RULING),
    Fault.COMPLEX_INVALID: Rule("WOLP-18", "a complex value that does not fit its type", None, 305),
    Fault.KEY_INVALID: Rule("WOLP-24", "a public key or IV that cannot be used", None, 305),
    Fault.COMPONENT_UNKNOWN: Rule("WOLP-20", "unknown component", None, 304, origin=Origin.LOCAL),
    Fault.METHOD_UNKNOWN: Rule("WOLP-20", "unknown method", None, 303, origin=Origin.LOCAL),
    Fault.TRUST_TOO_LOW: Rule("WOLP-20", "the caller is not trusted enough", None, 201, origin=Origin.LOCAL),
    Fault.PARAMETERS_WRONG: Rule("WOLP-20", "the wrong number or types of parameters", None, 305, origin=Origin.LOCAL),
    Fault.CLEAR_WHEN_ENCRYPTED: Rule("WOLP-22", "an unencrypted message where everything is encrypted", None, 202),
    Fault.ENCRYPTED_TOO_SOON: Rule("WOLP-22", "an encrypted message before keys were exchanged", ENCRYPTION),
    Fault.KEYS_UNASKED: Rule("WOLP-24", "an answer without a KeyExchange before it"),
    Fault.KEYS_CROSSED: Rule("WOLP-24", "a KeyExchange while another one is not answered", None, 300, origin=Origin.RULING),
    Fault.CALLS_OVER_LIMIT: Rule("WOLP-29", "too many calls in flight", None, 100, origin=Origin.LIMIT),
    Fault.NOT_CONFIRMED: Rule("WOLP-10", "a message was not confirmed, however often it was sent"),
    Fault.NO_ANSWER: Rule("WOLP-21", "no response in time"),
    Fault.ANSWER_WRONG: Rule("WOLP-23", "an answer that does not fit what was asked"),
    Fault.PROOF_WRONG: Rule("WOLP-25", "a proof that does not hold"),
    Fault.VALUE_UNSENDABLE: Rule("WOLP-19", "null, or a value that no data type or XML can carry, cannot be sent", origin=Origin.LOCAL),
    Fault.FIELD_OUT_OF_RANGE: Rule("WOLP-1", "a value that its field cannot hold"),
    Fault.STEP_OUT_OF_ORDER: Rule("WOLP-22", "trust is gained step by step, one step at a time", origin=Origin.LOCAL),
    Fault.CLOSED_WITHOUT_WORD: Rule("WOLP-28", "the connection was closed without a reset notice", origin=Origin.RULING),
    Fault.CLOSED_INSIDE_MESSAGE: Rule("WOLP-11", "the connection was closed inside a line", origin=Origin.RULING),
    Fault.KEY_NOT_LOWER: Rule("WOLP-2", "keys are sent in lower case"),
    Fault.ALIAS_USED: Rule("WOLP-5", "encryption is sent as `encryption`, not as `secure`", origin=Origin.RULING),
    Fault.PAYLOAD_BLANKS: Rule("WOLP-6", "blanks in a payload", origin=Origin.RULING),
    Fault.RESULT_PAYLOAD: Rule("WOLP-4", "a result with a payload"),
    Fault.RESULT_CODE_UNKNOWN: Rule("WOLP-4", "unknown code of a result", origin=Origin.RULING),
    Fault.RESULT_UNMATCHED: Rule("WOLP-4", "a result for a message that does not wait for one", origin=Origin.RULING),
    Fault.MESSAGE_REPEATED: Rule("WOLP-10", "a message that was delivered before", origin=Origin.RULING),
    Fault.FRAGMENTS_TIMED_OUT: Rule("WOLP-9", "fragments of a message did not come in time"),
    Fault.FRAGMENT_LATE: Rule("WOLP-9", "a fragment of a message that was refused", origin=Origin.RULING),
    Fault.RESPONSE_UNMATCHED: Rule("WOLP-16", "a response to no call that waits for one"),
    Fault.CALL_ID_IN_FLIGHT: Rule("WOLP-14", "a call with the CallId of one that is in flight"),
    Fault.TOO_BUSY: Rule("WOLP-10", "a message that was not taken, because too much is unconfirmed", origin=Origin.LIMIT),
}
"""fault -> clause, sentence, and what answers it."""

UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.FRAGMENT_CONFLICT)
"""Faults that make the text unreadable."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.KEY_NOT_LOWER)
"""Faults that are recorded and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable texts, of their documents, and of the state machine."""

"""The faults of wolpertinger: every rule that can be broken, with clause and answer.

Faults of layer 1 spoil one text, and are answered with a result, or not at all (WOLP-12). Faults of layer 2 spoil the content of a
delivered message, and are answered with a RemoteError, or not at all. A tolerated fault is recorded and nothing else happens.
"""

from __future__ import annotations

from typing import Final

from wirelake.protocols.faults import LIMIT, LOCAL, MAY, MUST, RULING, SHOULD, TEXT, Faults, Rule, Threat

__all__ = ["BREACHES", "TOLERATED", "UNREADABLE", "Fault"]

SPLITTING: Final = 3
ENCRYPTION: Final = 4
FORMAT: Final = 5


class Fault(Faults):
    """The broken rules of wolpertinger; 0 in a scanner's row means none."""

    # Where the next text begins is lost.
    TEXT_OVER_LIMIT = Rule(1, "WOLP-29", "a text is over the limit", LIMIT, MAY, result_code=FORMAT, threat=Threat.BOMB)
    MESSAGE_CUT = Rule(2, "WOLP-11", "the bytes end inside a line", RULING, MAY)

    # Layer 1: a text that cannot be read; the next one can.
    METADATA_MISSING = Rule(10, "WOLP-1", "a text begins with metadata", TEXT, MUST)
    PAIR_INVALID = Rule(11, "WOLP-1", "metadata is a key, a colon, a value and a semicolon", TEXT, MUST, result_code=FORMAT)
    KEY_MALFORMED = Rule(12, "WOLP-1", "a key is letters, digits and underscores", RULING, MAY, result_code=FORMAT)
    KEY_UNKNOWN = Rule(13, "WOLP-2", "unknown key", RULING, MAY, result_code=FORMAT)
    KEY_REPEATED = Rule(14, "WOLP-2", "a key is said twice", RULING, MAY, result_code=FORMAT)
    SIGNATURE_REFUSED = Rule(
        15, "WOLP-5", "the specification does not say how to check a signature", RULING, MAY, result_code=FORMAT, threat=Threat.UNTRUSTED
    )
    ID_MISSING = Rule(16, "WOLP-3", "every text has a message_id", TEXT, MUST)
    ID_INVALID = Rule(17, "WOLP-3", "a message_id is a number from 0 to 4294967295", TEXT, MUST)
    RESULT_INVALID = Rule(18, "WOLP-4", "the code of a result is a number", TEXT, MUST)
    RESULT_WITH_OTHERS = Rule(19, "WOLP-4", "a result has a message_id and nothing else", TEXT, MUST)
    GZIP_NOT_NUMBER = Rule(20, "WOLP-7", "gzip is followed by a number", TEXT, MUST, result_code=FORMAT)
    FRAGMENT_INCOMPLETE = Rule(21, "WOLP-9", "fragment_index and fragment_count come together", TEXT, MUST, result_code=SPLITTING)
    FRAGMENT_OUT_OF_RANGE = Rule(
        22, "WOLP-9", "a fragment has an index below its count, and a count within the limit", TEXT, MUST, result_code=SPLITTING
    )

    # Layer 1: a text that can be read, a payload that cannot.
    FRAGMENT_CONFLICT = Rule(40, "WOLP-9", "fragments of one message contradict each other", TEXT, MUST, result_code=SPLITTING)
    FRAGMENTS_OVER_LIMIT = Rule(
        41, "WOLP-9", "fragments take more memory than the limit", LIMIT, MAY, result_code=SPLITTING, threat=Threat.BOMB
    )
    BASE64_INVALID = Rule(42, "WOLP-6", "the payload is not base64 with padding", TEXT, MUST, result_code=FORMAT)
    GZIP_INVALID = Rule(43, "WOLP-7", "the payload is not gzip of the length that was said", TEXT, MUST, result_code=FORMAT)
    INFLATED_OVER_LIMIT = Rule(
        44, "WOLP-7", "the decompressed payload is over the limit", LIMIT, MAY, result_code=FORMAT, threat=Threat.BOMB
    )
    ENCRYPTION_FAILED = Rule(
        45, "WOLP-8", "an encrypted payload that cannot be opened", LOCAL, MAY, result_code=ENCRYPTION, threat=Threat.FORGED
    )

    # Layer 2: a message without content, or with content that is not allowed.
    DOCUMENT_OVER_LIMIT = Rule(
        50, "WOLP-17", "a document is larger, deeper or has more elements than the limit", LIMIT, MAY, error_code=301, threat=Threat.BOMB
    )
    DOCUMENT_NOT_UTF8 = Rule(51, "WOLP-17", "a document is UTF-8 and says nothing else", RULING, MAY, error_code=301)
    DOCTYPE_REFUSED = Rule(52, "WOLP-17", "a document has no DOCTYPE", RULING, MAY, error_code=301, threat=Threat.BOMB)
    XML_INVALID = Rule(53, "WOLP-16", "not well-formed XML", TEXT, MUST, error_code=301)
    ROOT_UNKNOWN = Rule(54, "WOLP-13", "unknown root element", TEXT, MUST, error_code=302)
    NAMESPACE_WRONG = Rule(55, "WOLP-13", "a foreign namespace, or elements with and without one", TEXT, MUST, error_code=301)
    STRUCTURE_WRONG = Rule(56, "WOLP-14", "elements, attributes or text that the schema does not allow there", TEXT, MUST, error_code=301)
    CALL_ID_INVALID = Rule(57, "WOLP-14", "a CallId is a guid", TEXT, MUST, error_code=301)
    ERROR_CODE_INVALID = Rule(58, "WOLP-15", "an ErrorCode is a number of 32 bits", TEXT, MUST)
    TYPE_UNKNOWN = Rule(59, "WOLP-18", "unknown data type", TEXT, MUST, error_code=301)
    TYPE_UNSUPPORTED = Rule(60, "WOLP-18", "a data type that is not supported here", LOCAL, MAY, error_code=306)
    VALUE_INVALID = Rule(61, "WOLP-18", "a text that is no value of its type", RULING, MAY, error_code=305)
    COMPLEX_INVALID = Rule(62, "WOLP-18", "a complex value that does not fit its type", TEXT, MUST, error_code=305)
    KEY_INVALID = Rule(63, "WOLP-24", "a public key or IV that cannot be used", RULING, MAY, error_code=305)
    COMPONENT_UNKNOWN = Rule(64, "WOLP-20", "unknown component", LOCAL, MAY, error_code=304)
    METHOD_UNKNOWN = Rule(65, "WOLP-20", "unknown method", LOCAL, MAY, error_code=303)
    TRUST_TOO_LOW = Rule(66, "WOLP-20", "the caller is not trusted enough", LOCAL, MAY, error_code=201)
    PARAMETERS_WRONG = Rule(67, "WOLP-20", "the wrong number or types of parameters", LOCAL, MAY, error_code=305)

    # The state machine: earlier messages matter.
    CLEAR_WHEN_ENCRYPTED = Rule(
        70, "WOLP-22", "an unencrypted message where everything is encrypted", RULING, MAY, error_code=202, threat=Threat.DOWNGRADE
    )
    ENCRYPTED_TOO_SOON = Rule(
        71, "WOLP-22", "an encrypted message before keys were exchanged", RULING, MAY, result_code=ENCRYPTION, threat=Threat.FORGED
    )
    KEYS_UNASKED = Rule(72, "WOLP-24", "an answer without a KeyExchange before it", RULING, MAY)
    KEYS_CROSSED = Rule(73, "WOLP-24", "a KeyExchange while another one is not answered", RULING, MAY, error_code=300)
    CALLS_OVER_LIMIT = Rule(
        74,
        "WOLP-29",
        "too many calls in flight",
        LIMIT,
        MAY,
        error_code=100,
        unseen="the limit of a callee is its own setting, and the calls in flight are not on the wire",
    )
    NOT_CONFIRMED = Rule(75, "WOLP-10", "a message was not confirmed, however often it was sent", LIMIT, MUST)
    NO_ANSWER = Rule(76, "WOLP-21", "no response in time", LIMIT, SHOULD)
    ANSWER_WRONG = Rule(77, "WOLP-23", "an answer that does not fit what was asked", RULING, MAY)
    PROOF_WRONG = Rule(78, "WOLP-25", "a proof that does not hold", RULING, MAY)

    # Ours: what the calling code may not ask for, and how sessions end.
    VALUE_UNSENDABLE = Rule(
        80,
        "WOLP-19",
        "null, or a value that no data type or XML can carry, cannot be sent",
        LOCAL,
        MAY,
        unseen="refused before anything is sent",
    )
    FIELD_OUT_OF_RANGE = Rule(81, "WOLP-1", "a value that its field cannot hold", TEXT, MUST, unseen="refused before anything is sent")
    STEP_OUT_OF_ORDER = Rule(
        82,
        "WOLP-22",
        "trust is gained step by step, one step at a time",
        LOCAL,
        MAY,
        unseen="refused before anything is sent; on the wire it is TRUST_TOO_LOW",
    )
    CLOSED_WITHOUT_WORD = Rule(
        83,
        "WOLP-28",
        "the connection was closed without a reset notice",
        RULING,
        MAY,
        unseen="no message is required before a close; `sessions` shows how each ended",
    )
    CLOSED_INSIDE_MESSAGE = Rule(84, "WOLP-11", "the connection was closed inside a line", RULING, MAY)

    # Tolerated on receipt, never sent.
    KEY_NOT_LOWER = Rule(90, "WOLP-2", "keys are sent in lower case", TEXT, MUST)
    ALIAS_USED = Rule(91, "WOLP-5", "encryption is sent as `encryption`, not as `secure`", RULING, MAY)
    PAYLOAD_BLANKS = Rule(92, "WOLP-6", "blanks in a payload", RULING, MAY)
    RESULT_PAYLOAD = Rule(93, "WOLP-4", "a result with a payload", TEXT, MUST)
    RESULT_CODE_UNKNOWN = Rule(94, "WOLP-4", "unknown code of a result", RULING, MAY)
    RESULT_UNMATCHED = Rule(95, "WOLP-4", "a result for a message that does not wait for one", RULING, MAY)
    MESSAGE_REPEATED = Rule(96, "WOLP-10", "a message that was delivered before", RULING, MAY)
    FRAGMENTS_TIMED_OUT = Rule(97, "WOLP-9", "fragments of a message did not come in time", LIMIT, MAY)
    FRAGMENT_LATE = Rule(98, "WOLP-9", "a fragment of a message that was refused", RULING, MAY)
    RESPONSE_UNMATCHED = Rule(99, "WOLP-16", "a response to no call that waits for one", TEXT, MUST)
    CALL_ID_IN_FLIGHT = Rule(100, "WOLP-14", "a call with the CallId of one that is in flight", TEXT, MUST)
    TOO_BUSY = Rule(
        101,
        "WOLP-10",
        "a message that was not taken, because too much is unconfirmed",
        LIMIT,
        MAY,
        unseen="how much waits at a receiver is not on the wire; from outside the message is NOT_CONFIRMED",
    )
    ID_REUSED = Rule(102, "WOLP-3", "a message_id that another message of the same side had", TEXT, MUST)
    CALL_ID_REUSED = Rule(103, "WOLP-14", "the CallId of an earlier call", TEXT, MUST)


UNREADABLE: Final = frozenset(fault for fault in Fault if fault < Fault.FRAGMENT_CONFLICT)
"""Faults that make the text unreadable."""
TOLERATED: Final = frozenset(fault for fault in Fault if fault >= Fault.KEY_NOT_LOWER)
"""Faults that are recorded and otherwise ignored."""
BREACHES: Final = frozenset(Fault) - UNREADABLE - TOLERATED
"""Faults of readable texts, of their documents, and of the state machine."""

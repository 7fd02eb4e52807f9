"""A slow and obvious reader of metadata, written from WOLP-1 to WOLP-9 and not from the scanner: both must say the same of every text."""

from __future__ import annotations

import re

from wirelake.protocols.wolpertinger.faults import Fault
from wirelake.protocols.wolpertinger.scanner import ODD_ALIAS, ODD_CASE, ODD_CODE, ODD_PAYLOAD, Limits

PAIR = re.compile(rb"([^:]+):([^:]+)", re.DOTALL)
KEY = re.compile(rb"[A-Za-z0-9_]+")
NUMBER = re.compile(rb"[0-9]+")
HUGE = 1 << 50
ALIASES = {"secure": "encryption"}
NUMBERS = {
    "message_id": Fault.ID_INVALID,
    "result": Fault.RESULT_INVALID,
    "gzip": Fault.GZIP_NOT_NUMBER,
    "fragment_index": Fault.FRAGMENT_OUT_OF_RANGE,
    "fragment_count": Fault.FRAGMENT_OUT_OF_RANGE,
}
"""Key -> what is wrong if its value is no number."""


def row_of(text: bytes, limits: Limits) -> list[int]:
    """The columns of a text behind the shared ones, with kind and fault in front; where exactly a fault lies is left out."""
    if len(text) > limits.max_text_size:
        begun = text[: limits.max_text_size + 1].rpartition(b";")[0] + b";"
        kind, _, message_id, *_ = row_of(begun, Limits(max_text_size=len(begun))) if begun != b";" else [-1, 0, -1]
        return [2 if kind == 2 else -1, Fault.TEXT_OVER_LIMIT, message_id, -1, -1, 0, -1, -1, len(text), 0, 0]
    *pairs, payload = text.split(b";")
    values: dict[str, int] = {}
    seen: set[str] = set()
    grave: list[Fault] = []
    mild: list[Fault] = []
    odd = 0
    for pair in pairs:
        found = PAIR.fullmatch(pair)
        if found is None:
            grave.append(Fault.PAIR_INVALID)
            continue
        if KEY.fullmatch(found[1]) is None:
            grave.append(Fault.KEY_MALFORMED)
            continue
        spelled = found[1].decode()
        odd |= ODD_CASE if spelled != spelled.lower() else 0
        key = ALIASES.get(spelled.lower(), spelled.lower())
        odd |= ODD_ALIAS if spelled.lower() in ALIASES else 0
        if key == "signature":
            grave.append(Fault.SIGNATURE_REFUSED)
            seen.add(key)
        elif key not in NUMBERS and key != "encryption":
            grave.append(Fault.KEY_UNKNOWN)
        elif key in seen:
            grave.append(Fault.KEY_REPEATED)
        else:
            seen.add(key)
            if key == "encryption":
                values[key] = 3 if found[2].lower() != b"aes" else 2 if spelled.lower() == "secure" else 1
                continue
            number = min(int(found[2]), HUGE) if NUMBER.fullmatch(found[2]) else -1
            if number < 0 or (key == "message_id" and number > 0xFFFFFFFF):
                mild.append(NUMBERS[key])
            if key == "message_id" and number > 0xFFFFFFFF:
                number = -1
            values[key] = number
            odd |= ODD_CODE if key == "result" and number > 5 else 0
    kind = 2 if "result" in seen else 1 if seen & {"fragment_index", "fragment_count"} else 0
    odd |= ODD_PAYLOAD if kind == 2 and payload else 0
    if not pairs:
        kind, fault = -1, Fault.METADATA_MISSING
    else:
        fault = next(iter([*grave, *mild, *lacking(seen, values, limits)]), 0)
    names = ("message_id", "result", "gzip")
    head = [values.get(name, -1) for name in names] + [values.get("encryption", 0)]
    tail = [values.get("fragment_index", -1), values.get("fragment_count", -1), len(text) - len(payload), len(payload), odd]
    return [kind, fault, *head, *tail]


def lacking(seen: set[str], values: dict[str, int], limits: Limits) -> list[Fault]:
    """What a text whose pairs are all right may still get wrong."""
    if "message_id" not in seen:
        return [Fault.ID_MISSING]
    if "result" in seen:
        return [] if seen == {"result", "message_id"} else [Fault.RESULT_WITH_OTHERS]
    pieces = seen & {"fragment_index", "fragment_count"}
    if len(pieces) == 1:
        return [Fault.FRAGMENT_INCOMPLETE]
    if pieces and not values["fragment_index"] < values["fragment_count"] <= limits.max_fragments:
        return [Fault.FRAGMENT_OUT_OF_RANGE]
    return []

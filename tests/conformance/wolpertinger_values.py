"""WOLP-18: typed values of a document as vectors give them: with their type or alone, exact numbers also as texts."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.conformance.reading import Unmapped, same

from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response, type_of
from wirelake.protocols.wolpertinger.layer2.notation import describe_value
from wirelake.protocols.wolpertinger.layer2.values import DateTime, moment

NOT_FINITE = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}


def types_of(message: Call | Response | Error) -> list[str]:
    """The data types of the parameters, or of the value if there is one."""
    if isinstance(message, Error):
        raise Unmapped("types of an error")
    values = message.parameters if isinstance(message, Call) else () if message.value is None else (message.value,)
    return [str(type_of(value)) for value in values]


def is_value(found: Any, given: Any) -> bool:
    """Whether a vector says this value: `{"type": …, "value": …}`, or the value alone."""
    if isinstance(given, dict) and set(given) == {"type", "value"}:
        return same(str(type_of(found)), given["type"]) and _is_plain(found, given["value"])
    return _is_plain(found, given)


def _is_plain(found: Any, given: Any) -> bool:
    if isinstance(found, float):
        return _is_double(found, given)
    if isinstance(found, DateTime):
        return isinstance(given, str) and re.search("Z$|[+-][0-9:]{5}$", given) is not None and moment(given) == found
    if isinstance(found, tuple | list):
        return isinstance(given, list) and len(found) == len(given) and all(map(is_value, found, given))
    described = describe_value(found)["value"]
    return same(_folded(described), _folded(given)) if isinstance(described, dict) else same(described, given)


def _is_double(found: float, given: Any) -> bool:
    """A number, its decimal text, or a name of one that JSON has not."""
    if isinstance(given, str):
        try:
            given = NOT_FINITE[given.lower()] if given.lower() in NOT_FINITE else float(given)
        except ValueError:
            return False
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return given == found or (math.isnan(given) and math.isnan(found))


def _folded(given: Any) -> Any:
    """The fields of a complex value are found without case and underscores: the schema has `TrustLevel`, JSON `trust_level`."""
    if isinstance(given, dict):
        return {key.lower().replace("_", ""): _folded(value) for key, value in given.items()}
    return [_folded(one) for one in given] if isinstance(given, list | tuple) else given

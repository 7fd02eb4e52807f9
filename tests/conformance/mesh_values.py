"""The values of an Event Mesh packet as vectors give them: in lists or by name, as numbers, texts or hex."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

from tests.conformance.reading import Unmapped, same

from wirelake.protocols.event_mesh.messages import LONGEST_FIELD, Field, FieldType
from wirelake.protocols.event_mesh.packet import values

NAMES: Final = {
    **{kind.name.lower().replace("_", ""): kind for kind in FieldType},
    "int": FieldType.INTEGER,
    "str": FieldType.STRING,
    "text": FieldType.STRING,
    "bytes": FieldType.BINARY,
    "encryptionmetadata": FieldType.ENCRYPTION,
    "keyidentifier": FieldType.KEY_ID,
}
"""What a vector may call a type, without case, blanks, hyphens and underscores, and without the s of a plural."""


def same_bytes(found: list[bytes], given: Any) -> None:
    """Bytes are given as text or as hex; all in one way, and in a way that loses none."""
    assert isinstance(given, list)
    assert all(isinstance(one, str) for one in given)
    assert given in ([one.hex() for one in found], [one.decode("latin-1") for one in found], [_utf8(one) for one in found])


def check_lengths(fields: Sequence[Field], given: Any) -> None:
    """EMM-10: bytes of each string that came in pieces, or, if none did, of each string; a number if there is only one."""
    strings = values.values(fields, FieldType.STRING)
    lengths = [len(one) for one in strings if len(one) >= LONGEST_FIELD] or [len(one) for one in strings]
    assert same(lengths if isinstance(given, list) else lengths[0] if len(lengths) == 1 else None, given), lengths


def check_values(found: list[Field], given: Any) -> None:
    """Joined values: as an object, type -> value or values; or as a list, alone or with their types, of all, of data or of numbers."""
    if isinstance(given, dict) and given:
        for name, value in given.items():
            if _folded(name) in ("name", "eventname"):  # EMM-20
                assert same(values.event_name(found), value), name
                continue
            readings = [[field for field in found if field.type == kind] for kind in _types(name)]
            assert any(_is_all(fields, value) for fields in readings), name
        return
    if not isinstance(given, list):
        raise Unmapped(f"values {given!r}")
    data = [field for field in found if not values.is_security(field.type)]
    numbers = [field for field in data if field.type in (FieldType.INTEGER, FieldType.FLOAT)]
    assert any(_is_list(some, given) for some in (found, data, numbers)), given


def matches(field: Field, given: Any) -> bool:
    """Whether a vector says this value: as itself, or as hex of its bytes; a float also as a text that spells it."""
    value = values.typed(field)
    if isinstance(value, float):
        return _is_float(field.value, given)
    if isinstance(value, bytes):
        return isinstance(given, str) and given in (value.hex(), value.decode("latin-1"), _utf8(value))
    if field.type == FieldType.JSON and isinstance(given, dict | list):
        return same(json.loads(value), given)
    return same(value, given)


def _is_float(raw: bytes, given: Any) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return False
    if given == raw.hex():
        return True
    try:
        packed = struct.pack(">f", float(given))
    except (ValueError, OverflowError):
        return False
    return packed == raw


def _is_all(fields: list[Field], given: Any) -> bool:
    """The value of the only field of a type, or the list of all values of it."""
    if len(fields) == 1 and matches(fields[0], given):
        return True
    return bool(fields) and isinstance(given, list) and len(given) == len(fields) and all(map(matches, fields, given))


def _is_list(fields: list[Field], given: list[Any]) -> bool:
    return len(fields) == len(given) and (all(map(matches, fields, given)) or all(map(_is_pair, fields, given)))


def _is_pair(field: Field, given: Any) -> bool:
    if not isinstance(given, list) or len(given) != 2:
        return False
    kinds = _types(given[0]) if isinstance(given[0], str) else {given[0]}
    return field.type in kinds and matches(field, given[1])


def _types(name: str) -> set[int]:
    """The types a name may stand for: digits are decimal, or hex as the rulings write types."""
    plain = _folded(name)
    for spelling in (plain, plain.removesuffix("s"), plain.removesuffix("ies") + "y"):
        if spelling in NAMES:
            return {int(NAMES[spelling])}
    try:
        found = {int(plain, 16)} | ({int(plain)} if plain.isdecimal() else set())
    except ValueError:
        found = set()
    if not found or max(found) > 255:
        raise Unmapped(f"values: no type is called {name!r}")
    return found


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _utf8(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None

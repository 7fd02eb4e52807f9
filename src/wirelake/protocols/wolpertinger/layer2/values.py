"""WOLP-18, WOLP-19: typed values of parameters and responses, and their texts.

| data type | arrives as | may be sent as |
|---|---|---|
| boolean | `bool` | `bool` |
| int32, int64, uint64 | `Int32`, `Int64`, `UInt64`, each an `int` | the same; a plain `int` goes as the first of the three that holds it |
| double | `float` | `float` |
| string | `str` | `str` |
| dateTime | `datetime` in UTC; a `DateTime`, exact to 100 ns, if it is finer | the same; a `datetime` knows its zone |
| guid | `UUID` | `UUID` |
| list | `tuple` | `tuple` or `list` |
| complex types | the frozen values below; `Call`, `Response`, `Error` | the same |

`xml_writer.py` writes complex values as elements, `xml_reader.py` reads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias
from uuid import UUID

import msgspec

from wirelake.errors import LocalProtocolError, RemoteProtocolError
from wirelake.protocols.wolpertinger.faults import Fault

if TYPE_CHECKING:
    from wirelake.protocols.wolpertinger.layer2.calls import Call, Error, Response

__all__ = [
    "BLANKS",
    "DOTNET_WRITERS",
    "GUID",
    "PRIMITIVES",
    "WRITERS",
    "ClientInfo",
    "DataType",
    "DateTime",
    "DirectoryObject",
    "FileObject",
    "Int32",
    "Int64",
    "MountInfo",
    "Permission",
    "SnapshotInfo",
    "UInt64",
    "Value",
    "from_datetime",
    "guid",
    "integer",
    "moment",
    "moment_text",
    "native",
    "parse",
    "to_datetime",
    "written",
]

BLANKS: Final = " \t\r\n"
"""What XML calls white space."""
LONGEST_TOKEN: Final = 2048
"""WOLP-17: characters of a value that is not a string.

The longest exact double takes fewer than 1,100.
"""
TICKS: Final = 10_000_000
"""Of 100 ns, in a second."""
_DAY: Final = 86_400 * TICKS
_LAST_TICK: Final = date.max.toordinal() * _DAY - 1


class DataType(StrEnum):
    """WOLP-18: the values of the attribute `type` of an object."""

    BOOLEAN = "boolean"
    DATE_TIME = "dateTime"
    DOUBLE = "double"
    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    STRING = "string"
    GUID = "guid"
    LIST = "list"
    CLIENT_INFO = "clientInfo"
    DIRECTORY_OBJECT = "directoryObject"
    FILE_OBJECT = "fileObject"
    PERMISSION = "permission"
    MOUNT_INFO = "mountInfo"
    SNAPSHOT_INFO = "snapshotInfo"
    REMOTE_METHOD_CALL = "remoteMethodCall"
    REMOTE_METHOD_RESPONSE = "remoteMethodResponse"
    REMOTE_ERROR = "remoteError"
    DIRECTORY_OBJECT_DIFF = "directoryObjectDiff"
    """Of a later schema than the one that says what is in it: known by name, not supported (306)."""


class _Integer(int):
    """A number that says which data type it is of."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class Int32(_Integer):
    """int32: -2147483648 to 2147483647."""

    __slots__ = ()


class Int64(_Integer):
    """int64: -9223372036854775808 to 9223372036854775807."""

    __slots__ = ()


class UInt64(_Integer):
    """uint64: 0 to 18446744073709551615."""

    __slots__ = ()


class DateTime(msgspec.Struct, frozen=True, gc=False, order=True):
    """dateTime: `ticks` of 100 ns since the year 1 began, in UTC."""

    ticks: int


class ClientInfo(msgspec.Struct, frozen=True, tag="ClientInfo"):
    """clientInfo: a client's description of another."""

    jid: str
    trust_level: int
    """0 to 4."""
    protocol_version: int = 0
    """Only 0 exists."""
    profiles: tuple[str, ...] = ()


class FileObject(msgspec.Struct, frozen=True, tag="FileObject"):
    """fileObject: a file; `hash` is its SHA-1."""

    name: str
    path: str
    created: DateTime
    last_edited: DateTime
    hash: bytes


class DirectoryObject(msgspec.Struct, frozen=True, tag="DirectoryObject"):
    """directoryObject: a directory with what is in it."""

    name: str
    path: str
    created: DateTime
    last_edited: DateTime
    files: tuple[FileObject, ...] = ()
    directories: tuple[DirectoryObject, ...] = ()


class Permission(msgspec.Struct, frozen=True, tag="Permission"):
    """permission: who may see a path."""

    path: str
    permitted_clients: tuple[str, ...] = ()


class MountInfo(msgspec.Struct, frozen=True, tag="MountInfo"):
    """mountInfo: a local path and where it is shown."""

    mount_point: str
    local_path: str


class SnapshotInfo(msgspec.Struct, frozen=True, tag="SnapshotInfo"):
    """snapshotInfo: a snapshot and when it was taken."""

    id: UUID
    time: DateTime


if TYPE_CHECKING:
    Value: TypeAlias = (
        "bool | int | float | str | DateTime | datetime | UUID | tuple[Value, ...] | list[Value] | ClientInfo | DirectoryObject"
        " | FileObject | Permission | MountInfo | SnapshotInfo | Call | Response | Error"
    )
else:
    Value = Any
"""What a parameter or a response may be; see the table above."""

_RANGES: Final[dict[type[_Integer], tuple[DataType, int, int]]] = {
    Int32: (DataType.INT32, -(1 << 31), (1 << 31) - 1),
    Int64: (DataType.INT64, -(1 << 63), (1 << 63) - 1),
    UInt64: (DataType.UINT64, 0, (1 << 64) - 1),
}
"""The data type of each, and the numbers it holds; a plain int takes the first that fits."""
_, _LOWEST, _HIGHEST = _RANGES[Int32]
_ALL_RANGES: Final = tuple(_RANGES.values())
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_INFINITIES: Final = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
GUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""WOLP-14: a guid, as an expression without groups."""
_GUID: Final = re.compile(GUID)
_SHORT_NUMBER: Final = 18
"""Digits below which a number surely fits into 64 bits."""
_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?"
)


def parse(data_type: str, text: str) -> Value:
    """WOLP-18: the value a text is, of a type that is a primitive.

    Raises RemoteProtocolError if it is none.
    """
    return PRIMITIVES[data_type](text)


def written(value: object, dotnet: bool = False) -> tuple[DataType, str] | None:
    """WOLP-18: the data type and the text of a primitive value.

    None for a list or a complex one, which are no texts.

    With `dotnet`, an infinite double is spelled as .NET reads it.
    """
    writer = (DOTNET_WRITERS if dotnet else WRITERS).get(type(value))
    return writer(value) if writer is not None else None


def guid(text: str) -> str | None:
    """WOLP-14: a guid in lower case, or None: 8-4-4-4-12 digits of either case, no braces."""
    return text.lower() if _GUID.fullmatch(text) else None


def integer(text: str, lowest: int, highest: int) -> int | None:
    """A decimal number within a range, or None."""
    if len(text) < _SHORT_NUMBER and text.isascii() and text.isdigit():  # by far the commonest
        number = int(text)
        return number if lowest <= number <= highest else None
    token = text.strip(BLANKS)
    if len(token) > LONGEST_TOKEN or _INTEGER.fullmatch(token) is None or len(token.lstrip("+-0")) > 20:
        return None
    number = int(token)
    return number if lowest <= number <= highest else None


def moment(text: str) -> DateTime | None:
    """WOLP-18: a dateTime of XML Schema from year 1 to 9999 in UTC, or None.

    No zone is UTC, what is finer than 100 ns is dropped.
    """
    token = text.strip(BLANKS)
    found = _MOMENT.fullmatch(token) if len(token) <= LONGEST_TOKEN else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = found.groups()
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    is_midnight = hour == "24" and seconds == 86_400 and not (fraction or "").strip("0")
    if minute > "59" or second > "59" or (hour > "23" and not is_midnight):
        return None
    if sign:
        if zone_minutes > "59" or zone_hours + zone_minutes > "1400":
            return None
        east = int(zone_hours) * 3600 + int(zone_minutes) * 60
        seconds += east if sign == "-" else -east
    try:
        days = date(int(year), int(month), int(day)).toordinal()
    except ValueError:
        return None
    ticks = days * _DAY - _DAY + seconds * TICKS + int((fraction or "")[:7].ljust(7, "0"))
    return DateTime(ticks) if 0 <= ticks <= _LAST_TICK else None


def moment_text(value: DateTime | datetime) -> str:
    """WOLP-18: UTC, seven digits and Z."""
    exact = from_datetime(value) if isinstance(value, datetime) else value
    if not 0 <= exact.ticks <= _LAST_TICK:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, f"{exact} is not within the years 1 to 9999")
    days, rest = divmod(exact.ticks, _DAY)
    seconds, fraction = divmod(rest, TICKS)
    return f"{date.fromordinal(days + 1)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:07}Z"


def from_datetime(value: datetime) -> DateTime:
    """The same moment; a datetime without a zone says no moment and is refused."""
    if value.tzinfo is None:
        raise LocalProtocolError(Fault.VALUE_UNSENDABLE, f"{value!r} has no time zone")
    since = value - datetime(1, 1, 1, tzinfo=UTC)
    return DateTime((since.days * 86_400 + since.seconds) * TICKS + since.microseconds * 10)


def to_datetime(value: DateTime) -> datetime:
    """The same moment in UTC, the tenths of a microsecond dropped."""
    return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=value.ticks // 10)


def native(value: Any) -> Any:
    """A value as Python has it: a DateTime that a datetime can hold as a datetime, also in lists."""
    if type(value) is DateTime:
        return value if value.ticks % 10 else to_datetime(value)
    return tuple(map(native, value)) if type(value) is tuple else value


def _refused(data_type: str, text: str) -> NoReturn:
    shown = text if len(text) <= 40 else text[:40] + "…"
    raise RemoteProtocolError(Fault.VALUE_INVALID, f"{shown!r} is no {data_type}")


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text) if len(text) < 6 else None
    if value is None:
        value = _BOOLEANS.get(text.strip(BLANKS).lower()) if len(text) <= LONGEST_TOKEN else None
    return _refused("boolean", text) if value is None else value


def _integer(kind: type[_Integer]) -> Callable[[str], Value]:
    data_type, lowest, highest = _RANGES[kind]
    short = len(str(highest))

    def read(text: str) -> Value:
        if len(text) < short and text.isascii() and text.isdigit():  # by far the commonest
            return kind(text)
        number = integer(text, lowest, highest)
        return _refused(data_type, text) if number is None else kind(number)

    return read


def _double(text: str) -> float:
    token = text.strip(BLANKS)
    if len(token) <= LONGEST_TOKEN:
        if _DOUBLE.fullmatch(token):
            return float(token)
        lowered = token.lower()
        if lowered == "nan":
            return math.nan
        if lowered in _INFINITIES:
            return _INFINITIES[lowered]
    return _refused("double", text)


def _date_time(text: str) -> DateTime:
    value = moment(text)
    return _refused("dateTime", text) if value is None else value


def _guid(text: str) -> UUID:
    return UUID(text) if _GUID.fullmatch(text) else _refused("guid", text)


PRIMITIVES: Final[dict[str, Callable[[str], Value]]] = {
    DataType.BOOLEAN: _boolean,
    DataType.DATE_TIME: _date_time,
    DataType.DOUBLE: _double,
    DataType.INT32: _integer(Int32),
    DataType.INT64: _integer(Int64),
    DataType.UINT64: _integer(UInt64),
    DataType.STRING: str,
    DataType.GUID: _guid,
}
"""The types whose values are texts, and their readers."""


def _write_int(value: int) -> tuple[DataType, str]:
    return (DataType.INT32, str(value)) if _LOWEST <= value <= _HIGHEST else _write_integer(value)


def _write_integer(value: int) -> tuple[DataType, str]:
    known = _RANGES.get(type(value))  # type: ignore[arg-type]
    for data_type, lowest, highest in _ALL_RANGES if known is None else (known,):
        if lowest <= value <= highest:
            return data_type, f"{value:d}"
    raise LocalProtocolError(Fault.VALUE_UNSENDABLE, f"{type(value).__name__} does not hold a number of {value.bit_length()} bits")


def _write_double(value: float) -> tuple[DataType, str]:
    if math.isnan(value):
        return DataType.DOUBLE, "NaN"
    if math.isinf(value):
        return DataType.DOUBLE, "INF" if value > 0 else "-INF"
    return DataType.DOUBLE, repr(value)


def _write_dotnet_double(value: float) -> tuple[DataType, str]:
    return (DataType.DOUBLE, "Infinity" if value > 0 else "-Infinity") if math.isinf(value) else _write_double(value)


WRITERS: Final[dict[type, Callable[[Any], tuple[DataType, str]]]] = {
    bool: lambda value: (DataType.BOOLEAN, "true" if value else "false"),
    int: _write_int,
    Int32: _write_integer,
    Int64: _write_integer,
    UInt64: _write_integer,
    float: _write_double,
    str: lambda value: (DataType.STRING, value),
    DateTime: lambda value: (DataType.DATE_TIME, moment_text(value)),
    datetime: lambda value: (DataType.DATE_TIME, moment_text(value)),
    UUID: lambda value: (DataType.GUID, str(value)),
}
"""The types that primitives are sent as: what gives the data type and the text of each."""
DOTNET_WRITERS: Final = WRITERS | {float: _write_dotnet_double}
"""The same for peers that run on .NET."""

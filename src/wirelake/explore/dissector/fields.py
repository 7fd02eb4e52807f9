"""Fields: the types of a protocol's fields in Wireshark, from its layout and its table.

The name of a field is `protocol.column`. A column of the table has the type of its values; a field beside the table has the type of its
bytes, as its layout shows them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Final

import msgspec
import pyarrow as pa

from wirelake.explore.bytes.layout import Bit, Flags, Named, Tiling, Truth, hex_of, number_be, number_le, text_of
from wirelake.explore.dissector.translate import quoted

__all__ = ["BESIDE", "FieldType", "fields_of_layout", "joined_columns", "uses_of"]

BESIDE: Final = (
    ("fault", "string", "text", "The first rule that is broken"),
    ("clause", "string", "text", "The clause or ruling of that rule"),
    ("unreadable", "bytes", "bytes", "Bytes that are no message"),
    ("padding", "bytes", "bytes", "Unused bytes"),
)
"""Fields that every protocol has: column, type, form and text."""
WIDTHS: Final = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


class FieldType(msgspec.Struct, frozen=True):
    """One field in Wireshark."""

    column: str
    kind: str
    """The function of `ProtoField` that makes it."""
    form: str
    """How the runtime reads it: `number`, `number_le`, `float`, `bool`, `text`, `bytes` or `none`."""
    title: str
    extra: str = ""
    """Further arguments of that function."""
    in_table: bool = False

    def lua(self, protocol: str) -> str:
        """Return its line in the table of fields."""
        arguments = f"{quoted(f'{protocol}.{self.column}')}, {quoted(self.title)}{self.extra}"
        return f"  [{quoted(self.column)}] = ProtoField.{self.kind}({arguments}),"


class Use(msgspec.Struct):
    """One call of a method of `Tiling`."""

    method: str
    column: str
    size: int | None
    show: object
    title: str


def fields_of_layout(
    lay_out: Callable[..., object], rest: str, schema: pa.Schema, more: tuple[tuple[str, str, str, str], ...]
) -> list[FieldType]:
    """Return the fields of a layout, of bytes that are left (`rest`), and of the Lua file beside it (`more`, like BESIDE)."""
    found: dict[str, FieldType] = {}
    for use in uses_of(lay_out):
        list_name, _, inside = use.column.partition(".")
        if inside and list_name not in found:
            found[list_name] = FieldType(list_name, "none", "none", _titled(list_name))
        known = found.get(use.column)
        field = _typed(use, schema)
        if known is not None and known.form in ("number", "number_le") and known.kind != field.kind:
            field = known if known.kind == "uint64" else msgspec.structs.replace(known, kind="uint64", extra="")
        found[use.column] = field
    left = (rest.replace(" ", "_"), "bytes", "bytes", _titled(rest))
    for column, kind, form, title in (*BESIDE, *more, left):
        known = found.get(column)
        in_table = column in schema.names
        found[column] = known or FieldType(column, kind, form, title, in_table=in_table)
    return list(found.values())


def joined_columns(lay_out: Callable[..., object]) -> list[str]:
    """Return the columns whose values are in pieces."""
    return list(dict.fromkeys(use.column for use in uses_of(lay_out) if use.method == "piece"))


def uses_of(lay_out: Callable[..., object]) -> list[Use]:
    """Return every call of a method of the Tiling that a layout makes."""
    return list(_uses(lay_out, set()))


def _uses(function: object, seen: set[object]) -> Iterator[Use]:
    """Every call of a method of the Tiling, in a function and in those that it calls."""
    if not isinstance(function, FunctionType) or function in seen or function.__module__.endswith(".kernel"):
        return
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            yield from _uses(function.__globals__.get(node.func.id), seen)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "cut":
            yield from _use(node.func.attr, node, function.__globals__)


def _use(method: str, node: ast.Call, names: dict[str, object]) -> Iterator[Use]:
    bound = inspect.signature(getattr(Tiling, method)).bind(None, *node.args, **{str(each.arg): each.value for each in node.keywords})
    given = {name: _known(value, names) for name, value in bound.arguments.items() if name != "self"}
    if method == "pair":
        yield Use(method, "pair", None, text_of, "Pair")
        return
    if method == "padding":
        return
    name = str(given.get("name", given.get("column")))
    column = str(given.get("column") or name.replace(" ", "_"))
    size = given.get("size")
    show = given.get("show") if "show" in given or method not in ("take", "until") else hex_of
    yield Use(method, column, size if isinstance(size, int) and method == "take" else None, show, _titled(name))
    if isinstance(first := given.get("first"), str):
        yield Use(method, first, None, None, _titled(first))


def _known(node: object, names: dict[str, object]) -> object:
    """The value of a literal, or of a name of the module; None if it is known at run time only."""
    if isinstance(node, ast.Constant):
        return node.value
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _titled(name: str) -> str:
    words = name.rpartition(".")[2].replace("_", " ")
    return words[:1].upper() + words[1:]


def _typed(use: Use, schema: pa.Schema) -> FieldType:
    kind = _column_type(use.column, schema)
    if kind is None:
        return _by_show(use)
    title, size = use.title, use.size
    if pa.types.is_boolean(kind):
        mask = use.show.mask if isinstance(use.show, Bit) else None
        words = use.show.words[::-1] if isinstance(use.show, Bit) else ("true", "false")
        extra = f", {8 if mask else 'base.NONE'}, {{{quoted(words[0])}, {quoted(words[1])}}}{f', {mask}' if mask else ''}"
        return FieldType(use.column, "bool", "bool", title, extra, in_table=True)
    if pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        if use.method == "also" and pa.types.is_integer(kind):
            return FieldType(use.column, "int32", "number", title, in_table=True)
        default = "uint64" if pa.types.is_decimal(kind) or kind == pa.int64() else "uint32"
        numeric = default if use.method == "put" else WIDTHS.get(size or 8, "uint64")
        form = "number_le" if use.show is number_le else "number"
        return FieldType(use.column, numeric, form, title, _values(use.show, numeric), in_table=True)
    if pa.types.is_floating(kind):
        return FieldType(use.column, "float", "float", title, in_table=True)
    if pa.types.is_string(kind):
        return FieldType(use.column, "string", "text", title, ", base.UNICODE", in_table=True)
    return FieldType(use.column, "bytes", "bytes", title, in_table=True)


def _column_type(column: str, schema: pa.Schema) -> pa.DataType | None:
    """The type of a column of the table, or of the elements of its list."""
    name, _, inside = column.partition(".")
    if name not in schema.names:
        return None
    kind = schema.field(name).type
    if pa.types.is_list(kind):
        kind = kind.value_type
    if not inside:
        return None if pa.types.is_struct(kind) else kind
    index = kind.get_field_index(inside)
    return None if index < 0 else kind.field(index).type


def _by_show(use: Use) -> FieldType:
    """The type of a field that is no column."""
    match use.show:
        case Named() | Flags() | Truth() | Bit():
            return FieldType(use.column, "uint8", "number", use.title, _values(use.show, "uint8") or ", base.HEX")
        case None if use.method == "take" and use.size == 1:
            return FieldType(use.column, "uint8", "number", use.title, ", base.HEX")
    if use.show in (number_be, number_le):
        numeric = WIDTHS.get(use.size or 8, "uint64")
        return FieldType(use.column, numeric, "number_le" if use.show is number_le else "number", use.title)
    if use.show is text_of:
        return FieldType(use.column, "string", "text", use.title, ", base.UNICODE")
    return FieldType(use.column, "bytes", "bytes", use.title)


def _values(show: object, numeric: str) -> str:
    """The names of codes, as an argument."""
    if not isinstance(show, Named) or numeric == "uint64":
        return ""
    base = "base.HEX" if show.form == "02x" else "base.DEC"
    return f", {base}, {{{', '.join(f'[{code}] = {quoted(name)}' for code, name in show.names.items())}}}"

"""Translate: kernels and layout functions from Python to Lua, so that Wireshark reads bytes as the scanners do.

A kernel uses a small part of Python: integers, byte offsets, loops and conditions. The functions of `explore/bytes` use the same part, and
call methods of the `Tiling` that they get. Everything else is refused with UntranslatableError: nothing is translated by guess.

Numbers of Lua 5.2 are doubles. Bit operations are right for 32 bits, and sums for 53. Kernels that need more have a twin in
`lua/runtime.lua` or in the Lua file of the protocol.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Final

from wirelake.explore.bytes.layout import Tiling, is_show

__all__ = ["MOST_EXACT", "Translation", "UntranslatableError", "quoted"]

MOST_EXACT: Final = 1 << 53
"""From here on a number of Lua may be another one."""
BOOL: Final = "bool"
TEXT: Final = "text"
NUMBER: Final = "number"
STRINGS: Final = frozenset(["data"])
"""Parameters that are byte strings in Lua; others with an index are tables that begin at 0."""
_ARITHMETIC: Final = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_BITS: Final = {ast.BitAnd: "band", ast.BitOr: "bor", ast.BitXor: "bxor", ast.LShift: "lshift", ast.RShift: "rshift"}
_COMPARISONS: Final = {ast.Eq: "==", ast.NotEq: "~=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_KEYWORDS: Final = frozenset(
    [
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if"),
        *("in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    ]
)


class UntranslatableError(Exception):
    """A function uses a part of Python that has no translation; the text names it and its place."""


def quoted(text: str) -> str:
    """Return a string of Lua."""
    escaped = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03d}" for byte in text.encode())
    return f'"{escaped}"'


class Translation:
    """Functions of Lua, each after those that it calls, and the constants that they use."""

    def __init__(self, native: frozenset[str]) -> None:
        """`native` are names of functions that the Lua around this has already."""
        self._native = native
        self._done: dict[str, FunctionType] = {}
        self._tables: dict[str, str] = {}
        self.constants: dict[str, int] = {}
        """Named numbers, in the order of their first use."""
        self.functions: list[str] = []
        """Lua text of each function."""

    def add(self, function: Callable[..., object], name: str = "") -> None:
        """Translate a function, and first every function that it calls."""
        if not isinstance(function, FunctionType):
            raise UntranslatableError(f"{function!r} is no plain function")
        self._add(function, name or function.__name__)

    def constant(self, name: str, value: int) -> str:
        """Define a named number; returns its name in Lua."""
        if self.constants.setdefault(name, value) != value:
            return str(value)  # another module has another number under this name
        return name

    def table(self, name: str, value: Mapping[int, str]) -> str:
        """Define a named table of texts; returns its name in Lua."""
        text = f"local {name} = {{{', '.join(f'[{int(key)}] = {quoted(str(word))}' for key, word in value.items())}}}"
        if self._tables.setdefault(name, text) != text:
            raise UntranslatableError(f"two tables have the name {name}")
        return name

    @property
    def lua(self) -> str:
        """Return tables and functions; `constants` must be defined before them."""
        return "\n\n".join(part for part in ("\n".join(self._tables.values()), *self.functions) if part)

    def _add(self, function: FunctionType, name: str) -> None:
        if name in self._native or self._done.get(name) is function:
            return
        if name in self._done:
            raise UntranslatableError(f"two functions have the name {name}")
        self._done[name] = function
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise UntranslatableError(f"{name} is no function")
        self.functions.append(_Function(self, function, tree, name).lua())


class _Function:
    """One function on its way to Lua."""

    def __init__(self, translation: Translation, function: FunctionType, tree: ast.FunctionDef, name: str) -> None:
        self._translation = translation
        self._globals = function.__globals__
        self._tree = tree
        self._name = name
        self._parameters = [argument.arg for argument in tree.args.args]
        self._types: dict[str, str] = {
            argument.arg: _annotated(argument.annotation) for argument in tree.args.args if argument.annotation is not None
        }
        self._locals: list[str] = []
        for statement in ast.walk(tree):
            self._learn(statement)

    def lua(self) -> str:
        body = list(self._block(self._tree.body, 1))
        head = [f"-- {line}" for line in (ast.get_docstring(self._tree) or "").splitlines()[:1]]
        names = [_spelt(name) for name in self._locals if name not in self._parameters]
        declared = [f"  local {', '.join(names)}"] if names else []
        return "\n".join([*head, f"local function {self._name}({', '.join(map(_spelt, self._parameters))})", *declared, *body, "end"])

    def _refusal(self, node: ast.AST, why: str = "") -> UntranslatableError:
        line = getattr(node, "lineno", 0)
        return UntranslatableError(f"{self._name}, line {line}: {why or ast.unparse(node)} has no translation to Lua")

    # Types: Lua takes 0 for true, and joins text with another operator.

    def _learn(self, node: ast.AST) -> None:
        """Note the local names that a statement assigns, and their types."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._learn_target(target, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self._learn_target(node.target, node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self._types[node.target.id] = NUMBER

    def _learn_target(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._note(target.id, self._type(value))
        elif isinstance(target, ast.Tuple):
            kinds = self._types_of(value, len(target.elts))
            for one, kind in zip(target.elts, kinds, strict=True):
                if isinstance(one, ast.Name):
                    self._note(one.id, kind)

    def _note(self, name: str, kind: str) -> None:
        if name not in self._locals:
            self._locals.append(name)
        if self._types.setdefault(name, kind) != kind:
            raise UntranslatableError(f"{self._name}: {name} is a {self._types[name]} here and a {kind} there")

    def _types_of(self, value: ast.expr, count: int) -> list[str]:
        """The types of so many values that one expression gives."""
        if isinstance(value, ast.Tuple):
            return [self._type(each) for each in value.elts]
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            returned = getattr(self._globals.get(value.func.id), "__annotations__", {}).get("return", "")
            kinds = [
                BOOL if word.strip() == "bool" else NUMBER for word in str(returned).removeprefix("tuple[").removesuffix("]").split(",")
            ]
            if len(kinds) == count:
                return kinds
        return [NUMBER] * count

    def _type(self, node: ast.expr) -> str:
        match node:
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return BOOL
            case ast.Constant(value=value):
                return BOOL if isinstance(value, bool) else TEXT if isinstance(value, str) else NUMBER
            case ast.JoinedStr():
                return TEXT
            case ast.BoolOp(values=values):
                return BOOL if all(self._type(each) == BOOL for each in values) else NUMBER
            case ast.IfExp(body=body):
                return self._type(body)
            case ast.Name(id=name):
                return self._types.get(name, NUMBER)
            case ast.BinOp(op=ast.Add(), left=left):
                return self._type(left)
            case ast.Call(func=ast.Attribute(attr="get")) | ast.Call(func=ast.Name(id="str")):
                return TEXT
            case ast.Call(func=ast.Name(id=name)):
                returned = getattr(self._globals.get(name), "__annotations__", {}).get("return", "")
                return {"bool": BOOL, "str": TEXT}.get(str(returned), NUMBER)
        return NUMBER

    # Statements.

    def _block(self, statements: list[ast.stmt], depth: int) -> Iterator[str]:
        pad = "  " * depth
        for statement in statements:
            yield from (f"{pad}{line}" for line in self._statement(statement))

    def _inner(self, statements: list[ast.stmt]) -> list[str]:
        return list(self._block(statements, 1))

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return []
            case ast.Expr(value=ast.Call() as call):
                return [self._expression(call)]
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                return self._assign(target, value)
            case ast.AugAssign(target=target, op=operator, value=value):
                return self._assign(target, ast.copy_location(ast.BinOp(target, operator, value), node))
            case ast.If():
                return self._if(node)
            case ast.While(test=test, body=body, orelse=[]):
                return [f"while {self._truth(test)} do", *self._inner(body), "end"]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=arguments), body=body, orelse=[]):
                return [self._for(name, arguments), *self._inner(body), "end"]
            case ast.Return(value=None):
                return ["do return end"]
            case ast.Return(value=ast.IfExp(test=test, body=ast.Tuple() as one, orelse=ast.Tuple() as other)):
                return [f"if {self._truth(test)} then", f"  return {self._many(one)}", "end", f"do return {self._many(other)} end"]
            case ast.Return(value=ast.expr() as value):
                return [f"do return {self._many(value)} end"]
            case ast.Break():
                return ["break"]
        raise self._refusal(node)

    def _if(self, node: ast.If, word: str = "if") -> list[str]:
        lines = [f"{word} {self._truth(node.test)} then", *self._inner(node.body)]
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            return [*lines, *self._if(node.orelse[0], "elseif")]
        if node.orelse:
            lines += ["else", *self._inner(node.orelse)]
        return [*lines, "end"]

    def _for(self, name: str, arguments: list[ast.expr]) -> str:
        """A loop over a range, whose end is exclusive in Python."""
        start = self._expression(arguments[0]) if len(arguments) > 1 else "0"
        stop = self._expression(arguments[1] if len(arguments) > 1 else arguments[0])
        step = f", {self._expression(arguments[2])}" if len(arguments) > 2 else ""
        return f"for {_spelt(name)} = {start}, {stop} - 1{step} do"

    def _assign(self, target: ast.expr, value: ast.expr) -> list[str]:
        match target:
            case ast.Name(id=name) if name == "_" or name in self._locals or name in self._parameters:
                return [f"{_spelt(name)} = {self._expression(value)}"]
            case ast.Tuple(elts=targets):
                names = ", ".join(self._expression(each) for each in targets)
                if isinstance(value, ast.Name) and value.id in self._parameters:  # a tuple of limits
                    return [f"{names} = {', '.join(f'{value.id}[{index}]' for index in range(len(targets)))}"]
                return [f"{names} = {self._many(value)}"]
            case ast.Subscript():
                return [f"{self._expression(target)} = {self._expression(value)}"]
        raise self._refusal(target)

    def _many(self, value: ast.expr) -> str:
        if isinstance(value, ast.Tuple):
            return ", ".join(self._expression(each) for each in value.elts)
        return self._expression(value)

    # Expressions.

    def _truth(self, node: ast.expr) -> str:
        """A condition, where a number counts as true unless it is 0."""
        match node:
            case ast.BoolOp(op=operator, values=values):
                word = " and " if isinstance(operator, ast.And) else " or "
                return f"({word.join(self._truth(each) for each in values)})"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"not {self._truth(operand)}"
            case ast.Constant(value=bool(value)):
                return "true" if value else "false"
        text = self._expression(node)
        kind = self._type(node)
        return text if kind == BOOL else f"({text} ~= 0)" if kind == NUMBER else f'({text} ~= "")'

    def _expression(self, node: ast.expr) -> str:
        known = self._constant(node)
        if known is not None:
            return known
        match node:
            case ast.Name(id=name) if name in self._types or name in self._locals or name in self._parameters or name == "_":
                return _spelt(name)
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self._expression(operand)})"
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return f"bnot({self._expression(operand)})"
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                if self._type(node) != BOOL:
                    raise self._refusal(node, f"the value of `{ast.unparse(node)}`")
                return self._truth(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self._truth(test)
                if self._type(body) == BOOL:
                    return f"({condition} and {self._expression(body)} or not {condition} and {self._expression(other)})"
                return f"({condition} and {self._expression(body)} or {self._expression(other)})"
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._item(name, index)
            case ast.Tuple(elts=elements):
                inside = ", ".join(f"[{index}] = {self._expression(each)}" for index, each in enumerate(elements))
                return f"{{{inside}, n = {len(elements)}}}"
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in self._parameters:
                return f"{name}.{attribute}"
            case ast.JoinedStr(values=values):
                return f"({' .. '.join(self._piece(each) for each in values)})"
            case ast.Call():
                return self._call(node)
        raise self._refusal(node)

    def _constant(self, node: ast.expr) -> str | None:
        """A number, text or truth that is known now; None if it is not."""
        if isinstance(node, ast.Constant):
            return self._literal(node.value, node)
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if any(name in self._types or name in self._locals or name in self._parameters or name not in self._globals for name in names):
            return None
        value = self._value(node)
        if isinstance(node, ast.Name) and isinstance(value, int) and not isinstance(value, bool):
            return self._translation.constant(node.id, int(value)) if abs(value) < MOST_EXACT else None
        if is_show(value):
            return "nil"
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{int(value)} --[[{ast.unparse(node).removesuffix('.value')}]]"
        return self._literal(value, node) if isinstance(value, bool | str) else None

    def _value(self, node: ast.expr) -> object:
        """What a name of the module, or an attribute of it, stands for."""
        if isinstance(node, ast.Name):
            return self._globals[node.id]
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr)
        raise self._refusal(node)

    def _literal(self, value: object, node: ast.expr) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, int) and abs(value) < MOST_EXACT:
            return str(value)
        if value is None:
            return "nil"
        raise self._refusal(node)

    def _binary(self, node: ast.BinOp) -> str:
        operator = type(node.op)
        big = self._globals.get(node.left.id) if isinstance(node.left, ast.Name) else None
        if operator is ast.RShift and isinstance(big, int) and big >= MOST_EXACT:  # too many bits: as text, the last bit first
            return f"rshift_bits({quoted(bin(big)[:1:-1])}, {self._expression(node.right)})"
        left, right = self._expression(node.left), self._expression(node.right)
        if operator in _BITS:
            return f"{_BITS[operator]}({left}, {right})"
        if operator is ast.Add and self._type(node.left) == TEXT:
            return f"({left} .. {right})"
        if operator in _ARITHMETIC:
            return f"({left} {_ARITHMETIC[operator]} {right})"
        raise self._refusal(node)

    def _compare(self, node: ast.Compare) -> str:
        parts, left = [], node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In) and isinstance(right, ast.Tuple):
                one = self._expression(left)
                parts.append(f"({' or '.join(f'{one} == {self._expression(each)}' for each in right.elts)})")
            elif isinstance(operator, ast.In) and isinstance(right, ast.Name) and isinstance(table := self._globals.get(right.id), Mapping):
                parts.append(f"{self._translation.table(right.id, table)}[{self._expression(left)}] ~= nil")
            elif type(operator) in _COMPARISONS:
                parts.append(f"{self._expression(left)} {_COMPARISONS[type(operator)]} {self._expression(right)}")
            else:
                raise self._refusal(node)
            left = right
        return f"({' and '.join(parts)})"

    def _item(self, name: str, index: ast.expr) -> str:
        place = self._expression(index)
        if name in STRINGS:
            return f"octet(data, {place} + 1)"
        if name in self._parameters or name in self._locals:
            return f"{_spelt(name)}[{place}]"
        values = self._globals.get(name)
        if isinstance(values, tuple) and all(isinstance(each, int) for each in values):
            return f"({{{', '.join(f'[{at}] = {int(each)}' for at, each in enumerate(values))}}})[{place}]"
        raise self._refusal(index)

    def _piece(self, node: ast.expr) -> str:
        if isinstance(node, ast.FormattedValue) and node.conversion == -1:
            if node.format_spec is None:
                return self._expression(node.value)
            if isinstance(node.format_spec, ast.JoinedStr) and ast.unparse(node.format_spec) == "f'02x'":
                return f"string.format('%02x', {self._expression(node.value)})"
        if isinstance(node, ast.Constant):
            return quoted(str(node.value))
        raise self._refusal(node)

    def _call(self, node: ast.Call) -> str:
        match node.func:
            case ast.Name(id="len"):
                (only,) = node.args
                if isinstance(only, ast.Name) and isinstance(known := self._globals.get(only.id), tuple):
                    return str(len(known))
                return f"#{only.id}" if isinstance(only, ast.Name) and only.id in STRINGS else f"{self._expression(only)}.n"
            case ast.Name(id=("min" | "max") as name):
                return f"math.{name}({', '.join(map(self._expression, node.args))})"
            case ast.Name(id="str"):
                return f"tostring({self._expression(node.args[0])})"
            case ast.Attribute(value=ast.Name(id=name), attr="get") if isinstance(table := self._globals.get(name), Mapping):
                key, default = map(self._expression, node.args)
                return f"({self._translation.table(name, table)}[{key}] or {default})"
            case ast.Attribute(value=ast.Name(id="cut"), attr=method):
                signature = inspect.signature(getattr(Tiling, method))
                bound = signature.bind(None, *node.args, **{str(each.arg): each.value for each in node.keywords})
                given = [self._given(name, bound.arguments.get(name)) for name in list(signature.parameters)[1:]]
                while given and given[-1] == "nil":
                    given.pop()
                return f"cut:{_spelt(method)}({', '.join(given)})"
            case ast.Name(id=name) if isinstance(function := self._globals.get(name), FunctionType) and not node.keywords:
                self._translation.add(function, name)
                return f"{name}({', '.join(map(self._expression, node.args))})"
        raise self._refusal(node)

    def _given(self, parameter: str, node: ast.expr | None) -> str:
        """An argument of a method of `Tiling`. How bytes are shown is known by the type of their field in Lua, unless it is a text."""
        match node:
            case ast.JoinedStr() | ast.Constant():
                is_text = True
            case ast.Name(id=name):
                is_text = self._types.get(name) == TEXT
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get")):
                is_text = all(isinstance(each, str) for each in self._globals.get(name, {None: None}).values())
            case _:
                is_text = False
        return "nil" if node is None or (parameter == "show" and not is_text) else self._expression(node)


def _spelt(name: str) -> str:
    """A local name that is no keyword of Lua."""
    return f"{name}_" if name in _KEYWORDS else name


def _annotated(annotation: ast.expr | None) -> str:
    return {"bool": BOOL, "str": TEXT}.get(ast.unparse(annotation) if annotation else "", NUMBER)

"""How the user's expression reads a tensor: `.item()`, a test, an index, a size. Read from the source, once per place.

The dispatcher shows the same op for all of these; the message and the fix differ. Without source (or, on Python 3.10, without
columns) the answer is taken from the statement, or is "read".
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any

from devguard.observe import source
from devguard.observe.namespaces import Scope, instance_dict
from devguard.observe.symbolize import lines_of, module_ast, position, statement_at

_CASTS = frozenset({"float", "int", "bool", "complex", "round", "abs", "divmod", "pow", "hash"})
_BUILTINS = frozenset({"max", "min", "sorted", "sum", "any", "all", "filter", "list", "tuple", "set"})
_READ_METHODS = frozenset({"item", "tolist", "cpu", "numpy", "to", "is_nonzero", "type", "type_as", "__bool__", "sort"})
_NUMBER_MODULES = frozenset({"math", "np", "numpy", "cmath", "operator", "random"})
_MAX_TEXT = 120


@dataclass(frozen=True, slots=True)
class Reading:
    """`how` is item, cast, branch, builtin, range, index, size, format, contains, compare, call or read; `callee` the called
    name; `subjects` the expressions that may be what is read, best first; `receiver` what the method is called on, or indexed."""

    how: str
    callee: str
    subjects: tuple[ast.expr, ...]
    receiver: ast.expr | None = None
    file: str = ""

    def text(self, node: ast.expr) -> str:
        """One of its expressions as it is written."""
        return text_of(node, self.file)


UNKNOWN = Reading("read", "", ())


def text_of(node: ast.expr, filename: str = "") -> str:
    """The expression as it is written, but for its quotes, on one line and cut where it is very long."""
    lines = lines_of(filename)[node.lineno - 1 : node.end_lineno] if filename else []
    text = _as_written(node, lines[0]) if len(lines) == 1 else source.text_of(node)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _as_written(node: ast.expr, line: str) -> str:
    """A part of a line, with the keys of dicts in the quotes that repr() gives them: names must be equal to those found elsewhere."""
    written = line.encode()  # columns count bytes
    end = node.end_col_offset
    parts: list[bytes] = []
    keys = [n.slice for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)]
    for key in sorted(keys, key=lambda n: -n.col_offset):
        if isinstance(key.value, str):
            parts[:0] = [repr(key.value).encode(), written[key.end_col_offset : end]]
            end = key.col_offset
    return b"".join([written[node.col_offset : end], *parts]).decode(errors="replace")


def _is_jump(code: CodeType, lasti: int) -> bool:
    name = dis.opname[code.co_code[lasti]] if 0 <= lasti < len(code.co_code) else ""
    return "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT")


def _flat(nodes: list[ast.expr]) -> Iterator[ast.expr]:
    """Operands that may hold a tensor: constants left out, tuples and slices opened."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            node = node.value
        if isinstance(node, (ast.Tuple, ast.List)):
            yield from _flat(list(node.elts))
        elif isinstance(node, ast.Slice):
            yield from _flat([part for part in (node.lower, node.upper, node.step) if part is not None])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield from _flat([node.operand])
        elif not isinstance(node, (ast.Constant, ast.Lambda, ast.JoinedStr)):
            yield node


def callee_name(node: ast.Call) -> str:
    """The last name of what is called: `one_hot` for ``F.one_hot(x)``."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _of_call(node: ast.Call) -> Reading:
    name = callee_name(node)
    operands = tuple(_flat([*node.args, *(k.value for k in node.keywords if k.arg not in ("device", "dtype"))]))
    if isinstance(node.func, ast.Attribute):
        receiver = node.func.value
        if name in _READ_METHODS:
            return Reading("item", name, (receiver,), receiver)
        if isinstance(receiver, ast.Name) and receiver.id in _NUMBER_MODULES:
            return Reading("cast", text_of(node.func), operands)
        return Reading("call", name, operands, receiver)
    if name in _CASTS:
        return Reading("cast", name, operands)
    if name == "range":
        return Reading("range", name, operands)
    if name in ("print", "format", "str", "repr"):
        return Reading("format", name, operands)
    if name in _BUILTINS:
        return Reading("builtin", name, operands)
    return Reading("call", name, operands)


def _of_node(node: ast.AST, jump: bool) -> Reading:
    if jump and isinstance(node, ast.expr):
        tested = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else node
        return Reading("branch", "", (tested,))
    if isinstance(node, ast.Call):
        return _of_call(node)
    if isinstance(node, ast.Subscript):
        return Reading("index", "", tuple(_flat([node.slice])), node.value)
    if isinstance(node, ast.JoinedStr):
        return Reading("format", "", tuple(v.value for v in node.values if isinstance(v, ast.FormattedValue)))
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, (ast.Constant, ast.JoinedStr))
    ):
        return Reading("format", "", tuple(_flat([node.right])))
    if isinstance(node, ast.FormattedValue):
        return Reading("format", "", (node.value,))
    if isinstance(node, ast.Compare):
        how = "contains" if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops) else "branch"
        return Reading(how, "", tuple(_flat([*node.comparators, node.left])) if how == "contains" else (node,))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Reading("branch", "", (node.operand,))
    if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        return Reading("branch", "", (node.test,))
    if isinstance(node, ast.With):  # its instructions enter and leave what the item made
        made = [item.context_expr for item in node.items]
        return _of_call(made[0]) if len(made) == 1 and isinstance(made[0], ast.Call) else UNKNOWN
    if isinstance(node, ast.expr):
        return Reading("branch" if isinstance(node, (ast.BoolOp, ast.Name, ast.Attribute)) else "read", "", (node,))
    return UNKNOWN


def _from_statement(code: CodeType, lasti: int) -> Reading:
    """Without columns: the statement's only candidate, a test before a call."""
    span = position(code, lasti)
    statement = statement_at(code.co_filename, span[0]) if span is not None else None
    if statement is None:
        return UNKNOWN
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return _of_node(statement, False)
    body = statement.iter if isinstance(statement, ast.For) else statement
    for node in ast.walk(body):
        if isinstance(node, ast.Call):
            found = _of_call(node)
            if found.how != "call":
                return found
    for node in ast.walk(body):
        if isinstance(node, ast.Call):
            return _of_call(node)
    return UNKNOWN


def _node_at(code: CodeType, lasti: int) -> ast.AST | None:
    return source.node_at(code, lasti) or _node_in_file(code, lasti)


def _node_in_file(code: CodeType, lasti: int) -> ast.expr | ast.stmt | None:
    """The node at an instruction, searched in the whole file: for ``if x > 0: y = 1`` on one line."""
    span, tree = position(code, lasti), module_ast(code.co_filename)
    if span is None or span[2] < 0 or tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.If, ast.While, ast.With)) and span == (
            node.lineno,
            node.end_lineno,
            node.col_offset,
            node.end_col_offset,
        ):
            return node
    return None


def _tested_operand(node: ast.BoolOp, code: CodeType, lasti: int) -> ast.expr | None:
    """The operand of `a or b` that a jump tests: the instructions before it made its value."""
    for back in range(1, 12):
        made = _node_at(code, lasti - 2 * back) if lasti >= 2 * back else None
        for value in node.values:
            if isinstance(value, ast.BoolOp):
                inner = _tested_operand(value, code, lasti)
                if inner is not None:
                    return inner
            if made is value or (isinstance(value, ast.UnaryOp) and made is value.operand):
                return value
    return None


def reading_at(code: CodeType, lasti: int) -> Reading:
    """How the expression at an instruction reads a tensor."""
    return replace(_reading_at(code, lasti), file=code.co_filename)


def _reading_at(code: CodeType, lasti: int) -> Reading:
    node = _node_at(code, lasti)
    if node is None:
        return _from_statement(code, lasti)
    jump = _is_jump(code, lasti)
    if jump and isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        node = node.test
    if jump and isinstance(node, ast.BoolOp):
        node = _tested_operand(node, code, lasti) or node
    return _of_node(node, jump)


def _step_in(value: Any, name: str) -> Any:
    """The attribute `name`, looked up in plain namespaces only: no property and no __getattr__ runs."""
    own = {} if issubclass(type(value), type) else instance_dict(value)
    if name in own:
        return own[name]
    for table in ("_parameters", "_buffers", "_modules"):
        held = own.get(table)
        if type(held) is dict and name in held:
            return held[name]
    return None


def _key(node: ast.Subscript) -> Any:
    """A constant index, None for any other."""
    at = node.slice
    if isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.USub) and isinstance(at.operand, ast.Constant):
        return -at.operand.value if isinstance(at.operand.value, int) else None
    return at.value if isinstance(at, ast.Constant) else None


def value_of(node: ast.expr, variable: Callable[[str], Any]) -> Any:
    """The object that a name, attribute or constant index stands for; None where it would have to be computed."""
    if isinstance(node, ast.Name):
        return variable(node.id)
    if isinstance(node, ast.Attribute):
        return _step_in(value_of(node.value, variable), node.attr)
    if isinstance(node, ast.Subscript):
        held, key = value_of(node.value, variable), _key(node)
        if type(held) is dict and isinstance(key, (str, int)):
            return held.get(key)
        if type(held) in (list, tuple) and isinstance(key, int) and -len(held) <= key < len(held):
            return held[key]
    return None


def variables(frame: FrameType) -> Callable[[str], Any]:
    """Looks a name up as the frame does, and keeps nothing of it alive."""
    scope = Scope(frame)
    outer = scope.globals or {}
    return lambda name: scope.variables[name] if name in scope.variables else outer.get(name)


def is_path(node: ast.expr) -> bool:
    """Is that a name, or a way from one by attributes and constant indices?"""
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Subscript) and _key(node) is not None):
        node = node.value
    return isinstance(node, ast.Name)

"""What code objects of Python 3.10 do not tell: the columns of an instruction and the qualified name of a function.

The library `executing` finds the expression that an instruction belongs to.
"""

from __future__ import annotations

import ast
import dis
import functools
from types import CodeType, SimpleNamespace
from typing import Any

# Instructions that only take what the one before them made: the expression is that one's.
_TAKERS = ("POP_JUMP_IF", "JUMP_IF", "GET_ITER")


@functools.lru_cache(maxsize=4096)
def span_of(filename: str, code: CodeType, lasti: int, line: int) -> tuple[int, int, int, int] | None:
    """(line, end line, column, end column) of an expression; None where it can't be told."""
    import executing

    name, place = _maker(code, lasti)
    frame: Any = SimpleNamespace(f_code=code, f_lasti=place, f_lineno=line, f_globals={})
    try:
        found = executing.Source.executing(frame)
        node: Any = _only_f_string(found.statements) if name == "FORMAT_VALUE" else found.node
    except Exception:  # no source, or one that is not the running code's
        return None
    if node is None or node.end_lineno is None:
        return None
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _maker(code: CodeType, lasti: int) -> tuple[str, int]:
    """The name of an instruction, and the place of the one whose expression it has."""
    before = lasti
    for instruction in dis.get_instructions(code):
        if instruction.offset == lasti:
            return instruction.opname, before if instruction.opname.startswith(_TAKERS) else lasti
        if instruction.opname != "EXTENDED_ARG":
            before = instruction.offset
    return "", lasti


def _only_f_string(statements: Any) -> ast.AST | None:
    found = [node for statement in statements or () for node in ast.walk(statement) if isinstance(node, ast.JoinedStr)]
    return found[0] if found and all(node.end_col_offset == found[0].end_col_offset for node in found) else None


_SCOPES = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
    ast.Lambda: "<lambda>",
}


def qualified_name(tree: ast.AST | None, code: CodeType) -> str:
    """`Net.__init__` for the function of a code object, by the source's tree; its plain name where that does not have it."""
    found = None if tree is None else _find(tree, code.co_name, code.co_firstlineno, ())
    return ".".join(found) if found else code.co_name


def _find(node: ast.AST, name: str, line: int, outer: tuple[str, ...]) -> tuple[str, ...] | None:
    for child in ast.iter_child_nodes(node):
        inner = outer
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            if (child.name, first) == (name, line):
                return (*outer, name)
            if not first <= line <= (child.end_lineno or first):
                continue
            inner = (*outer, child.name) if isinstance(child, ast.ClassDef) else (*outer, child.name, "<locals>")
        elif type(child) in _SCOPES:
            if (_SCOPES[type(child)], child.lineno) == (name, line):  # type: ignore[attr-defined]
                return (*outer, name)
            inner = (*outer, _SCOPES[type(child)], "<locals>")
        found = _find(child, name, line, inner)
        if found:
            return found
    return None

"""Searching source for the statement that gave something its place: an attribute in a class, a name in a function."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator
from types import CodeType, FrameType

from devguard.observe.frames import PROJECT, kind_of
from devguard.observe.site import Site
from devguard.observe.source import text_of
from devguard.observe.symbolize import module_ast, site_of_node, statement_at

_GROWING = frozenset(
    ["append", "extend", "insert", "add", "update", "setdefault", "appendleft", "register_buffer", "register_parameter"]
)
_ELSEWHERE = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "type_as",
        "numpy",
        "item",
        "tolist",
        "device",
        "shape",
        "size",
        "dim",
        "ndim",
        "dtype",
        "numel",
        "append",
    ]
)
_HOST_CALLS = frozenset(["pack_padded_sequence", "isinstance", "len", "print"])
_EMPTY = (ast.Constant, ast.List, ast.Dict, ast.Tuple, ast.Set)


def class_place(cls: type) -> tuple[str, str] | None:
    """(file, qualified name) of a class, taken from its own functions; None for one without Python source."""
    for value in list(cls.__dict__.values()):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, types.FunctionType):
            return value.__code__.co_filename, cls.__qualname__
    return None


@functools.lru_cache(maxsize=1024)
def class_node(filename: str, qualname: str) -> ast.ClassDef | None:
    """The class statement of a class."""
    tree = module_ast(filename)
    if tree is None:
        return None
    names = [name for name in qualname.split(".") if name != "<locals>"]
    found: list[ast.ClassDef] = [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == names[-1]
    ]
    return found[-1] if found else None


def _is_attribute(node: ast.AST, attribute: str) -> bool:
    """Is this ``self.attribute`` or an element of it?"""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == attribute


def _gives(statement: ast.stmt, attribute: str) -> ast.expr | None:
    """The value that a statement gives to ``self.attribute``, puts into it or registers under that name."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        flat = [e for t in targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
        return statement.value if any(_is_attribute(target, attribute) for target in flat) else None
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _GROWING:
        by_name = call.args[:1] and isinstance(call.args[0], ast.Constant) and call.args[0].value == attribute
        if _is_attribute(call.func.value, attribute) or by_name:
            return call.args[-1] if call.args else call
    if text_of(call.func) in ("setattr", "object.__setattr__") and len(call.args) == 3:
        name = call.args[1]
        return call.args[2] if isinstance(name, ast.Constant) and name.value == attribute else None
    return None


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside, in the order of the source."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr):
            yield from _statements(child)


@functools.lru_cache(maxsize=1024)
def attribute_site(
    classes: tuple[tuple[str, str], ...], attribute: str, container: bool = False, near: int = 0
) -> Site | None:
    """The statement in one of these classes that gives ``self.attribute`` its content.

    With `container` the statement that makes the container is preferred (``self.heads = []``), else the one that fills it
    (``self.heads.append(...)``); the one nearest to line `near` before all others."""
    for filename, qualname in classes:
        node = class_node(filename, qualname)
        if node is None:
            continue
        found = [(s, value) for s in _statements(node) if (value := _gives(s, attribute)) is not None]
        if not found:
            continue
        assigned = [s for s, v in found if isinstance(s, (ast.Assign, ast.AnnAssign)) and not _is_none(v)]
        filled = [s for s, value in found if not _is_empty(value)]
        choice = assigned if container and assigned else filled or [s for s, _ in found]
        if node.lineno <= near <= (node.end_lineno or near):
            choice = sorted(choice, key=lambda s: _distance(s, near))
        return site_of_node(filename, choice[0], qualname)
    return None


@functools.lru_cache(maxsize=1024)
def meets_others(classes: tuple[tuple[str, str], ...], attribute: str) -> bool:
    """Do methods of these classes calculate with ``self.attribute``, as far as is seen? Not where each use of it is as an index
    (``x[self.order]``), stores it, takes it elsewhere (``self.order.to(x.device)``) or reads it to the host."""
    seen = False
    for filename, qualname in classes:
        node = class_node(filename, qualname)
        for function in node.body if node is not None else ():
            for use, around in _uses(function, attribute):
                if getattr(function, "name", "") != "__init__" and not _is_harmless(use, around):
                    return True
                seen = True
    return not seen


def _uses(node: ast.AST, name: str, around: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    if (node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "") == name:
        yield node, around
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, name, (node, *around))


def _is_harmless(use: ast.AST, around: tuple[ast.AST, ...]) -> bool:
    """`around` is what stands around the use, innermost first."""
    if isinstance(getattr(use, "ctx", None), (ast.Store, ast.Del)):
        return True
    way = (use, *around)
    if any(isinstance(node, ast.Subscript) and node.slice is way[i] for i, node in enumerate(around)):
        return True
    outer = around[0] if around else None
    if isinstance(outer, ast.Attribute):
        return outer.attr in _ELSEWHERE
    return (
        isinstance(outer, ast.Subscript)
        and isinstance(outer.ctx, ast.Store)
        and not isinstance(around[1], ast.AugAssign)
    )


@functools.lru_cache(maxsize=1024)
def argument_meets_others(code: CodeType, name: str) -> bool:
    """Does a function calculate with its argument, as far as is seen? Not where it only indexes with it, takes it elsewhere, gives
    it to what wants it on the host, or gives the name another value."""
    function = scope_node(code)
    if function is None or name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return True
    met = False
    for use, around in _uses(function, name):
        if isinstance(getattr(use, "ctx", None), ast.Store):
            return False
        call = next((outer for outer in around if isinstance(outer, ast.Call)), None)
        on_host = call is not None and text_of(call.func).split(".")[-1] in _HOST_CALLS
        met = met or not (on_host or _is_harmless(use, around))
    return met


def _distance(statement: ast.stmt, line: int) -> int:
    """How many lines a statement is away from a line; 0 where it covers it."""
    return max(statement.lineno - line, line - (statement.end_lineno or statement.lineno), 0)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("list", "dict", "set", "deque") and not value.args
    return isinstance(value, _EMPTY) and not getattr(value, "elts", getattr(value, "keys", ()))


def scope_node(code: CodeType) -> ast.AST | None:
    tree = module_ast(code.co_filename)
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if code.co_firstlineno in (node.lineno, first):
                return node
    return None


def assignment_site(name: str, frame: FrameType | None) -> Site | None:
    """The last statement before the running one, in the project's frames on the stack, that assigns the variable a name begins with."""
    base = name.split(".")[0].split("[")[0]
    if not base.isidentifier():
        return None
    while frame is not None:
        code = frame.f_code
        if kind_of(code) == PROJECT and (
            base in code.co_varnames or base in code.co_cellvars or code.co_name == "<module>"
        ):
            scope = scope_node(code)
            line = frame.f_lineno
            found = None
            for statement in _statements(scope) if scope is not None else ():
                if statement.lineno >= line:
                    break
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _assigns(statement, base):
                    found = statement
            if found is not None:
                return site_of_node(code.co_filename, found, code.co_name)
        frame = frame.f_back
    return None


def _assigns(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    flat = [e for t in targets for e in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else [t])]
    return any(isinstance(target, ast.Name) and target.id == name for target in flat)


def iterated_name(frame: FrameType | None) -> str:
    """The variable that the running ``for`` statement loops over; empty where none does."""
    if frame is None:
        return ""
    statement = statement_at(frame.f_code.co_filename, frame.f_lineno)
    if not isinstance(statement, (ast.For, ast.AsyncFor)):
        return ""
    node = statement.iter
    while isinstance(node, ast.Call) and node.args:  # enumerate(loader), tqdm(loader)
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else ""

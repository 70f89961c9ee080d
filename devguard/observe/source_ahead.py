"""What the running function would do next with the result of a call: which losses it gives it to, and beside what.

Only what happens for certain is looked at: the statements after the call, not those of a branch or of a loop's next turn."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

from devguard.observe.source import node_at, text_of
from devguard.observe.source_search import scope_node

# What may take a tensor to another device, or make a number of it.
_METHODS = frozenset(
    ["to", "cpu", "cuda", "numpy", "item", "tolist", "type", "type_as", "size", "shape", "device", "data"]
)
_FUNCTIONS = frozenset(["float", "int", "bool", "len", "range", "str", "print"])
_NESTED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_WITH = (ast.With, ast.AsyncWith)


class Use(NamedTuple):
    """A call or an operation that gets the result, and the other expressions that it gets: (position or keyword, expression)."""

    node: ast.Call | ast.BinOp
    others: list[tuple[int | str, ast.expr]]


def uses_ahead(code: CodeType, lasti: int) -> Iterator[Use]:
    """The calls and operations that come after the call at an instruction, in its statement and the next ones, and use its result."""
    node, scope = node_at(code, lasti), scope_node(code)
    way = _way(scope, node) if scope is not None and isinstance(node, ast.Call) else None
    if way is None or node is None or any(isinstance(step, _NESTED) for step in way):
        return
    if any(isinstance(step, ast.Try) and step.handlers and way[i + 1] in step.body for i, step in enumerate(way)):
        return  # it is caught, and the program does something else
    follow = _Follow(node)
    start = max(i for i, step in enumerate(way) if isinstance(step, ast.stmt))
    yield from follow.statement(way[start])
    for i in range(start, 0, -1):
        if follow.over or isinstance(way[i], (*_LOOPS, *_ENDS)):
            return
        for block in ("body", "orelse", "finalbody"):
            rest = getattr(way[i - 1], block, None)
            if isinstance(rest, list) and way[i] in rest:
                yield from follow.block(rest[rest.index(way[i]) + 1 :])


def _way(scope: ast.AST, node: ast.AST) -> list[ast.AST] | None:
    """The nodes from a function's (or module's) own one down to one inside it."""
    if scope is node:
        return [scope]
    for child in ast.iter_child_nodes(scope):
        below = None if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else _way(child, node)
        if below is not None:
            return [scope, *below]
    return None


class _Follow:
    """Follows a result through statements: `result` are the names that hold it or what was calculated from it, `given` those that
    are given another value on the way."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node
        self.result: set[str] = set()
        self.given: set[str] = set()
        self.over = False

    def block(self, statements: list[ast.stmt]) -> Iterator[Use]:
        for statement in statements:
            if self.over:
                return
            if isinstance(statement, _WITH):
                yield from self.block(statement.body)
            elif hasattr(statement, "body"):  # a branch, a loop, a definition: nothing in there is certain
                self._forget(statement)
            else:
                yield from self.statement(statement)

    def statement(self, statement: ast.AST) -> Iterator[Use]:
        """The uses in one simple statement, and what holds the result after it."""
        for inner in ast.walk(statement):
            if isinstance(inner, (ast.Call, ast.BinOp)) and inner is not self.node and not self._inside(inner):
                use = self._use(inner)
                if use is not None:
                    yield use
        self.over = isinstance(statement, _ENDS)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            holds = self._holds(statement.value)
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {name for target in targets for name in _stored(target)}
            self.given |= names
            self.result = self.result | names if holds else self.result - names
        else:
            self._forget(statement)

    def _forget(self, statement: ast.AST) -> None:
        """Names that a statement may change, if only by a method."""
        names = _stored(statement)
        if isinstance(statement, ast.Expr):
            names |= {inner.id for inner in ast.walk(statement) if isinstance(inner, ast.Name)} - self.result
        self.given |= names
        self.result -= names

    def _inside(self, inner: ast.AST) -> bool:
        return any(part is inner for part in ast.walk(self.node))

    def _use(self, node: ast.Call | ast.BinOp) -> Use | None:
        if isinstance(node, ast.BinOp):
            given: list[tuple[int | str, ast.expr]] = [(0, node.left), (1, node.right)]
        else:
            given = [*enumerate(node.args), *((k.arg or "", k.value) for k in node.keywords)]
        if not any(self._holds(value) for _, value in given):
            return None
        others = [(place, value) for place, value in given if not self._mentions(value) and not self._changed(value)]
        return Use(node, others)

    def _mentions(self, value: ast.AST) -> bool:
        return any(
            part is self.node or (isinstance(part, ast.Name) and part.id in self.result) for part in ast.walk(value)
        )

    def _holds(self, value: ast.AST) -> bool:
        """Is this the result, still on its device?"""
        return self._mentions(value) and not leaves(value, self.node)

    def _changed(self, value: ast.AST) -> bool:
        names = {text_of(part) for part in ast.walk(value) if isinstance(part, (ast.Name, ast.Attribute))}
        return bool(names & self.given) or leaves(value)


def leaves(value: ast.AST, but: ast.AST | None = None) -> bool:
    """May an expression's value be on another device than what it is made from? `but` is not looked into."""
    todo = [value]
    while todo:
        part = todo.pop()
        if part is but:
            continue
        if isinstance(part, ast.Attribute) and part.attr in _METHODS:
            return True
        if isinstance(part, ast.Name) and part.id in _FUNCTIONS:
            return True
        if isinstance(part, ast.keyword) and part.arg == "device":
            return True
        todo.extend(ast.iter_child_nodes(part))
    return False


def _stored(node: ast.AST) -> set[str]:
    """The names and attributes that are given a value somewhere inside; of an entry, the name that holds it."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(getattr(inner, "ctx", None), (ast.Store, ast.Del)):
            while isinstance(inner, (ast.Subscript, ast.Starred)):
                inner = inner.value
            found.update(text_of(part) for part in ast.walk(inner) if isinstance(part, (ast.Name, ast.Attribute)))
    return found - {"self"}

"""Questions about source text that the copy rules ask: was it made by a factory, does what left the device come back?

They are asked of the innermost place that is not PyTorch's, be it in the program or in a library that it has installed.

All of it is read from the function's syntax tree when a finding is built; nothing here is certain, and the rules say so."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from types import CodeType

from devguard.observe.frames import RawSite
from devguard.observe.source import node_at, text_of
from devguard.observe.symbolize import module_ast, position, statement_at

Place = tuple[CodeType, int]

_FACTORIES = frozenset(
    "empty zeros ones full arange linspace logspace eye rand randn randint randperm normal tril_indices triu_indices "
    "empty_like zeros_like ones_like full_like rand_like randn_like randint_like bernoulli hann_window hamming_window "
    "meshgrid cartesian_prod".split()
)
_GIVEN_DATA = frozenset("tensor as_tensor asarray from_numpy frombuffer load save from_file".split())
_SCALAR_CALLS = frozenset("len int float bool range print isinstance id hash".split())
_SCALAR_METHODS = frozenset("item size dim numel".split())
_SHAPES = frozenset("shape dtype device ndim requires_grad".split())


def receiver(raw: RawSite | None) -> ast.expr | None:
    """What the move at a raw site is called on."""
    if raw is None:
        return None
    node = node_at(raw[0], raw[1])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value
    return None


def is_assignment_to_part(raw: RawSite | None) -> bool:
    """Is the statement an assignment to a part of a tensor, ``x[...] = y``?"""
    if raw is None:
        return False
    code, lasti = raw[0], raw[1]
    span = position(code, lasti)
    statement = statement_at(code.co_filename, span[0]) if span else None
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign) else targets
    return any(isinstance(target, ast.Subscript) for target in targets)


# -- the scope of a place -----------------------------------------------------------------------------------------------


def scope_of(code: CodeType) -> ast.AST | None:
    """The syntax tree of the function that a code object belongs to (of the module, for code at its top level)."""
    return _scope(code.co_filename, code.co_name, code.co_firstlineno)


@functools.lru_cache(maxsize=512)
def _scope(filename: str, name: str, line: int) -> ast.AST | None:
    tree = module_ast(filename)
    if tree is None or name == "<module>":
        return tree
    best: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            named = isinstance(node, ast.Lambda) or node.name == name
            comprehension = name.startswith("<") and first <= line <= (node.end_lineno or first)
            if (first == line and named) or comprehension:
                best = node
    return best if best is not None else tree


def _assignments(scope: ast.AST) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """(targets, value) of everything in a scope that binds names to a value."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            yield node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield [node.target], node.value
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield [node.target], node.iter
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    yield [item.optional_vars], item.context_expr


# -- made by a factory --------------------------------------------------------------------------------------------------


def made_by_factory(raw: RawSite | None) -> bool:
    """Is what the move at `raw` is called on made of nothing but numbers, by torch's factories, in the same function?"""
    value = receiver(raw)
    if raw is None or value is None:
        return False
    scope = scope_of(raw[0])
    return scope is not None and _from_factories(value, scope, 16) is True and not _used_before(raw, value, scope)


def _used_before(raw: RawSite, value: ast.expr, scope: ast.AST) -> bool:
    """Is what is moved also used where it was made, other than to make or to move it? Then it was not made only to be moved."""
    while isinstance(value, (ast.Call, ast.Subscript, ast.Attribute)):
        value = value.func if isinstance(value, ast.Call) else value.value
    code, lasti = raw[0], raw[1]
    move, span = node_at(code, lasti), position(code, lasti)
    statement = statement_at(code.co_filename, span[0]) if span else None
    if not isinstance(value, ast.Name) or statement is None:
        return False
    name = value.id
    if not any(_binds(targets, name) for targets, _ in _assignments(scope)):
        return False  # a module: ``torch.zeros(3).to(device)``
    rebound = isinstance(statement, ast.Assign) and _binds(statement.targets, name)
    making = [n for n in ast.walk(scope) if isinstance(n, (ast.Assign, ast.AugAssign)) and _builds(n, name)]
    exempt = {id(n) for part in [*making, move, *_shape_reads(scope)] if part is not None for n in ast.walk(part)}
    return any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Load)
        and id(n) not in exempt
        and (not rebound or n.lineno < statement.lineno)
        for n in ast.walk(scope)
    )


def _builds(statement: ast.Assign | ast.AugAssign, name: str) -> bool:
    targets: list[ast.expr] = list(statement.targets) if isinstance(statement, ast.Assign) else [statement.target]
    return _binds(targets, name)


def _shape_reads(scope: ast.AST) -> list[ast.AST]:
    return [n for n in ast.walk(scope) if isinstance(n, ast.Attribute) and n.attr in _SHAPES]


def _from_factories(node: ast.expr, scope: ast.AST, depth: int) -> bool | None:
    """True: made by factories. None: a number or another thing that is no tensor. False: made of given data."""
    if not depth:
        return False
    if isinstance(node, ast.Constant):
        return None
    if isinstance(node, ast.Name):
        values = [value for targets, value in _assignments(scope) if _binds(targets, node.id)]
        if not values:
            return False
        moved = [v for v in values if not _mentions(v, node.id)]
        found = [_from_factories(value, scope, depth - 1) for value in moved]
        return any(found) and all(answer is not False for answer in found)
    if isinstance(node, ast.Call):
        return _call_from_factories(node, scope, depth)
    if isinstance(node, ast.Subscript):
        return _from_factories(node.value, scope, depth - 1)
    if isinstance(node, ast.UnaryOp):
        return _from_factories(node.operand, scope, depth - 1)
    if isinstance(node, (ast.BinOp, ast.Compare)):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
        answers = [_from_factories(part, scope, depth - 1) for part in parts if not _is_number(part, scope)]
        return bool(answers) and all(answer is not False for answer in answers) and any(answers)
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return _from_factories(node.value, scope, depth - 1)
    return False


def _call_from_factories(node: ast.Call, scope: ast.AST, depth: int) -> bool:
    function = node.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    on_torch = isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch"
    )
    if on_torch and name in _FACTORIES:
        return not any(keyword.arg == "device" for keyword in node.keywords)
    if on_torch and name not in _GIVEN_DATA and isinstance(function, ast.Attribute):
        parts = [element for a in node.args for element in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
        answers = [_from_factories(part, scope, depth - 1) for part in parts if not _is_number(part, scope)]
        return bool(answers) and all(answer is True for answer in answers)
    if isinstance(function, ast.Attribute) and not on_torch:
        return _from_factories(function.value, scope, depth - 1) is True
    return False


def _is_number(node: ast.expr, scope: ast.AST, depth: int = 6) -> bool:
    """A constant, a size, or a name that the function binds to nothing but such."""
    if not depth:
        return False
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand, scope, depth - 1)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left, scope, depth - 1) and _is_number(node.right, scope, depth - 1)
    if isinstance(node, ast.Name):
        values = [value for targets, value in _assignments(scope) for target in targets if _binds([target], node.id)]
        parts = [part for value in values for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
        return bool(parts) and all(_is_number(part, scope, depth - 1) for part in parts)
    if isinstance(node, ast.Attribute):
        return node.attr in _SHAPES or (isinstance(node.value, ast.Name) and node.value.id in ("math", "np"))
    if isinstance(node, ast.Subscript):
        return _is_number(node.value, scope, depth - 1)
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name):
            return function.id in _SCALAR_CALLS
        return isinstance(function, ast.Attribute) and (
            function.attr in _SCALAR_METHODS or (isinstance(function.value, ast.Name) and function.value.id == "math")
        )
    return False


def _binds(targets: list[ast.expr], name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in ast.walk(target))


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


# -- what leaves and comes back -----------------------------------------------------------------------------------------


def comes_back(out: tuple[Place, ...], back: tuple[Place, ...]) -> bool:
    """Do data that left the device by the calls `out` flow into the calls `back`, in the innermost function that both share?"""
    for code, left in out:
        for other, returned in back:
            if code is other:
                return left != returned and _flows(code.co_filename, code, left, returned)
    return False


@functools.lru_cache(maxsize=1024)
def _flows(filename: str, code: CodeType, left: int, returned: int) -> bool:
    # The file's name is in the key because code objects of two files with the same text are equal.
    scope, start, end = scope_of(code), node_at(code, left), node_at(code, returned)
    if scope is None or not isinstance(start, ast.expr) or end is None or start is end:
        return False
    modules = _imported(filename)
    flow = _Flow(start, modules)
    for _ in range(8):
        before = len(flow.names)
        for targets, value in _assignments(scope):
            if flow.carries(value):
                flow.names.update(name for target in targets for name in _target_names(target))
        for node in ast.walk(scope):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                flow.grow(node.value)
        if len(flow.names) == before:
            break
    return isinstance(end, ast.expr) and flow.carries(end)


class _Flow:
    """The names that hold data which left the device, growing."""

    def __init__(self, start: ast.expr, modules: frozenset[str]) -> None:
        self.start = start
        self.modules = modules
        self.names: set[str] = set()

    def carries(self, node: ast.AST) -> bool:
        """Does the value of an expression hold such data? Numbers, sizes and answers of foreign objects do not."""
        if _same_place(node, self.start):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)) and text_of(node) in self.names:
            return True
        if isinstance(node, ast.Attribute):
            return node.attr not in _SHAPES and self.carries(node.value)
        if isinstance(node, ast.Call):
            return self._call_carries(node)
        if isinstance(node, ast.Subscript):
            return self.carries(node.value) or self.carries(node.slice)
        if isinstance(node, (ast.Lambda, ast.Constant)):
            return False
        return any(self.carries(child) for child in ast.iter_child_nodes(node))

    def _call_carries(self, node: ast.Call) -> bool:
        function = node.func
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(function, ast.Name):
            return function.id not in _SCALAR_CALLS and any(self.carries(argument) for argument in given)
        if isinstance(function, ast.Attribute):
            if function.attr in _SCALAR_METHODS:
                return False
            if self.carries(function.value):
                return True
            root = function.value
            while isinstance(root, ast.Attribute):
                root = root.value
            passes = isinstance(root, ast.Name) and (
                root.id in self.modules or (root is function.value and root.id in ("self", "cls"))
            )
            return passes and any(self.carries(argument) for argument in given)
        return False

    def grow(self, call: ast.Call) -> None:
        """``kept.append(value)`` puts the data into `kept`."""
        function = call.func
        adds = isinstance(function, ast.Attribute) and function.attr in ("append", "extend", "insert", "add", "update")
        if isinstance(function, ast.Attribute) and adds and any(self.carries(argument) for argument in call.args):
            self.names.update(_target_names(function.value))


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _target_names(element)
    elif isinstance(target, (ast.Starred, ast.Subscript)):
        yield from _target_names(target.value)
    elif isinstance(target, (ast.Name, ast.Attribute)):
        yield text_of(target)


def _same_place(one: ast.AST, other: ast.AST) -> bool:
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return type(one) is type(other) and all(getattr(one, n, None) == getattr(other, n, None) for n in names)


@functools.lru_cache(maxsize=256)
def _imported(filename: str) -> frozenset[str]:
    """The names that a file binds to modules."""
    tree = module_ast(filename)
    found: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            found.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return frozenset(found)

"""Which line of the user's source a finding should send its reader to, where the line that ran is not the one to change."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devguard.observe.frames import RawSite
from devguard.observe.site import Site
from devguard.observe.symbolize import _text, module_ast, position

_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_MOVERS = frozenset({"to", "cuda", "to_empty"})


def scope_at(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, the module where there is none."""
    found: ast.AST = tree
    for node in ast.walk(tree):
        around = isinstance(node, _Function) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if around and (found is tree or getattr(node, "lineno", 0) >= getattr(found, "lineno", 0)):
            found = node
    return found


def statement_of(site: Site) -> ast.stmt | None:
    """The statement that a site shows."""
    tree = module_ast(site.file)
    if tree is None:
        return None
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        here = isinstance(node, ast.stmt) and node.lineno == site.line
        if here and (best is None or (getattr(node, "end_lineno", 0) or 0) <= (best.end_lineno or 0)):
            best = node  # type: ignore[assignment]
    return best


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a scope, without the bodies of functions and classes inside it."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*_Function, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(node))


def target_texts(statement: ast.AST) -> list[str]:
    """What an assignment assigns to, as source text."""
    if isinstance(statement, ast.Assign):
        return [ast.unparse(target) for target in statement.targets]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return [ast.unparse(statement.target)]
    return []


def assignment_of(site: Site, name: str) -> ast.Assign | ast.AnnAssign | None:
    """The one assignment that gives `name` (``device``, ``self.device``) its value at a site; None where that is not certain."""
    tree = module_ast(site.file)
    if tree is None:
        return None
    scope = scope_at(tree, site.line)
    if name.startswith("self."):
        places: list[list[ast.AST]] = [list(ast.walk(tree))]
    else:
        places = [list(own_nodes(scope)), list(own_nodes(tree))]
        if isinstance(scope, _Function) and any(arg.arg == name for arg in scope.args.args + scope.args.kwonlyargs):
            return None  # its value comes with each call
    for nodes in places:
        found = [n for n in nodes if isinstance(n, (ast.Assign, ast.AnnAssign)) and name in target_texts(n)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def only_assignment(site: Site, name: str) -> Site | None:
    """The one statement of a site's file that assigns to `name`, wherever it is; None where there is none or several."""
    tree = module_ast(site.file)
    nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AnnAssign))] if tree is not None else []
    found = [n for n in nodes if name in target_texts(n)]
    return site_of_node(found[0], site) if len(found) == 1 else None


def made_by_name(near: Site | None, name: str) -> Site | None:
    """Where an object that is older than the watch got its name: the one assignment to ``net`` or ``self.model`` in the file of a
    line that uses it."""
    return only_assignment(near, name) if near is not None and name else None


def site_of_node(node: ast.stmt, near: Site) -> Site:
    """The site of a statement in the file of another site."""
    tree = module_ast(near.file)
    scope = scope_at(tree, node.lineno) if tree is not None else None
    name = getattr(scope, "name", "<module>")
    function = near.function if near.function.rpartition(".")[2] == name else name
    end = node.end_lineno or node.lineno
    return Site(
        near.file,
        node.lineno,
        end,
        node.col_offset,
        node.end_col_offset or node.col_offset,
        function,
        _text(near.file, node.lineno, end, node.col_offset),
    )


def device_arguments(statement: ast.AST) -> list[ast.expr]:
    """The expressions that say "to which device" in a statement: ``x.to(device)``, ``Net(device=gpu)``."""
    found: list[ast.expr] = []
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MOVERS and node.args:
            found.append(node.args[0])
        found.extend(keyword.value for keyword in node.keywords if keyword.arg in ("device", "map_location"))
    return found


def device_line(site: Site | None) -> tuple[Site, ast.expr] | None:
    """The statement that defines the device which the statement at `site` uses, and its value: ``device = torch.device("cuda:0")``."""
    statement = statement_of(site) if site is not None else None
    if site is None or statement is None:
        return None
    for argument in device_arguments(statement):
        if isinstance(argument, (ast.Name, ast.Attribute)):
            assignment = assignment_of(site, ast.unparse(argument))
            if assignment is not None and assignment.value is not None:
                return site_of_node(assignment, site), assignment.value
    return None


def literals(node: ast.AST | None) -> set[str]:
    """The string constants inside an expression or statement (parts of f-strings too)."""
    if node is None:
        return set()
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def call_at(raw: RawSite, statement: ast.stmt, method: str) -> ast.Call | None:
    """The call of a method at a raw site's instruction; the first one of that name where Python tells no columns (3.10)."""
    span = position(raw[0], raw[1])
    calls = [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
    ]
    for node in calls:
        if span == (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset):
            return node
    return calls[0] if calls and (span is None or span[2] < 0 or len(calls) == 1) else None

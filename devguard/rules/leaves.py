"""DG112: the moved copy of a parameter or leaf has taken its place, and the gradient goes to the one that nobody has any more.

What a move was for is read from its statement: ``F.linear(x, self.w.to(x.device))`` uses a copy and keeps the leaf, and
``self.w = nn.Parameter(...).to(device)`` keeps the copy and loses the leaf.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from devguard.observe.facts import Facts
from devguard.observe.leaves_facts import LeafFact, LeafFacts
from devguard.observe.site import Site
from devguard.observe.symbolize import module_ast, where
from devguard.rules.describe import place, tensor_ref
from devguard.rules.engine import Check, finding
from devguard.rules.finding import Finding, Fix, Level
from devguard.rules.lines import call_at, scope_at, statement_of, target_texts

_MOVES = frozenset({"to", "cuda", "cpu", "contiguous", "float", "double", "half", "bfloat16"})
_KEEPERS = frozenset({"append", "add", "insert", "extend", "setattr", "register_parameter", "register_buffer"})
_DISPLAYS = (
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.Starred,
)
_COLLECTORS = frozenset({"list", "tuple", "dict", "set"})
# Calls that make a leaf, or hand on the one that they are given.
_MAKERS = frozenset(
    "Parameter Variable requires_grad_ tensor as_tensor from_numpy randn rand zeros ones empty full arange linspace eye randint "
    "normal randperm rand_like randn_like zeros_like ones_like full_like empty_like".split()
)

Origin = Literal["temporary", "same name", "other name"]


@dataclass(slots=True)
class _Use:
    """What a statement does with the copy: which name it gets, and where the leaf was."""

    leaf: Origin
    name: str
    returned: bool


def lost_leaf(facts: Facts) -> Iterator[Finding]:
    """DG112: each move of a leaf whose copy is kept in its place."""
    for fact in facts.table(LeafFacts).moves.values():
        line = where(fact.site)
        if line is None:
            continue
        if fact.refused is not None:
            use = _use_of(fact, line)
            yield _finding(fact, line, use.name if use else "", "error", "the optimizer refuses it")
            continue
        judged = _judge(fact, line, facts)
        if judged is not None:
            yield _finding(fact, line, *judged)


def _judge(fact: LeafFact, line: Site, facts: Facts) -> tuple[str, Level, str] | None:
    """(name, level, what follows) of a lost leaf; None where it is not lost."""
    use = _use_of(fact, line)
    tree = module_ast(line.file)
    if use is None or tree is None:
        return None
    if _refused_by_module(line, facts):
        return use.name, "error", "its module refuses it as a parameter"
    scope = tree if use.name.startswith("self.") else scope_at(tree, line.line)
    loop = _loop_over(scope, use.name, line.line)
    if loop is not None:  # whatever the loop goes over still holds the leaf
        if fact.parameter:
            return None
        scope = loop
    if use.name and _rescued(scope, use.name):
        return None
    unused = "its .grad stays None"
    if use.leaf == "temporary" and fact.parameter:
        return use.name, "error", "the optimizer never sees it, and it is never trained"
    if use.name and (_reads_grad(scope, use.name) or _given_to_reader(tree, scope, use.name)):
        return use.name, "error", unused
    if use.leaf == "temporary":
        if use.returned and _reads_any_grad(tree):
            return use.name, "error", unused
        return use.name, "note", unused
    return None


def _refused_by_module(line: Site, facts: Facts) -> bool:
    """Did the program end in this statement because a module's parameter was given something that is none?"""
    error = facts.exception
    if (
        error is None
        or error.site is None
        or "cannot assign" not in error.message
        or "as parameter" not in error.message
    ):
        return False
    return where(error.site) == line or (where(error.site) or line).line == line.line


def _finding(fact: LeafFact, line: Site, name: str, level: Level, result: str) -> Finding:
    shown = name.removeprefix("self.")
    what = "parameter" if fact.parameter else "leaf"
    fact.tensor.name = shown
    device = fact.tensor.device
    if fact.parameter:
        fix = f'make it where it belongs: nn.Parameter(torch.empty(..., device="{device}")), or leave the move to model.to(device)'
    else:
        fix = f'make the leaf where it belongs: torch.randn(..., device="{device}", requires_grad=True)'
    call = "cuda()" if fact.call == "cuda" else "cpu()" if fact.call == "cpu" else "to(...)"
    return finding(
        "DG112",
        f"{shown or 'the result'} is a copy of a {what} on {fact.source}, not the {what} itself: .{call} gave a tensor that is "
        f"no leaf; {result}",
        level=level,
        certainty="certain" if level == "error" else "likely",
        op=f"Tensor.{fact.call}",
        cause=line,
        count=fact.tally.count,
        first_step=fact.tally.first_step,
        last_step=max(fact.tally.last_step, 0),
        tensor=tensor_ref(fact.tensor),
        fix=Fix(fix),
        **place(fact.refused or fact.site),
    )


# -- reading the statement ----------------------------------------------------------------------------------------------


def _use_of(fact: LeafFact, line: Site) -> _Use | None:
    """What the moving statement does with the copy; None where it only passes through (an operand, an argument)."""
    statement = statement_of(line)
    if statement is None:
        return None
    call = call_at(fact.site, statement, fact.call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    parents = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    kept = _kept_by(call, parents)
    if kept is None:
        return None
    leaf = _spine_end(call.func.value)
    loop = _loop_source(leaf, call, parents)
    name = _name_of(kept)
    returned = isinstance(kept, ast.Return)
    if not isinstance(leaf, (ast.Name, ast.Attribute, ast.Subscript)):
        return _Use("temporary", name, returned) if _makes_leaf(leaf) else None
    text = ast.unparse(leaf)
    same = (loop or text) == name
    return _Use("same name" if same else "other name", name, returned)


def _kept_by(call: ast.Call, parents: dict[ast.AST, ast.AST]) -> ast.AST | None:
    """The assignment, return or ``list.append`` that keeps the copy, through further moves and containers."""
    node: ast.AST = call
    while True:
        parent = parents.get(node)
        if parent is None:
            return None
        if isinstance(parent, ast.Attribute):
            outer = parents.get(parent)
            if parent.attr not in _MOVES or not isinstance(outer, ast.Call):
                return None
            node = outer
        elif isinstance(parent, _DISPLAYS):
            node = parent
        elif isinstance(parent, ast.Call):
            called = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
            if called in _KEEPERS:
                return parent
            if called not in _COLLECTORS:
                return None
            node = parent
        elif isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Return)):
            return parent
        else:
            return None


def _name_of(kept: ast.AST) -> str:
    """The name under which the copy is kept."""
    if isinstance(kept, ast.Call):
        named = [arg.value for arg in kept.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if named:  # setattr(self, "w", ...), self.register_parameter("w", ...)
            return f"self.{named[0]}"
        return ast.unparse(kept.func.value) if isinstance(kept.func, ast.Attribute) else ""
    return next(iter(target_texts(kept)), "")


def _spine_end(node: ast.expr) -> ast.expr:
    """What the moves of a chain start from: ``nn.Parameter(w)`` in ``nn.Parameter(w).float().to(d)``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        inner = node.func.value
        return inner if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)) else node
    return node


def _makes_leaf(node: ast.expr) -> bool:
    """Is this a call that makes a new leaf (``nn.Parameter(...)``, ``torch.randn(..., requires_grad=True)``)?"""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called in _MAKERS:
        return True
    if called.endswith("_"):  # nn.init.xavier_uniform_(nn.Parameter(...)), nn.Parameter(...).normal_()
        inner = node.args[:1] + ([node.func.value] if isinstance(node.func, ast.Attribute) else [])
        return any(_makes_leaf(part) for part in inner)
    return False


def _loop_source(leaf: ast.expr, call: ast.Call, parents: dict[ast.AST, ast.AST]) -> str | None:
    """Where a comprehension's variable comes from: `params` for `p` in ``[p.to(d) for p in params]``."""
    node: ast.AST | None = call
    while node is not None:
        for part in getattr(node, "generators", []):
            names = {n.id for n in ast.walk(part.target) if isinstance(n, ast.Name)}
            if isinstance(leaf, ast.Name) and leaf.id in names:
                return ast.unparse(part.iter)
        node = parents.get(node)
    return None


def _loop_over(scope: ast.AST, name: str, line: int) -> ast.For | None:
    """The loop whose variable `name` is, where the line lies in it."""
    for node in ast.walk(scope):
        around = isinstance(node, ast.For) and node.lineno < line <= (node.end_lineno or line)
        if around and name in {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}:  # type: ignore[attr-defined]
            return node  # type: ignore[return-value]
    return None


# -- reading the rest of the scope --------------------------------------------------------------------------------------


def _reads_grad(scope: ast.AST, name: str) -> bool:
    """Is the gradient read: ``name.grad``, ``name[0].grad``, or ``p.grad`` in a loop over it?"""
    loop_names = {name}
    for node in ast.walk(scope):
        if isinstance(node, (ast.For, ast.comprehension)) and name in {ast.unparse(n) for n in _parts(node.iter)}:
            loop_names |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            base: ast.expr = node.value
            while isinstance(base, ast.Subscript):
                base = base.value
            if ast.unparse(base) in loop_names:
                return True
    return False


def _given_to_reader(tree: ast.AST, scope: ast.AST, name: str) -> bool:
    """Is the tensor given, perhaps in a list, to a function of the same file that reads gradients: ``sgd([w, b], lr)``?"""
    readers = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _reads_any_grad(n)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in readers:
            given = [e for arg in node.args for e in (arg.elts if isinstance(arg, (ast.List, ast.Tuple)) else [arg])]
            if name in {ast.unparse(arg) for arg in given}:
                return True
    return False


def _parts(node: ast.expr) -> list[ast.expr]:
    return [n for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]


def _reads_any_grad(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in ast.walk(tree))


def _rescued(scope: ast.AST, name: str) -> bool:
    """Does the program know that the copy is no leaf: retain_grad(), autograd.grad(), or a new parameter or leaf made from it?"""
    for node in ast.walk(scope):
        if (
            isinstance(node, ast.Assign)
            and name in target_texts(node)
            and f"{name}.detach()" in ast.unparse(node.value)
        ):
            return True
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        on = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if on == name and called in ("retain_grad", "detach_", "register_hook"):
            return True
        given = {
            ast.unparse(part) for value in [*node.args, *(k.value for k in node.keywords)] for part in _parts(value)
        }
        if name in given and (
            called.endswith(("Parameter", "ParameterList", "ParameterDict")) or on.endswith("autograd")
        ):
            return True
        if name in given and called == "grad":
            return True
    return False


CHECKS: tuple[Check, ...] = (lost_leaf,)

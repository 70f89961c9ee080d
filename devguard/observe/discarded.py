"""Moves whose result is thrown away (DG305): told by the instruction after the call, and by the statement around it."""

from __future__ import annotations

import ast
import dis
import functools
from types import CodeType
from typing import Any, NamedTuple

import torch

from devguard.observe import source
from devguard.observe.copies_facts import CopyFacts, DiscardFact
from devguard.observe.copies_intent import caller_of
from devguard.observe.copies_name import moved_name, receiver_text, tensor_fact
from devguard.observe.dispatch import Handlers
from devguard.observe.entries import Entry
from devguard.observe.frames import SKIPPED, kind_of
from devguard.observe.recorder import Recorder
from devguard.observe.symbolize import module_ast, position, statement_at
from devguard.observe.tally import Tally

_CODES = 5000
_METHODS = ("to", "cuda", "cpu")
# Methods whose result is the tensor again: a chain that ends in one of them is thrown away as a whole.
_PASSING = frozenset(
    "to cuda cpu float half double bfloat16 int long bool type contiguous detach clone requires_grad_ view reshape "
    "squeeze unsqueeze flatten".split()
)
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


class _Verdict(NamedTuple):
    how: str  # "" where the result is used
    temporary: bool  # what is moved has no name: nobody could have meant it to move in place


_USED = _Verdict("", False)


class Discarded:
    """Observer: listens to the three methods that move a tensor."""

    name = "discarded moves"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(CopyFacts)
        # By the code object's address, which the entry keeps from being used again: hashing a code object is slow.
        self._verdicts: dict[int, tuple[CodeType, dict[int, _Verdict]]] = {}
        for method in _METHODS:
            handlers.entries[f"Tensor.{method}"].append(recorder.shielded(self.name, self._called))

    def _called(self, entry: Entry) -> None:
        frame = caller_of(entry)
        if frame is None or entry.error is not None:
            return
        code = frame.f_code
        known = self._verdicts.get(id(code))
        if known is None:
            if len(self._verdicts) >= _CODES:
                self._verdicts.clear()
            known = self._verdicts[id(code)] = (code, {})
        verdict = known[1].get(frame.f_lasti)
        if verdict is None:
            verdict = _USED if kind_of(code) == SKIPPED else verdict_at(code, frame.f_lasti)
            known[1][frame.f_lasti] = verdict
        if not verdict.how:
            return
        moved = not _same_device(entry.owner, entry.result)
        if not moved and entry.result is not entry.owner and entry.name == "Tensor.to":
            return  # a cast that was thrown away is no move
        recorder = self.recorder
        key = (entry.site, moved)
        fact = self.facts.discards.get(key)
        if fact is None:
            target = str(entry.result.device) if isinstance(entry.result, torch.Tensor) else ""
            origin = recorder.origins.of(entry.owner)
            name = receiver_text(frame) if verdict.how == "loop variable" else moved_name(entry.owner, frame, origin)
            path, kind = recorder.module_path()
            fact = self.facts.discards[key] = DiscardFact(
                entry.site,
                entry.name.removeprefix("Tensor."),
                verdict.how,
                moved,
                verdict.temporary,
                target,
                tensor_fact(entry.owner, name, origin),
                path,
                kind,
                Tally(),
            )
        fact.tally.hit(recorder.steps.now, recorder.facts.warmup)


def _same_device(one: Any, other: Any) -> bool:
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.device == other.device


@functools.lru_cache(maxsize=512)
def _popped(code: CodeType) -> frozenset[int]:
    """The instructions whose result the next one throws away."""
    found: set[int] = set()
    before = -1
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "EXTENDED_ARG", "NOP"):
            continue
        if instruction.opname == "POP_TOP" and before >= 0:
            # A call of a Python function leaves the frame at the end of the instruction's inline cache.
            found.update(range(before, instruction.offset, 2))
        before = instruction.offset
    return frozenset(found)


def verdict_at(code: CodeType, lasti: int) -> _Verdict:
    """What becomes of the result of the call at an instruction."""
    popped = lasti in _popped(code)
    span = position(code, lasti)
    statement = statement_at(code.co_filename, span[0]) if span else None
    if statement is None:
        return _Verdict("statement", False) if popped else _USED
    call = source.node_at(code, lasti)
    if not isinstance(call, ast.Call):
        call = None
    if isinstance(statement, ast.Expr):
        if call is None:  # Python 3.10 knows no columns: only the plain statement can be judged
            whole = statement.value
            simple = popped and code.co_name not in _COMPREHENSIONS and isinstance(whole, ast.Call)
            return _Verdict("statement", _is_temporary(whole)) if simple else _USED
        if popped or _thrown_away(statement.value, call):
            return _Verdict("statement", _is_temporary(call))
        return _USED
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _only_rebinds(statement, call, code):
        return _Verdict("loop variable", False)
    return _USED


def _thrown_away(whole: ast.expr, call: ast.Call) -> bool:
    """Does the value of a call go nowhere but into the unused value of an expression statement?"""
    if whole is call:
        return True
    if isinstance(whole, ast.Call):
        method = whole.func
        return isinstance(method, ast.Attribute) and method.attr in _PASSING and _thrown_away(method.value, call)
    if isinstance(whole, (ast.List, ast.Tuple, ast.Set)):
        return any(_thrown_away(element, call) for element in whole.elts)
    if isinstance(whole, (ast.ListComp, ast.SetComp)):
        return _thrown_away(whole.elt, call)
    if isinstance(whole, ast.DictComp):
        return _thrown_away(whole.value, call)
    if isinstance(whole, ast.Dict):
        return any(_thrown_away(value, call) for value in whole.values)
    if isinstance(whole, ast.IfExp):
        return _thrown_away(whole.body, call) or _thrown_away(whole.orelse, call)
    if isinstance(whole, ast.BoolOp):
        return _thrown_away(whole.values[-1], call)
    return False


def _is_temporary(node: ast.expr) -> bool:
    """Is what a chain of methods begins with the result of a call, and so without a name: ``torch.zeros(1).cuda()``?"""
    node = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else node
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PASSING:
        node = node.func.value
    return isinstance(node, ast.Call)


def _only_rebinds(statement: ast.Assign | ast.AnnAssign, call: ast.Call | None, code: CodeType) -> bool:
    """``for t in tensors: t = t.to(device)``: the loop variable is rebound, never used again, and the list keeps what it had."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    if not isinstance(target, ast.Name) or statement.value is None:
        return False
    if call is None or not _thrown_away(statement.value, call):
        return False
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(receiver, ast.Name) or receiver.id != target.id:
        return False
    tree = module_ast(code.co_filename)
    loop = _loop_around(tree, statement) if tree is not None else None
    if loop is None or not any(isinstance(n, ast.Name) and n.id == target.id for n in ast.walk(loop.target)):
        return False
    scope: ast.AST = _scope_around(tree, statement) if tree is not None else loop
    if isinstance(scope, ast.Module) and _read_in_functions(scope, target.id):
        return False
    first = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
    return not any(
        isinstance(node, ast.Name)
        and node.id == target.id
        and isinstance(node.ctx, ast.Load)
        and ((node.lineno, node.col_offset) > first or _in_test(loop, node))
        and not _bound_again(scope, loop, node)
        for node in ast.walk(scope)
    )


def _in_test(loop: ast.For | ast.AsyncFor, node: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(loop.iter))


def _read_in_functions(module: ast.Module, name: str) -> bool:
    """Does a function of the module read its global `name`, without binding a variable of its own to it?"""
    for function in ast.walk(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            own = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
            arguments = [a for a in ast.walk(function.args) if isinstance(a, ast.arg) and a.arg == name]
            if own and not arguments and all(isinstance(n.ctx, ast.Load) for n in own):
                return True
    return False


def _bound_again(scope: ast.AST, loop: ast.AST, node: ast.Name) -> bool:
    """Is a later use of the name inside another loop or comprehension that binds it anew?"""
    for other in ast.walk(scope):
        if other is loop:
            continue
        bound: list[ast.AST] = []
        if isinstance(other, (ast.For, ast.AsyncFor)):
            bound = [other.target]
        elif isinstance(other, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            bound = [generator.target for generator in other.generators]
        names = {n.id for target in bound for n in ast.walk(target) if isinstance(n, ast.Name)}
        if node.id in names and any(inner is node for inner in ast.walk(other)):
            return True
    return False


def _loop_around(tree: ast.AST, statement: ast.stmt) -> ast.For | ast.AsyncFor | None:
    """The innermost loop whose body a statement stands in, directly or under conditions."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor)) and _stands_in(node.body, statement):
            return node
    return None


def _stands_in(body: list[ast.stmt], statement: ast.stmt) -> bool:
    return any(
        _same(inner, statement)
        or (isinstance(inner, ast.If) and (_stands_in(inner.body, statement) or _stands_in(inner.orelse, statement)))
        for inner in body
    )


def _scope_around(tree: ast.Module, statement: ast.stmt) -> ast.AST:
    """The innermost function, or the module, that a statement belongs to."""
    best: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= statement.lineno <= (
            node.end_lineno or node.lineno
        ):
            best = node
    return best


def _same(one: ast.stmt, other: ast.stmt) -> bool:
    return one is other or (one.lineno, one.col_offset) == (other.lineno, other.col_offset)

"""Questions about source text at an instruction: what is it called there, what is read there. Only for findings."""

from __future__ import annotations

import ast
import functools
from types import CodeType, FrameType
from typing import Any

import torch

from devguard.observe.frames import RawSite
from devguard.observe.namespaces import children, instance_dict
from devguard.observe.symbolize import position, statement_at

_READERS = frozenset(
    ["float", "int", "bool", "print", "len", "str", "repr", "format", "list", "tuple", "sum", "any", "all", "range"]
)
_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def users_code(raw: RawSite) -> tuple[CodeType, int]:
    """The project's (code, instruction) of a raw site, the library's where there is none."""
    return (raw[2], raw[3]) if len(raw) == 4 else (raw[0], raw[1])


def node_at(code: CodeType, lasti: int) -> ast.AST | None:
    """The expression or statement that an instruction belongs to; None without source or columns (Python 3.10)."""
    return _node_at(code.co_filename, code, lasti)  # equal functions of two files are equal as code objects


@functools.lru_cache(maxsize=4096)
def _node_at(filename: str, code: CodeType, lasti: int) -> ast.AST | None:
    span = position(code, lasti)
    if span is None or span[2] < 0:
        return None
    statement = statement_at(filename, span[0])
    if statement is None:
        return None
    best: ast.AST | None = None
    for node in ast.walk(statement):
        if (
            isinstance(node, (ast.expr, ast.stmt))
            and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == span
        ):
            best = node
            if isinstance(node, ast.expr):
                break
    return best


def text_of(node: ast.AST | None) -> str:
    """The node as one line of source."""
    if node is None:
        return ""
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return ""


def spine(node: ast.expr) -> list[ast.expr]:
    """A value and what it is made from by methods, attributes and indices: ``a.b(c)[d]``, ``a.b(c)``, ``a``."""
    found = [node]
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return found
        found.append(node)


def _same_place(one: ast.AST, other: ast.AST) -> bool:
    return all(getattr(one, name, None) == getattr(other, name, None) for name in _PLACE)


def assigned_name(raw: RawSite | None) -> str:
    """The plain name or attribute that the value made at a raw site is assigned to there: `mask` for
    ``mask = torch.ones(n).triu(1)``; empty where the value is only a part of the statement."""
    if raw is None:
        return ""
    code, lasti = users_code(raw)
    node = node_at(code, lasti)
    span = position(code, lasti)
    statement = statement_at(code.co_filename, span[0]) if span else None
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        pairs: list[tuple[ast.expr, ast.expr]] = [(statement.target, statement.value)]
    elif isinstance(statement, ast.Assign):
        pairs = _pairs(statement.targets[0], statement.value)
    else:
        return ""
    for target, value in pairs:
        if not isinstance(target, (ast.Name, ast.Attribute)):
            continue
        if len(pairs) == 1 if node is None else any(_same_place(node, part) for part in spine(value)):
            return text_of(target)
    return ""


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        if len(target.elts) == len(value.elts):
            return list(zip(target.elts, value.elts, strict=True))
        return []
    return [(target, value)]


def _operands(node: ast.AST) -> list[ast.expr]:
    """The operand expressions of the operation at a node."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Subscript):
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [node.value, *(index for index in indices if not isinstance(index, ast.Slice))]
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        operands = [*receiver, *node.args, *(k.value for k in node.keywords)]
        flat: list[ast.expr] = []
        for operand in operands:
            flat.extend(operand.elts if isinstance(operand, (ast.List, ast.Tuple)) else [operand])
        return flat
    if isinstance(node, (ast.Assign, ast.Return, ast.Expr)) and node.value is not None:
        return _operands(node.value)
    return []


def operand_at(frame: FrameType | None, tensor: Any, variables: dict[str, Any]) -> tuple[str, Any]:
    """(text, base) of the operand of the user's instruction that `tensor` most likely is.

    Base is the variable's tensor that the operand is calculated from on the spot: ``criterion(out, y.float())`` calls its second operand
    `y`, ``x - torch.log(u)`` its second `u`. One made inline (``x + torch.ones(3)``) has no base, and is shown as it is written."""
    node = None if frame is None else node_at(frame.f_code, frame.f_lasti)
    best, text, found = 0, "", None
    for operand in _operands(node) if node is not None else ():
        base = spine(operand)[-1]
        if isinstance(base, (ast.Constant, ast.Lambda)):
            continue
        leaf, value = _leaf(operand, tensor, variables)
        if leaf is not None:
            agrees = 2 * (value.shape == tensor.shape) + (value.dtype == tensor.dtype)
            score, name = 5 + agrees + 4 * (leaf in spine(operand)), text_of(leaf)
        elif isinstance(base, ast.Name) and isinstance(variables.get(base.id), torch.Tensor) and not _moves(operand):
            continue  # it begins with a tensor of another device
        elif look_up(operand, variables) is not _MISSING:
            continue  # it is no tensor: `self` of ``self.layer(x)``
        else:
            score, name = 2 if isinstance(base, ast.Name) else 3, text_of(operand)
            if _is_elsewhere(operand, tensor, variables):
                score = 1
        if score > best:
            best, text, found = score, name, value
    return (text if len(text) <= 80 else text[:77] + "..."), found


def _is_elsewhere(operand: ast.expr, tensor: Any, variables: dict[str, Any]) -> bool:
    """Is an operand that holds no tensor of this device made from one of another, or, beside one on the host, with ``device=``?"""
    if _moves(operand):
        return False
    for node in ast.walk(operand):
        if isinstance(node, ast.keyword) and node.arg == "device" and tensor.get_device() < 0:
            return not (isinstance(node.value, ast.Constant) and node.value.value == "cpu")
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            value = look_up(node, variables)
            if isinstance(value, torch.Tensor) and value.device != tensor.device and value.dim():
                return True
    return False


def _moves(operand: ast.expr) -> bool:
    """Is an operand moved on the spot, as in ``model(x.cpu())``?"""
    return any(isinstance(part, ast.Attribute) and part.attr in ("to", "cpu", "cuda") for part in spine(operand))


def _leaf(operand: ast.expr, tensor: Any, variables: dict[str, Any]) -> tuple[ast.expr | None, Any]:
    """The first part of an expression that plain look-ups turn into a tensor of the same device; 0-dim ones only where no other is."""
    scalar: tuple[ast.expr | None, Any] = (None, None)
    for node in ast.walk(operand):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            for part, value in _opened(node, look_up(node, variables)):
                if isinstance(value, torch.Tensor) and value.device == tensor.device:
                    if value.dim() or not tensor.dim():
                        return part, value
                    scalar = (part, value) if scalar[0] is None else scalar
    return scalar


def _opened(node: ast.expr, value: Any) -> list[tuple[ast.expr, Any]]:
    """A value, or the entries of a list."""
    if type(value) not in (list, tuple):
        return [(node, value)]
    return [(ast.Subscript(node, ast.Constant(index), ast.Load()), item) for index, item in enumerate(value[:16])]


def read_text(frame: FrameType | None) -> str:
    """What is read at the user's instruction; see :func:`devguard.observe.names.expression_at`."""
    if frame is None:
        return ""
    node = node_at(frame.f_code, frame.f_lasti)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not node.args:
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in _READERS and len(node.args) >= 1:
            node = node.args[0]
    elif isinstance(node, (ast.If, ast.While, ast.Assert)):
        node = node.test
    elif isinstance(node, ast.FormattedValue) or (isinstance(node, ast.JoinedStr) and len(node.values) == 1):
        node = node.value if isinstance(node, ast.FormattedValue) else node.values[0]
    elif isinstance(node, ast.stmt):
        return ""
    text = text_of(node)
    return text if len(text) <= 120 else text[:117] + "..."


def called_text(code: CodeType, lasti: int) -> str:
    """What is called at an instruction, as it is written there: `_VF.lstm`; empty for anything but a call."""
    node = node_at(code, lasti)
    return text_of(node.func) if isinstance(node, ast.Call) else ""


_MISSING = object()
_MOVING = frozenset(["to", "cuda", "cpu", "numpy", "item", "tolist"])


def operand_values(frame: FrameType, lasti: int, kind: type = torch.Tensor) -> list[tuple[str, Any]]:
    """(text, tensor) of the operands of a frame's instruction, as far as plain look-ups lead to them; lists are opened.

    Another `kind` than tensors can be asked for."""
    node = node_at(frame.f_code, lasti)
    found: list[tuple[str, Any]] = []
    if node is None:
        return found
    operands = _operands(node)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):  # `p.grad = other`
        statement = statement_at(frame.f_code.co_filename, node.lineno)
        operands = [node.value, *([statement.value] if isinstance(statement, ast.Assign) else [])]
    for operand in operands:
        value = _value(operand, frame)
        text = text_of(operand.value if isinstance(operand, ast.Starred) else operand)
        if isinstance(value, kind):
            found.append((text, value))
        elif type(value) in (list, tuple):
            found.extend((f"{text}[{i}]", item) for i, item in enumerate(value[:64]) if isinstance(item, kind))
    return found


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What an operand of a dead frame stands for; a tensor's methods and indices are taken to stay on its device."""
    if isinstance(node, ast.Starred):
        return _value(node.value, frame)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _MOVING:
        owner = _value(node.func.value, frame)
        return owner if isinstance(owner, torch.Tensor) else _MISSING
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        owner = _value(node.value, frame)
        if isinstance(owner, torch.Tensor):
            return owner
    return look_up(node, {**frame.f_globals, **frame.f_locals})


def look_up(node: ast.expr, variables: dict[str, Any]) -> Any:
    """What names, attributes in instance dictionaries, and keys lead to; nothing of the user's is called. `_MISSING` for anything else."""
    if isinstance(node, ast.Name):
        return variables.get(node.id, _MISSING)
    if isinstance(node, ast.Attribute):
        owner = look_up(node.value, variables)
        if owner is _MISSING or isinstance(owner, torch.Tensor):
            return _MISSING
        own = instance_dict(owner)
        if node.attr in own:
            return own[node.attr]
        return next((value for suffix, value in children(owner) if suffix == f".{node.attr}"), _MISSING)
    if isinstance(node, ast.Subscript):
        owner = look_up(node.value, variables)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else look_up(node.slice, variables)
        if owner is _MISSING or type(key) not in (int, str, bool) or isinstance(owner, torch.Tensor):
            return _MISSING
        return next((value for suffix, value in children(owner) if suffix == f"[{key!r}]"), _MISSING)
    return _MISSING

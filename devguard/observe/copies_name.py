"""What a copied tensor is called, and what is remembered of it. Only when a copy is first met at a place."""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

import torch

from devguard.observe import source
from devguard.observe.copies_ops import bytes_of
from devguard.observe.facts import TensorFact
from devguard.observe.frames import PROJECT, kind_of, user_frame
from devguard.observe.names import name_of, name_where
from devguard.observe.origins import Origin, shape_of, storage_key
from devguard.observe.symbolize import lines_of, position, statement_at

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def receiver_text(frame: FrameType | None) -> str:
    """The source text of what a method is called on at the user's instruction: `sample` for ``sample.to("cuda")``."""
    if frame is None:
        return ""
    node = source.node_at(frame.f_code, frame.f_lasti)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return source.text_of(node.func.value)
    return ""


def index_text(frame: FrameType | None) -> str:
    """The index in ``x[index]`` at the user's instruction, where it is a plain name: `pick`, a NumPy array."""
    inner = user_frame(frame)
    node = source.node_at(inner.f_code, inner.f_lasti) if inner is not None else None
    index = node.slice if isinstance(node, ast.Subscript) else None
    return source.text_of(index) if isinstance(index, (ast.Name, ast.Attribute)) else ""


def assigned_number(frame: FrameType | None) -> str:
    """The number in ``x[index] = number`` at the user's instruction, as it is written there."""
    inner = user_frame(frame)
    if inner is None:
        return ""
    node: ast.AST | None = source.node_at(inner.f_code, inner.f_lasti)
    span = position(inner.f_code, inner.f_lasti)
    if not isinstance(node, ast.Assign) and span is not None:
        node = statement_at(inner.f_code.co_filename, span[0])
    if not isinstance(node, (ast.Assign, ast.AugAssign)):
        return ""
    text = ast.get_source_segment("".join(lines_of(inner.f_code.co_filename)), node.value)
    return text or source.text_of(node.value)


def written_name(tensor: Any, frame: FrameType | None, origin: Origin | None) -> str:
    """The name of what a write copies. In ``results[i] = net(x)`` it is the value as it is written, if no variable holds it."""
    inner = user_frame(frame)
    node = source.node_at(inner.f_code, inner.f_lasti) if inner is not None else None
    if inner is not None and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        statement = statement_at(inner.f_code.co_filename, node.lineno)
        value = statement.value if isinstance(statement, ast.Assign) else None
        if value is not None and not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
            return _held(tensor, frame) or source.text_of(value)
    return name_of(tensor, frame, origin)


def _held(tensor: Any, frame: FrameType | None) -> str:
    """The name of a variable that holds the tensor, or another view of its data."""
    key = storage_key(tensor)

    def same(other: Any) -> bool:
        return other is tensor or (
            key is not None and issubclass(type(other), torch.Tensor) and storage_key(other) == key
        )

    return name_where(same, frame)


def moved_name(tensor: Any, frame: FrameType | None, origin: Origin | None) -> str:
    """The name of a tensor that a method moves. In a comprehension it is the comprehension's own variable: `sample`, not
    `samples[0][0]`."""
    inner = user_frame(frame)
    if inner is not None and kind_of(inner.f_code) == PROJECT and inner.f_code.co_name in _COMPREHENSIONS:
        text = receiver_text(inner)
        if text and text.isidentifier():
            return text
    return name_of(tensor, frame, origin) or receiver_text(inner)


def tensor_fact(
    tensor: Any, name: str, origin: Origin | None, *, role: str = "operand", device: str = ""
) -> TensorFact:
    """The tensor as plain data."""
    if isinstance(tensor, torch.nn.Parameter):
        role = "parameter"
    return TensorFact(
        name=name,
        role=role,
        shape=shape_of(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=device or str(tensor.device),
        nbytes=bytes_of(tensor),
        origin=origin,
    )

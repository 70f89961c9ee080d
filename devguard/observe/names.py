"""What the user would call a tensor: searched in the variables on the stack, only when an event is first met.

The search looks at plain namespaces alone (locals, globals, dicts, lists, instance dictionaries, a module's
parameters, buffers and submodules, cells of closures). It calls no property, no `__getattr__`, no `__eq__` and no
`__len__` of the user's, and compares tensors by identity, then by storage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from types import FrameType
from typing import Any

import torch

from devguard.observe import source
from devguard.observe.frames import user_frame
from devguard.observe.namespaces import NODES, Scope, children, is_value, namespaces, scope_of, search
from devguard.observe.origins import Origin, storage_key

__all__ = [
    "expression_at",
    "name_and_base",
    "name_of",
    "name_of_object",
    "name_where",
    "namespaces",
    "scope_of",
    "search",
]

_SHALLOW = 2  # `batch['labels']`, `self.pos`, `pair[0]`
_DEEP = 9

_Tensor = torch.Tensor


class _Walk:
    """One search through several namespaces: near things in all of them first, then what lies deeper, each object once.

    `same` ends the search; the first object that is only `alike` is kept for the case that nothing is the same."""

    def __init__(self, same: Callable[[Any], bool], alike: Callable[[Any], bool] | None = None) -> None:
        self.same = same
        self.alike = alike
        self.similar: str | None = None
        self.seen: set[int] = set()

    def find(self, spaces: list[list[tuple[str, Any]]]) -> str | None:
        """The path to the first thing that is the same, else to the first that is alike."""
        levels = [[(name, obj, 0) for name, obj in space] for space in spaces]
        budgets = [NODES] * len(spaces)
        for depth in (_SHALLOW, _DEEP):
            for index, nodes in enumerate(levels):
                path, levels[index], budgets[index] = self._to(depth, nodes, budgets[index])
                if path is not None:
                    return path
        return self.similar

    def _to(
        self, depth: int, nodes: list[tuple[str, Any, int]], budget: int
    ) -> tuple[str | None, list[tuple[str, Any, int]], int]:
        queue, beyond = deque(nodes), []
        while queue and budget:
            budget -= 1
            path, obj, level = queue.popleft()
            if self.same(obj):
                return path, [], budget
            if self.alike is not None and self.similar is None and self.alike(obj):
                self.similar = path
            if id(obj) in self.seen:
                continue
            if level >= depth:
                beyond.append((path, obj, level))
                continue
            self.seen.add(id(obj))
            inner = ((path + suffix, child, level + 1) for suffix, child in children(obj) if not is_value(child))
            queue.extend(islice(inner, budget))
        return None, beyond, budget


def name_where(matches: Callable[[Any], bool], frame: FrameType | None) -> str:
    """The user's name for the first object that matches; empty where no variable leads to one."""
    return _Walk(matches).find(namespaces(frame)) or ""


def name_of_object(obj: Any, frame: FrameType | None) -> str:
    """The user's name for any object (a module, an optimizer): `criterion`; empty where no variable leads to it."""
    return _Walk(lambda other: other is obj).find(namespaces(frame)) or ""


def name_of(tensor: Any, frame: FrameType | None, origin: Origin | None = None) -> str:
    """The user's name for a tensor, as seen from `frame` outwards: `batch['labels']`, `model.fc.weight`, `mask`.

    `origin` is where its data was made, if known: the name it was given there is used where no variable holds the
    tensor, or only a place in a tuple does. Empty where nothing can be said.
    """
    return name_and_base(tensor, frame, origin)[0]


def name_and_base(tensor: Any, frame: FrameType | None, origin: Origin | None = None) -> tuple[str, Any]:
    """:func:`name_of`, and the tensor that has this name: another one where `tensor` is calculated from it on the spot."""
    spaces = namespaces(frame)
    path = _path(tensor, spaces)
    if path and not path.endswith("]"):
        return path, tensor
    if path.count("[") > 1 and _by_place(path):  # `data[0][0]`: a variable says more
        plain = [name for space in spaces for name, value in space if value is tensor]
        if plain:
            return plain[0], tensor
    if not path or _by_place(path):
        given = source.assigned_name(origin.site) if origin is not None else ""
        if given:
            return given, tensor
    if path:
        return path, tensor
    visible = {name: value for space in spaces for name, value in space}
    inner = user_frame(frame)
    if inner is not None:  # its own `self`, not that of a framework further out
        visible |= Scope(inner).variables
    text, base = source.operand_at(inner, tensor, visible)
    return (text, tensor) if base is None else (_path(base, spaces) or text, base)


def _path(tensor: Any, spaces: list[list[tuple[str, Any]]]) -> str:
    key = storage_key(tensor)

    def alike(other: Any) -> bool:
        return issubclass(type(other), _Tensor) and storage_key(other) == key

    return _Walk(lambda other: other is tensor, alike if key is not None else None).find(spaces) or ""


def _by_place(path: str) -> bool:
    """Does a path end in the index of a list or tuple (``state[0]``), and not in a key (``batch['x']``)?"""
    inside = path[path.rfind("[") + 1 : -1]
    return inside.isdigit()


def expression_at(frame: FrameType | None) -> str:
    """The source text of what is being read at the user's instruction: `loss` for ``loss.item()`` and ``float(loss)``,
    the test of an ``if``; empty where the source is missing."""
    return source.read_text(user_frame(frame))

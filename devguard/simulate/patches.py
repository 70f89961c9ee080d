"""Set attributes for a while and give all of them back, in reverse order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_ABSENT = object()


class Patches:
    """Every change one simulation makes to objects that are not its own."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Set `owner.name`; returns what was there before (also when it was inherited), or None."""
        before = vars(owner).get(name, _ABSENT)
        seen = getattr(owner, name, None)
        setattr(owner, name, value)
        if before is _ABSENT:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))
        self._scripted(seen, value)
        return seen

    def _scripted(self, original: Any, value: Any) -> None:
        """Let TorchScript compile a call of `value` to the op that `original` stands for."""
        table: Any = torch.jit._builtins._get_builtin_table()
        if callable(value) and id(original) in table and id(value) not in table:
            table[id(value)] = table[id(original)]
            self._undo.append(lambda: table.pop(id(value)))

    def method(self, name: str, make: Callable[[Any], Any]) -> None:
        """Replace torch.Tensor.name by make(original)."""
        import torch

        original = getattr(torch.Tensor, name)
        self.set(torch.Tensor, name, functools.wraps(original)(make(original)))

    def on_restore(self, undo: Callable[[], object]) -> None:
        """Run `undo` when the patches are given back, in its turn."""
        self._undo.append(undo)

    def restore(self) -> None:
        """Give everything back. All of it is tried even if one step fails; the first failure is raised at the end."""
        failure: Exception | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as problem:
                failure = failure or problem
        if failure is not None:
            raise failure

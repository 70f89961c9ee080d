"""Looking at every op for a while: costs nothing while nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from devguard.simulate.tensor import SimTensor

Before = Callable[[Any, Sequence[Any], Mapping[str, Any]], None]
After = Callable[[Any, Sequence[Any], Mapping[str, Any], Any], None]


class Intercepts:
    """Who looks at the ops on simulated tensors now, by name."""

    def __init__(self) -> None:
        self._before: dict[str, Before] = {}
        self._after: dict[str, After] = {}
        self._usual: Any = None  # what `__torch_dispatch__` is while nobody looks

    def look(self, name: str, *, before: Before | None = None, after: After | None = None) -> None:
        """From now on call `before(func, args, kwargs)` ahead of each op and `after(func, args, kwargs, result)` behind it."""
        if before is not None:
            self._before[name] = before
        if after is not None:
            self._after[name] = after
        if self._usual is None:
            self._usual = SimTensor.__dict__["__torch_dispatch__"]
            SimTensor.__torch_dispatch__ = staticmethod(self._dispatch)

    def leave(self, name: str) -> None:
        """Look no more."""
        self._before.pop(name, None)
        self._after.pop(name, None)
        if not self._before and not self._after and self._usual is not None:
            SimTensor.__torch_dispatch__ = self._usual
            self._usual = None

    def end(self) -> None:
        """Nobody looks any more."""
        for name in {*self._before, *self._after}:
            self.leave(name)

    def _dispatch(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        for before in tuple(self._before.values()):
            before(func, args, given)
        usual = self._usual
        result = (usual or SimTensor.__dict__["__torch_dispatch__"]).__func__(func, types, args, kwargs)
        for after in tuple(self._after.values()):
            after(func, args, given, result)
        return result

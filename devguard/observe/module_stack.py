"""Which modules are running, innermost last, and what they are called.

`nn.Module._call_impl` is replaced by a plain function: a global forward hook would take every call off PyTorch's fast
path, gets no keyword arguments, and is not run when something other than an Exception ends the call.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.names import name_of_object, search
from devguard.observe.recorder import Recorder

Entered = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
Left = Callable[[Any, tuple[Any, ...], dict[str, Any], BaseException], None]


class ModuleStack:
    """Observer: keeps `recorder.thread.modules`, counts the outermost module's calls, tells its listeners.

    `entered` listeners get (module, args, kwargs) before each call, `failed` ones also the exception that ended it;
    `called` listeners get each outermost module."""

    name = "module stack"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.entered: list[Entered] = []
        self.failed: list[Left] = []
        self.called: list[Callable[[Any], None]] = []
        self._root: weakref.ref[torch.nn.Module] | None = None
        self._next: list[Callable[..., Any]] = []
        self._ours: Callable[..., Any] | None = None
        self._counts: dict[int, bool] = {}
        recorder.module_path = self.path
        if recorder.root is not None:
            self._root = weakref.ref(recorder.root)

    @property
    def root(self) -> torch.nn.Module | None:
        """The watched module; where none was given, the first one called."""
        return None if self._root is None else self._root()

    # -- the patch ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Replace nn.Module._call_impl."""
        self._next = [torch.nn.Module._call_impl]
        self._ours = _call_impl(self, self._next)
        torch.nn.Module._call_impl = self._ours  # type: ignore[method-assign]

    def stop(self) -> None:
        """Give it back, also where another watch has replaced it since."""
        ours, current = self._ours, torch.nn.Module._call_impl
        if ours is None:
            return
        if current is ours:
            torch.nn.Module._call_impl = self._next[0]  # type: ignore[method-assign]
        while (link := getattr(current, "devguard_next", None)) is not None:
            if link[0] is ours:
                link[0] = self._next[0]
                break
            current = link[0]
        self._ours = None

    def outermost(self, module: torch.nn.Module) -> None:
        """A module is called that no other module calls."""
        if self.root is None:
            self._root = weakref.ref(module)
        counts = self._counts.get(id(module))
        if counts is None:
            wraps_root = self.recorder.root is not None and path_within(module, self.root) is not None
            counts = self._counts[id(module)] = module is self.root or wraps_root
        if counts:
            self.recorder.steps.outermost_called()
        for listener in self.called:
            listener(module)

    # -- names --------------------------------------------------------------------------------------------------------

    def path(self, module: Any = None) -> tuple[str, str]:
        """(path, type name) of a module, by default the innermost that runs; two empty strings where none runs.

        Paths start from the root, whose own path is empty; a module outside it starts with its variable's name."""
        stack = self.recorder.thread.modules
        if module is None:
            if not stack:
                return "", ""
            module = stack[-1]
        kind = type(module).__name__
        root = self.root
        if root is not None:
            inside = path_within(root, module)
            if inside is not None:
                return inside, kind
        for outer in stack:
            if outer is module:
                break
            inside = path_within(outer, module)
            if inside:
                start = self.path(outer)[0] if outer is not root else ""
                return f"{start}.{inside}" if start else inside, kind
        return name_of_object(module, sys._getframe(1)), kind


def path_within(root: Any, module: Any) -> str | None:
    """The path from a module to one inside it: `h.1`, or `heads[0]` where it is not registered; None for a stranger."""
    if root is module:
        return ""
    for name, inner in registered(root):
        if inner is module:
            return name
    found = search([("", root)], lambda other: other is module, 6)
    return found.lstrip(".") if found else None


def registered(root: Any) -> list[tuple[str, Any]]:
    """(dotted path, module) of a module and all that are registered inside it, each once; no method of theirs is called."""
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("", root)]
    while todo:
        path, module = todo.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        found.append((path, module))
        inner = module.__dict__.get("_modules") or {}
        todo.extend((f"{path}.{name}" if path else name, child) for name, child in reversed(list(inner.items())))
    return found


def _call_impl(owner: ModuleStack, link: list[Callable[..., Any]]) -> Callable[..., Any]:
    """What nn.Module._call_impl is while a watch runs. `link[0]` is what it replaces."""
    recorder = owner.recorder
    thread = recorder.thread
    entered, failed = owner.entered, owner.failed
    outermost = recorder.shielded("steps by calls", owner.outermost)
    is_compiling = torch.compiler.is_compiling

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not recorder.active:
            return link[0](self, *args, **kwargs)
        stack = thread.modules
        if not stack:
            outermost(self)
        stack.append(self)
        try:
            for listener in entered:
                listener(self, args, kwargs)
            return link[0](self, *args, **kwargs)
        except Exception as error:
            for tell in failed:
                tell(self, args, kwargs, error)
            raise
        finally:
            stack.pop()

    _call_impl.devguard_next = link  # type: ignore[attr-defined]
    # Dynamo compiles this in its place: a function of devguard's in the middle would break the graph.
    _call_impl._torchdynamo_inline = getattr(link[0], "_torchdynamo_inline", link[0])  # type: ignore[attr-defined]
    return _call_impl

"""Looking into objects without calling anything of the user's: no property, no `__getattr__`, no `__eq__`, no `__len__`.

Plain namespaces alone are read: locals, globals, dicts, lists, instance dictionaries, slots, a module's parameters, buffers and submodules,
the cells of closures, what a partial holds.
"""

from __future__ import annotations

import collections
import dis
import functools
import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devguard.observe.frames import LIBRARY, PROJECT, kind_of

NODES = 2000  # objects looked at in one search
_ITEMS = 200  # entries looked at in one container
_FRAMES = 40

_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), type, types.ModuleType, types.CodeType)
_SHOWN = (torch.Tensor, list, dict, tuple, torch.nn.Module)
_CLOSED_VALUES = (*_LEAVES, torch.Tensor)
_CLEARED = sys.version_info < (3, 13)  # from 3.13 on `f_locals` is a view of the frame and keeps nothing alive


class Scope:
    """The variables of one frame, read once; what the frame would keep alive because of that is let go again."""

    def __init__(self, frame: types.FrameType) -> None:
        code = frame.f_code
        self.variables: dict[str, Any] = {}
        optimized = bool(code.co_flags & 2)  # CO_NEWLOCALS: a function, not a module or a class body
        if not optimized or not _CLEARED:
            self.variables = dict(frame.f_locals)
        elif not _calls_locals(code):
            # The snapshot belongs to the frame. A function that calls locals() may have given it away: left alone.
            snapshot = frame.f_locals
            self.variables = dict(snapshot)
            if frame.f_trace is None and sys.gettrace() is None:
                snapshot.clear()
        self.globals: dict[str, Any] | None = frame.f_globals if optimized else None
        self.is_module = frame.f_locals is frame.f_globals if not optimized else False
        self.namespace = id(frame.f_globals)


@functools.lru_cache(maxsize=1024)
def _calls_locals(code: types.CodeType) -> bool:
    """Does the function itself call locals()? (pytest writes `@py_builtins.locals()` into assertions, and lets the result go.)"""
    if "locals" not in code.co_names:
        return False
    return any(i.argval == "locals" and i.opname in ("LOAD_GLOBAL", "LOAD_NAME") for i in dis.get_instructions(code))


def _is_plain_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not name.startswith("__")


def instance_dict(obj: Any) -> dict[str, Any]:
    """The `__dict__` of an object, read past whatever its class says; empty where there is none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if type(found) is dict else {}


def _slots(obj: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(obj).__mro__:
        if cls.__dict__.get("__slots__") is None:
            continue
        for name, member in list(cls.__dict__.items()):
            if type(member) is types.MemberDescriptorType:
                try:
                    yield f".{name}", member.__get__(obj, type(obj))
                except AttributeError:
                    continue


def _entries(mapping: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in list(dict.items(mapping))[:_ITEMS]:
        if type(key) in (str, int, bool):
            yield f"[{key!r}]", value
        else:
            yield "[...]", value


def _of_module(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    own = instance_dict(module)
    for table in ("_parameters", "_buffers", "_modules"):
        for name, value in list((own.get(table) or {}).items()):
            yield f".{name}", value
    for name, value in list(own.items()):
        if not name.startswith("_") or issubclass(type(value), _SHOWN):
            if name in _MODULE_INTERNALS:
                continue
            yield f".{name}", value


# fmt: off
_MODULE_INTERNALS = frozenset({
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "_flat_weights", "_flat_weights_names", "_all_weights", "_flat_weight_refs",
})
# fmt: on


def is_value(obj: Any) -> bool:
    """Is this a plain value that holds nothing? Asked of the type: `isinstance` would ask a proxy for its `__class__`."""
    return issubclass(type(obj), _LEAVES)


def _fields(kind: type) -> tuple[str, ...]:
    """The field names of a named tuple's class."""
    if issubclass(kind, tuple) and kind is not tuple:
        for cls in kind.__mro__:
            fields = cls.__dict__.get("_fields")
            if isinstance(fields, tuple):
                return fields
    return ()


def children(obj: Any) -> Iterator[tuple[str, Any]]:
    """(how to get there from `obj`, object) of everything that a plain namespace inside `obj` holds."""
    kind = type(obj)
    if issubclass(kind, _CLOSED_VALUES):
        return
    if issubclass(kind, dict):
        yield from _entries(obj)
    elif issubclass(kind, (list, tuple)):
        fields = _fields(kind)
        items = tuple.__iter__(obj) if issubclass(kind, tuple) else list.__iter__(obj)
        for index, value in enumerate(itertools.islice(items, _ITEMS)):
            yield f".{fields[index]}" if index < len(fields) else f"[{index}]", value
        if kind in (list, tuple):
            return
    elif issubclass(kind, collections.UserDict):
        yield from _entries(instance_dict(obj).get("data") or {})
        return
    elif issubclass(kind, torch.nn.Module):
        yield from _of_module(obj)
        return
    elif issubclass(kind, types.FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
            try:
                yield f".{name}", cell.cell_contents
            except ValueError:  # an empty cell
                continue
        defaults = obj.__defaults__ or ()
        given = obj.__code__.co_varnames[: obj.__code__.co_argcount]
        for name, value in zip(given[len(given) - len(defaults) :], defaults, strict=False):
            yield f".{name}", value
        return
    elif issubclass(kind, functools.partial):
        yield ".func", obj.func
        for index, value in enumerate(obj.args):
            yield f".args[{index}]", value
        for name, value in obj.keywords.items():
            yield f".{name}", value
        return
    elif issubclass(kind, types.MethodType):
        yield "", obj.__self__
        return
    elif kind.__module__ in _CLOSED or kind.__module__.startswith(("torch._", "torch.cuda", "numpy")):
        return
    for name, value in list(instance_dict(obj).items()):
        if isinstance(name, str):
            yield f".{name}", value
    if kind.__flags__ & 512:  # a heap type: written in Python, perhaps with __slots__
        yield from _slots(obj)


_CLOSED = frozenset("builtins logging threading argparse pathlib re io ast enum inspect typing".split())


def search(
    roots: list[tuple[str, Any]], target: Callable[[Any], bool], depth: int, seen: set[int] | None = None
) -> str | None:
    """The shortest path from one of `roots` (name, object) to an object for which `target` is true, breadth first."""
    if seen is None:
        seen = set()
    queue: deque[tuple[str, Any, int]] = deque((name, obj, 0) for name, obj in roots)
    budget = NODES
    while queue and budget:
        budget -= 1
        path, obj, level = queue.popleft()
        if target(obj):
            return path
        if level >= depth or id(obj) in seen:
            continue
        seen.add(id(obj))
        for suffix, child in children(obj):
            if is_value(child):
                continue
            queue.append((path + suffix, child, level + 1))
    return None


def scope_of(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a frame, in a dict of one's own."""
    return {name: value for name, value in Scope(frame).variables.items() if _is_plain_name(name)}


def _scopes(frame: types.FrameType | None) -> tuple[list[Scope], list[Scope]]:
    """The project's scopes, outermost first, and the libraries', innermost first."""
    project: list[Scope] = []
    library: list[Scope] = []
    while frame is not None and len(project) + len(library) < _FRAMES:
        kind = kind_of(frame.f_code)
        if kind == PROJECT:
            project.append(Scope(frame))
        elif kind == LIBRARY:
            library.append(Scope(frame))
        frame = frame.f_back
    project.reverse()
    return project, library


def namespaces(frame: types.FrameType | None) -> list[list[tuple[str, Any]]]:
    """The variables that the code at `frame` can see, as (name, value): the project's frames outermost first, then the libraries'."""
    project, library = _scopes(frame)
    spaces: list[list[tuple[str, Any]]] = []
    shown: set[int] = {scope.namespace for scope in project if scope.is_module}
    for scope in project:
        spaces.append([(n, v) for n, v in scope.variables.items() if _is_plain_name(n)])
        if scope.globals is not None and scope.namespace not in shown:
            shown.add(scope.namespace)
            spaces.append([(n, v) for n, v in list(scope.globals.items()) if _is_plain_name(n)])
    spaces.extend([(n, v) for n, v in scope.variables.items() if _is_plain_name(n)] for scope in library)
    return spaces

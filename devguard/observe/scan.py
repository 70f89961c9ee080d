"""What a module holds: its registered tensors, the tensors it holds without registering them, and the modules it cannot see.

Only instance dictionaries and plain containers are read; see names.py for what is never touched.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import torch

from devguard.observe.module_stack import registered
from devguard.observe.namespaces import children, is_value
from devguard.observe.origins import storage_key

_DEPTH = 4  # `self.helper.tables['rope'][0]`
_NODES = 4000
_SKIPPED_ATTRIBUTES = frozenset({"_parameters", "_former_parameters", "_buffers", "_modules"})

_Tensor = torch.Tensor


class Slot(NamedTuple):
    """A registered tensor, its dotted path from the scanned root, and the module it is registered in."""

    path: str
    name: str
    is_parameter: bool
    tensor: Any
    module: Any
    module_path: str


class Held(NamedTuple):
    """A tensor or module that `holder` reaches by its attribute `attribute` without having registered it."""

    path: str
    attribute: str
    obj: Any
    holder: Any
    holder_path: str
    through_helper: bool


def joined(*parts: str) -> str:
    """A dotted path of the parts that are not empty; an index follows without a dot."""
    path = ""
    for part in parts:
        if part:
            path += part if not path or part.startswith("[") else f".{part}"
    return path


def own_slots(module: Any, module_path: str = "") -> list[Slot]:
    """The parameters and buffers registered in a module itself."""
    own = module.__dict__
    found = []
    # DataParallel's replicas keep what were parameters in a table of their own.
    for table, is_parameter in (("_parameters", True), ("_former_parameters", True), ("_buffers", False)):
        for name, tensor in list((own.get(table) or {}).items()):
            if tensor is not None:
                found.append(Slot(joined(module_path, name), name, is_parameter, tensor, module, module_path))
    return found


def slots(root: Any) -> list[Slot]:
    """All registered parameters and buffers of a module and what is registered inside it; a shared tensor has several slots."""
    return [slot for path, module in registered(root) for slot in own_slots(module, path)]


def devices_of(tensors: list[Any]) -> dict[str, int]:
    """How many of the tensors are on which device."""
    count: dict[str, int] = {}
    for tensor in tensors:
        device = str(tensor.device)
        count[device] = count.get(device, 0) + 1
    return count


def _is_container(obj: Any) -> bool:
    return issubclass(type(obj), (dict, list, tuple, set, frozenset, deque))


def is_made_anew(module: Any, name: str) -> bool:
    """Is an attribute calculated from parameters before each call, as by weight_norm and spectral_norm?"""
    own = module.__dict__
    held = own.get("_parameters") or {}
    return bool(own.get("_forward_pre_hooks")) and (f"{name}_v" in held or f"{name}_orig" in held)


def _of_class(kind: type) -> list[tuple[str, Any]]:
    """Tensors and containers that a module's class holds for all its instances."""
    found = []
    for cls in kind.__mro__:
        if not cls.__module__.startswith("torch."):
            for name, value in list(cls.__dict__.items()):
                if not name.startswith("__") and issubclass(type(value), (_Tensor, dict, list, tuple)):
                    found.append((name, value))
    return found


def unregistered(root: Any) -> list[Held]:
    """Tensors and modules that the registered modules of `root` reach by plain attributes, containers and helper objects, each once."""
    inside = registered(root)
    known = {id(module) for _, module in inside}
    known_tensors = {id(slot.tensor) for path, module in inside for slot in own_slots(module, path)}
    found: list[Held] = []
    seen: set[int] = set()
    budget = _NODES
    for module_path, module in inside:
        queue: deque[tuple[str, str, Any, int, bool]] = deque()
        for suffix, value in children(module):
            name = suffix[1:]
            if name not in _SKIPPED_ATTRIBUTES and not is_value(value):
                queue.append((name, name, value, 0, False))
        queue.extend((name, name, value, 0, False) for name, value in _of_class(type(module)))
        while queue and budget:
            budget -= 1
            path, attribute, obj, depth, helper = queue.popleft()
            if issubclass(type(obj), _Tensor):
                if id(obj) not in known_tensors and id(obj) not in seen:
                    seen.add(id(obj))
                    found.append(Held(joined(module_path, path), attribute, obj, module, module_path, helper))
                continue
            if id(obj) in known or id(obj) in seen:
                continue
            seen.add(id(obj))
            if issubclass(type(obj), torch.nn.Module):
                found.append(Held(joined(module_path, path), attribute, obj, module, module_path, helper))
                continue
            if depth >= _DEPTH:
                continue
            inner_helper = helper or not _is_container(obj)
            for suffix, child in children(obj):
                if not is_value(child):
                    queue.append((path + suffix, attribute, child, depth + 1, inner_helper))
    return found


def tied_slots(root: Any) -> list[tuple[Slot, Slot]]:
    """Pairs of slots, one of them a parameter at least, that show the same data in the same way."""
    groups: dict[tuple[int, int, tuple[int, ...]], list[Slot]] = {}
    for slot in slots(root):
        key = storage_key(slot.tensor)
        if key is not None and slot.tensor.layout is torch.strided:
            shape = tuple(sorted(slot.tensor.shape))
            groups.setdefault((key, slot.tensor.storage_offset(), shape), []).append(slot)
    return [
        (group[0], other)
        for group in groups.values()
        for other in group[1:]
        if group[0].is_parameter or other.is_parameter
    ]

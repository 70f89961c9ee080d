"""What else around a failure sits on a device of its own: one run is to tell of all mistakes, not of the first one only."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devguard.observe.consistency_ahead import given_next
from devguard.observe.consistency_facts import OperandFact
from devguard.observe.consistency_locate import Locator, Place, is_loss, modules_in_frames, places_in
from devguard.observe.frames import kind_of
from devguard.observe.namespaces import children, is_value
from devguard.observe.origins import storage_key
from devguard.observe.scan import is_made_anew
from devguard.observe.source_search import argument_meets_others

_MOST = 40
_NODES = 400

_Tensor = torch.Tensor


def survey(locator: Locator, known: list[Any], frame: FrameType | None) -> list[OperandFact]:
    """The inputs of the running modules and all that the modules hold on several devices, what the losses in the user's variables
    hold, and what they are given next, without the operands that are `known`."""
    seen = {id(tensor) for tensor in known} | {storage_key(t) for t in known if isinstance(t, _Tensor)}
    found: list[OperandFact] = []

    def add(tensor: Any, argument: str, place: Place | None = None) -> None:
        key = storage_key(tensor)
        if id(tensor) in seen or key in seen or tensor.dim() == 0 or len(found) >= _MOST:
            return
        seen.update((id(tensor), key))
        found.append(locator.operand(argument, tensor, place))

    for call in locator.calls:
        for argument, tensor in _tensors([("", call.kwargs), ("", call.args)]):
            if _is_calculated_with(call.module, argument):
                add(tensor, argument)
    near = modules_in_frames(frame)
    running = {id(call.module) for call in locator.calls} | {id(module) for module in near if module is locator.root}
    for place in locator.places:
        if id(place.root) in running and not is_made_anew(place.holder, place.attribute):
            add(place.tensor, "", locator.by_id.get(id(place.tensor), place))
    for loss in near:
        if not is_loss(loss):
            continue
        for place in places_in(loss):
            add(place.tensor, place.attribute, place)
    for coming in given_next(locator, frame):
        before = len(found)
        add(coming.tensor, coming.argument, coming.place)
        if len(found) > before:
            found[-1].meets = coming.what
            if coming.place is None:
                found[-1].input_of = locator.module_fact(coming.module) if coming.module is not None else None
    return found


def _is_calculated_with(module: Any, argument: str) -> bool:
    """Does the module's forward do more with an argument (``[1]``, ``['mask']``) than to index with it, or to take it elsewhere?"""
    code = getattr(type(module).forward, "__code__", None)
    place = argument[1:-1]
    if code is None or not kind_of(code) or "]" in place:
        return True
    at = int(place) + 1 if place.isdigit() else -1
    name = place.strip("'") if at < 0 else code.co_varnames[at] if at < code.co_argcount else ""
    return argument_meets_others(code, name)


def _tensors(roots: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    todo, seen, budget = list(roots), set(), _NODES
    while todo and budget:
        budget -= 1
        path, obj = todo.pop(0)
        if issubclass(type(obj), _Tensor):
            found.append((path, obj))
        elif not is_value(obj) and id(obj) not in seen and not issubclass(type(obj), torch.nn.Module):
            seen.add(id(obj))
            todo.extend((path + suffix, child) for suffix, child in children(obj))
    return found

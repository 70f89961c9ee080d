"""What the program would have done next: tensors that a loss is about to get beside the result of the call that failed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch

from devguard.observe.consistency_locate import Locator, Place, places_in
from devguard.observe.frames import PROJECT, kind_of
from devguard.observe.module_stack import registered
from devguard.observe.namespaces import Scope
from devguard.observe.source import look_up, node_at, spine, text_of
from devguard.observe.source_ahead import uses_ahead

_FRAMES = 40
_LOSSES = torch.nn.modules.loss
_RUN_WITH = ("parameter", "buffer", "attribute")
_MOVING = frozenset(["to", "cuda", "cpu", "device", "type_as", "numpy", "tolist", "item"])
# Lengths belong on the host, and so do the targets for some kernels.
_FREE = ("ctc_loss", "CTCLoss")

_Tensor = torch.Tensor


class Next(NamedTuple):
    """A tensor that is about to be given to something, or that is part of a module that is about to run."""

    argument: str
    tensor: Any
    what: str
    module: Any
    place: Place | None


def given_next(locator: Locator, frame: FrameType | None) -> Iterator[Next]:
    """What would have met the result of the call that failed at `frame`: in modules, in losses, in operators.

    A module of the program that moves what it gets may get anything."""
    for _ in range(_FRAMES):
        if frame is None:
            return
        if kind_of(frame.f_code) == PROJECT:
            node = node_at(frame.f_code, frame.f_lasti)
            if isinstance(node, ast.Call):
                variables = _variables(frame)
                if isinstance(look_up(node.func, variables), torch.nn.Module):
                    yield from _of_frame(frame, variables)
        frame = frame.f_back


def _of_frame(frame: FrameType, variables: dict[str, Any]) -> Iterator[Next]:
    for use in uses_ahead(frame.f_code, frame.f_lasti):
        names: tuple[str, ...]
        called: Any = None if isinstance(use.node, ast.BinOp) else look_up(use.node.func, variables)
        module = called if isinstance(called, torch.nn.Module) else None
        if isinstance(use.node, ast.BinOp):
            names, what = ("self", "other"), text_of(use.node)
        else:
            function = called if module is None else type(module).forward
            what = text_of(use.node.func)
            if not isinstance(function, FunctionType) or not (_is_torchs(called) or _moves_nothing(module)):
                continue
            names = tuple(name for name in function.__code__.co_varnames if name != "self")
            if module is not None:
                yield from (Next("", p.tensor, what, module, p) for p in places_in(module) if p.kind in _RUN_WITH)
        for place, value in use.others:
            found = (look_up(part, variables) for part in spine(value))
            tensor = next((part for part in found if isinstance(part, _Tensor)), None)
            if (
                tensor is not None
                and tensor.dim()
                and (tensor.is_floating_point() or module is None or _is_torchs(module))
            ):
                argument = place if isinstance(place, str) else names[place] if place < len(names) else ""
                yield Next(argument, tensor, what, module, None)


def _is_torchs(loss: Any) -> bool:
    """Is this a loss of PyTorch's that wants all its tensors on one device?"""
    if isinstance(loss, torch.nn.Module):
        return type(loss).__module__ == _LOSSES.__name__ and type(loss).__name__ not in _FREE
    name = getattr(loss, "__name__", "")
    in_torch = getattr(loss, "__module__", "") == torch.nn.functional.__name__
    return in_torch and name.endswith(("_loss", "cross_entropy", "_with_logits", "kl_div")) and name not in _FREE


def _moves_nothing(module: Any) -> bool:
    """Does a module take its inputs as they come? No hook, and no forward of the program's that moves anything."""
    if module is None:
        return False
    for _, inner in registered(module):
        own, code = inner.__dict__, getattr(type(inner).forward, "__code__", None)
        if own.get("_forward_pre_hooks") or "_hf_hook" in own or "forward" in own or code is None:
            return False
        if kind_of(code) and not _MOVING.isdisjoint(code.co_names):
            return False
    return True


def _variables(frame: FrameType) -> dict[str, Any]:
    scope = Scope(frame)
    return {**(scope.globals or {}), **scope.variables}

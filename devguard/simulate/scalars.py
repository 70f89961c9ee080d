"""Gradients of 0-dim CPU tensors that took part in an op on a simulated device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd.graph import get_gradient_edge

from devguard.simulate.tensor import SimTensor

_MARK = "devguard: gradients come home"


def bring_gradients_home(tensors: Sequence[torch.Tensor]) -> None:
    """Let the gradient of each 0-dim operand arrive on that operand's device.

    The autograd engine does this for plain tensors and leaves tensor subclasses alone.
    """
    for tensor in tensors:
        if tensor.requires_grad and tensor.dim() == 0:
            edge = _edge(tensor)
            metadata: Any = edge.node.metadata  # a dict, whatever its annotation says
            marks = metadata.setdefault(_MARK, set())
            if edge.output_nr not in marks:
                marks.add(edge.output_nr)
                edge.node.register_prehook(_mover(edge.output_nr, tensor.device))


def _edge(tensor: torch.Tensor) -> Any:
    """Where the gradient of `tensor` arrives. Called inside an op, where autograd is off: switched on for the question."""
    excluded = torch._C._dispatch_tls_local_exclude_set() - DispatchKeySet(DispatchKey.AutogradCPU)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        return get_gradient_edge(tensor)


def _mover(position: int, device: torch.device) -> Any:
    def move(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...] | None:
        gradient = gradients[position]
        if gradient is None or not isinstance(gradient, SimTensor) or gradient.device == device:
            return None
        return (*gradients[:position], gradient.to(device), *gradients[position + 1 :])

    return move

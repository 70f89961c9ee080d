"""Devices of gradients, which the autograd engine checks for plain tensors and not for tensor subclasses."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor


def install(devices: Devices, patches: Patches) -> None:
    """Gradients that a program assigns, seeds or returns are refused on another device than their tensor's."""
    _assigned(patches)
    _seeded(devices, patches)
    _returned(devices, patches)


def _assigned(patches: Patches) -> None:
    plain: Any = torch.Tensor.grad

    def set_grad(tensor: torch.Tensor, value: torch.Tensor | None) -> None:
        if isinstance(value, SimTensor) is not isinstance(tensor, SimTensor) and isinstance(value, torch.Tensor):
            raise RuntimeError(
                f"attempting to assign a gradient with device type '{value.device.type}' to a tensor with device type "
                f"'{tensor.device.type}'. Please ensure that the gradient and the tensor are on the same device"
            )
        plain.__set__(tensor, value)

    patches.set(torch.Tensor, "grad", property(plain.__get__, set_grad, plain.__delete__, plain.__doc__))


def _home(grad: Any, device: torch.device, refusal: str) -> Any:
    """`grad` if it is on `device`, a copy of a 0-dim one there; the engine refuses any other."""
    if not isinstance(grad, torch.Tensor) or grad.device == device:
        return grad
    if grad.dim() == 0:
        return grad.to(device)
    raise RuntimeError(f"{refusal} - expected device {device} but got {grad.device}")


def _seeded(devices: Devices, patches: Patches) -> None:
    original = torch.autograd._make_grads

    @functools.wraps(original)
    def make_grads(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(outputs, grads, *args, **kwargs)
        checked = []
        for position, (output, grad) in enumerate(zip(outputs, made, strict=False)):
            if isinstance(output, torch.Tensor) and (isinstance(output, SimTensor) or isinstance(grad, SimTensor)):
                grad = _home(grad, output.device, f"invalid gradient at index {position}")
            checked.append(grad)
        return tuple(checked)

    patches.set(torch.autograd, "_make_grads", make_grads)


def _returned(devices: Devices, patches: Patches) -> None:
    original = BackwardCFunction.apply

    @functools.wraps(original)
    def apply(self: Any, *args: Any) -> Any:
        result = original(self, *args)  # type: ignore[no-untyped-call]
        several = isinstance(result, (tuple, list))
        grads = list(result) if several else [result]
        nodes = iter([edge for edge in self.next_functions if edge[0] is not None])
        for position, needed in enumerate(self.needs_input_grad):
            edge = next(nodes, None) if needed else None
            if edge is None or position >= len(grads) or not isinstance(grads[position], torch.Tensor):
                continue
            device = devices.name_of(_device_of(*edge))
            refusal = f"Function {type(self).__name__} returned an invalid gradient at index {position}"
            grads[position] = _home(grads[position], device, refusal)
        return (type(result)(grads) if several else grads[0])  # fmt: skip

    patches.set(BackwardCFunction, "apply", apply)


def _device_of(node: Any, position: int) -> torch.device:
    """Where gradients that arrive at `node` must be."""
    variable = getattr(node, "variable", None)  # of an accumulator
    if variable is not None:
        return variable.device  # type: ignore[no-any-return]
    return node._input_metadata[position].device  # type: ignore[no-any-return]

"""nn.Module and optimizers: a move keeps every parameter the same object, also while a graph is alive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer
from torch.utils import _foreach_utils

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor, simulated_class


def install(devices: Devices, patches: Patches) -> None:
    """Replace Module._apply and what groups parameters by device."""
    _apply(patches)
    _foreach(devices, patches)


def _apply(patches: Patches) -> None:
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> torch.nn.Module:
        # The gradient is moved after its parameter: meanwhile PyTorch would refuse it on the other device.
        grads = [(key, p, p.grad) for key, p in self._parameters.items() if p is not None and p.grad is not None]
        for _, parameter, _ in grads:
            parameter.grad = None
        try:
            return original(self, fn, recurse)
        finally:
            for key, parameter, grad in grads:
                assert grad is not None
                with torch.no_grad():
                    moved = fn(grad)
                    moved.requires_grad_(grad.requires_grad)
                now = self._parameters[key]
                target = parameter if now is None else now
                target.grad = moved

    patches.set(torch.nn.Module, "_apply", apply)


def _foreach(devices: Devices, patches: Patches) -> None:
    added = [SimTensor, simulated_class(torch.nn.Parameter)]
    for types in (_foreach_utils._foreach_supported_types, optimizer._foreach_supported_types):
        types.extend(added)  # type: ignore[arg-type]
        patches.on_restore(lambda types=types: [types.remove(t) for t in added])  # type: ignore[misc]
    original = torch._C._group_tensors_by_device_and_dtype

    def group(tensors: Any, with_indices: bool = False) -> Any:
        found = original(tensors, with_indices)
        return {(devices.name_of(device) if device is not None else None, dtype): v
                for (device, dtype), v in found.items()}  # fmt: skip

    patches.set(torch._C, "_group_tensors_by_device_and_dtype", group)

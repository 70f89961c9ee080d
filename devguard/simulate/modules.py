"""nn.Module, scripts and optimizers: a move keeps every parameter the same object, also while a graph is alive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental import proxy_tensor
from torch.optim import optimizer
from torch.utils import _foreach_utils

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor, simulated_class


def install(devices: Devices, patches: Patches) -> None:
    """Replace Module._apply and what groups parameters by device; run compiled functions as they are written."""
    _apply(patches)
    _ordinals(devices, patches)
    _foreach(devices, patches)
    _load_script(devices, patches)
    _compile(patches)
    _trace(patches)


def _apply(patches: Patches) -> None:
    original = torch.nn.Module._apply

    @functools.wraps(original)
    def apply(self: torch.nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        if isinstance(self, torch.jit.ScriptModule):
            return _apply_script(self, fn, recurse)
        # The gradient is moved after its parameter: meanwhile PyTorch would refuse it on the other device.
        grads = [(key, p, p.grad) for key, p in self._parameters.items() if p is not None and p.grad is not None]
        for _, parameter, _ in grads:
            parameter.grad = None
        try:
            return original(self, fn, recurse)  # type: ignore[no-untyped-call]
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


def _ordinals(devices: Devices, patches: Patches) -> None:
    """`model.to(1)`: C++ asks for the accelerator that a number means, and knows none."""
    original = torch._C._nn._parse_to

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        def named(device: Any) -> Any:
            ordinal = type(device) is int and device >= 0
            return devices.shown[devices.check(device)] if ordinal else device

        if "device" in kwargs:
            kwargs["device"] = named(kwargs["device"])
        return original(*(named(args[0]), *args[1:]) if args else (), **kwargs)

    patches.set(torch._C._nn, "_parse_to", parse_to)


def _apply_script(module: Any, fn: Callable[[Any], Any], recurse: bool) -> Any:
    """A scripted module holds its tensors in C++: moved ones are new objects."""
    if recurse:
        for child in module.children():
            child._apply(fn)
    for key, parameter in list(module._parameters.items()):
        with torch.no_grad():
            moved = fn(parameter)
        module._c.setattr(key, torch.nn.Parameter(moved, parameter.requires_grad))
    for key, buffer in list(module._buffers.items()):
        module._c.setattr(key, fn(buffer))
    return module


def _load_script(devices: Devices, patches: Patches) -> None:
    """torch.jit.load reads a file in C++, which has no such device: what it read on the host is moved there."""
    original = torch.jit.load

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        index = None if map_location is None else devices.resolve(map_location)
        if index is None:
            return original(f, map_location, *args, **kwargs)  # type: ignore[no-untyped-call]
        return original(f, "cpu", *args, **kwargs).to(devices.shown[index])  # type: ignore[no-untyped-call]

    patches.set(torch.jit, "load", load)


def _compile(patches: Patches) -> None:
    """What torch.compile makes runs as it is written: there is no device to compile for."""
    eager: Any = torch.compiler.set_stance("force_eager")
    patches.on_restore(lambda: eager.__exit__(None, None, None))
    original = torch.compile

    @functools.wraps(original)
    def compile_(
        model: Any = None, *, backend: Any = None, mode: Any = None, options: Any = None, **kwargs: Any
    ) -> Any:
        return original(model, backend="eager", **kwargs)  # importing the compiler would take seconds

    patches.set(torch, "compile", compile_)


def _trace(patches: Patches) -> None:
    """make_fx (torch.func.linearize) leaves classes it does not know to themselves: it would trace what they hold."""
    known = proxy_tensor.HANDLED_TYPES
    patches.set(proxy_tensor, "HANDLED_TYPES", (*known, SimTensor, simulated_class(torch.nn.Parameter)))


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

"""Tensors of a program's own classes, and the wrappers of torch.func: on the hidden device for C++, on cuda:i for Python."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C import DispatchKeySet

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor, simulated_class, wrap


def install(devices: Devices, patches: Patches) -> None:
    """Let every tensor name its device as on CUDA, and both ways of making one of a class of the program's own work."""
    _places(devices, patches)
    _wrappers(devices, patches)
    _same_data(patches)


def _places(devices: Devices, patches: Patches) -> None:
    """Device, is_cuda and get_device of a tensor that is no SimTensor and yet on a simulated device."""
    plain_device: Any = torch.Tensor.device
    plain_is_cuda: Any = torch.Tensor.is_cuda
    shown = dict(zip(devices.hidden, devices.shown, strict=True))

    def device(self: torch.Tensor) -> torch.device:
        found: torch.device = plain_device.__get__(self)
        return shown.get(found, found)

    def is_cuda(self: torch.Tensor) -> bool:
        return plain_is_cuda.__get__(self) or plain_device.__get__(self) in shown

    patches.set(torch.Tensor, "device", property(device, doc=plain_device.__doc__))
    patches.set(torch.Tensor, "is_cuda", property(is_cuda, doc=plain_is_cuda.__doc__))


def _wrappers(devices: Devices, patches: Patches) -> None:
    """A wrapper that C++ believes to be on CUDA ends the process as soon as autograd asks for a guard of its device."""
    original = torch.Tensor._make_wrapper_subclass
    autocast = DispatchKeySet(getattr(torch._C.DispatchKey, devices.kind.autocast_key))

    def hidden(device: Any) -> Any:
        index = devices.resolve(device) if isinstance(device, (torch.device, str)) else None
        return device if index is None else devices.hidden[index]

    @functools.wraps(original)
    def make(cls: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(hidden(a) if isinstance(a, torch.device) else a for a in args)  # a string may be a policy
        device = kwargs.get("device")
        if device is not None:
            kwargs["device"] = hidden(device)
            if kwargs["device"] is not device:
                extra = kwargs.get("_extra_dispatch_keys")
                kwargs["_extra_dispatch_keys"] = autocast if extra is None else extra | autocast
        return original(cls, size, *args, **kwargs)

    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(make))


def _same_data(patches: Patches) -> None:
    original = torch.Tensor._make_subclass

    @functools.wraps(original)
    def make(cls: Any, data: torch.Tensor, require_grad: bool = False, **kwargs: Any) -> Any:
        if not isinstance(data, SimTensor):
            return original(cls, data, require_grad, **kwargs)
        return wrap(data._host.detach(), data._index, simulated_class(cls)).requires_grad_(require_grad)

    patches.set(torch.Tensor, "_make_subclass", staticmethod(make))
    construct = torch.Tensor.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], SimTensor) and cls is not torch.Tensor and not kwargs:
            return args[0].as_subclass(cls)  # the graph goes on
        return construct(cls, *args, **kwargs)

    patches.set(torch.Tensor, "__new__", staticmethod(new))

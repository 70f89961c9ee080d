"""Functions that make tensors, with what a CPU build of PyTorch refuses in C++ before any op: device=0, pinned memory, and
the generator of a simulated device for a tensor on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device
from torch.utils.data import dataset

from devguard.simulate import pinned
from devguard.simulate.devices import Devices, default_device
from devguard.simulate.patches import Patches
from devguard.simulate.random import SimGenerator
from devguard.simulate.refusals import check_generator
from devguard.simulate.tensor import SimTensor

_LIKE = "empty_like full_like ones_like rand_like randint_like randn_like zeros_like".split()
_NEW = "new_empty new_empty_strided new_full new_ones new_zeros".split()
_OWN = ("tensor", "as_tensor", "asarray")  # replaced elsewhere (functions.py)
# Random ops on a tensor that is there already.
_RANDOM = "bernoulli multinomial normal poisson binomial".split()
_RANDOM_IN_PLACE = """
bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_
""".split()


def install(devices: Devices, patches: Patches) -> None:
    """Replace the constructors of torch and of Tensor, and the random functions that take a generator."""
    _device_type(devices, patches)
    plain = {id(f) for f in _device._device_constructors()}
    names = [n for n, f in vars(torch).items() if id(f) in plain and n not in _OWN]
    for name in (*names, *_LIKE):
        patches.set(torch, name, _constructor(getattr(torch, name), devices))
    patches.set(dataset, "randperm", torch.randperm)  # imported by name: random_split
    for name in _NEW:
        patches.set(torch.Tensor, name, _constructor(getattr(torch.Tensor, name), devices))
    for owner, random in ((torch, _RANDOM), (torch.Tensor, _RANDOM_IN_PLACE)):
        for name in random:
            if hasattr(owner, name):
                patches.set(owner, name, _drawn(getattr(owner, name)))


class _DeviceType(type):
    """The type of torch.device: the plain one in every comparison, called with a number it means a simulated device."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _Device

    def __hash__(cls) -> int:
        return hash(_Device)

    def __repr__(cls) -> str:
        return repr(_Device)


_Device = torch.device


def _device_type(devices: Devices, patches: Patches) -> None:
    """torch.device(0), which C++ would ask the accelerator of the build."""

    def new(cls: Any, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and isinstance(args[0], int) and not isinstance(args[0], bool) and not kwargs:
            return _Device(devices.kind.name, args[0])
        return _Device(*args, **kwargs)

    patches.set(torch, "device", _DeviceType("device", (), {"__new__": new, "__module__": "torch"}))
    annotations: Any = torch.jit.annotations
    original = annotations.try_ann_to_type

    @functools.wraps(original)
    def try_ann_to_type(ann: Any, loc: Any, *args: Any, **kwargs: Any) -> Any:
        return original(torch.device if ann is _Device else ann, loc, *args, **kwargs)

    patches.set(annotations, "try_ann_to_type", try_ann_to_type)


def _constructor(original: Callable[..., Any], devices: Devices) -> Callable[..., Any]:
    @functools.wraps(original)
    def construct(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return original(*args)
        device = kwargs.get("device")
        if device.__class__ is int:
            kwargs["device"] = device = devices.shown[devices.index(device)]
        generator = kwargs.get("generator")
        if isinstance(generator, SimGenerator) and _is_host(_target(devices, args, device)):
            check_generator(generator, "cpu")
        if not kwargs.get("pin_memory"):
            return original(*args, **kwargs)
        del kwargs["pin_memory"]
        made = original(*args, **kwargs)
        if not _is_host(made.device):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        return pinned.mark(made)

    return construct


def _is_host(device: torch.device) -> bool:
    return device.type == "cpu"


def _target(devices: Devices, args: tuple[Any, ...], device: Any) -> torch.device:
    """Where a constructor would put its tensor."""
    if device is None and args and isinstance(args[0], torch.Tensor):
        device = args[0].device
    return torch.device((default_device() or "cpu") if device is None else device)


def _drawn(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def draw(*args: Any, **kwargs: Any) -> Any:
        generator = kwargs.get("generator")
        if isinstance(generator, SimGenerator):
            tensors = [t for t in args if isinstance(t, torch.Tensor)]
            if not any(isinstance(t, SimTensor) for t in tensors):
                place = tensors[0].device if tensors else _target_of(kwargs)
                if _is_host(place):
                    check_generator(generator, "cpu")
        return original(*args, **kwargs)

    return draw


def _target_of(kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    return torch.device((default_device() or "cpu") if device is None else device)

"""Explicit moves: to, cuda, cpu, type. Each is one _to_copy, and nothing where there is nothing to do."""

from __future__ import annotations

import functools
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor


def _same(tensor: torch.Tensor, index: int | None, device: torch.device | None) -> bool:
    """Is the tensor already on that device (simulated `index`, or another `device`)?"""
    if index is not None:
        return isinstance(tensor, SimTensor) and tensor._index == index
    return device is None or tensor.device == device


def _parse_to(devices: Devices, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """(device, index, dtype, non_blocking, copy, memory_format) of a call of Tensor.to."""
    args_list = list(args)
    device: Any
    dtype: Any
    copy = bool(kwargs.get("copy", False))
    other = kwargs.get("other", args_list[0] if args_list else None)
    if isinstance(other, torch.Tensor):
        device, dtype = other.device, other.dtype
        rest = args_list if "other" in kwargs else args_list[1:]
    else:
        rest = args_list
        device = kwargs.get("device")
        dtype = kwargs.get("dtype")
        if rest and (
            (isinstance(rest[0], (torch.device, str, int)) and not isinstance(rest[0], bool)) or rest[0] is None
        ):
            device = rest.pop(0)
            if rest and (isinstance(rest[0], torch.dtype) or rest[0] is None):
                dtype = rest.pop(0)
        elif rest and isinstance(rest[0], torch.dtype):
            dtype = rest.pop(0)
    non_blocking = rest[0] if rest else kwargs.get("non_blocking", False)
    copy = rest[1] if len(rest) > 1 else copy
    index = devices.resolve(device) if device is not None else None
    if index is not None:
        device = devices.shown[index]
    elif device is not None and not isinstance(device, torch.device):
        device = torch.device(device)
    return device, index, dtype, bool(non_blocking), bool(copy), kwargs.get("memory_format")


def install(devices: Devices, patches: Patches) -> None:
    """Replace them."""
    original_to = torch.Tensor.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        device, index, dtype, non_blocking, copy, memory_format = _parse_to(devices, args, kwargs)
        if index is None and not isinstance(self, SimTensor):
            return original_to(self, *args, **kwargs)
        unmoved = not copy and _same(self, index, device) and dtype in (None, self.dtype)
        kept = memory_format in (None, torch.preserve_format)
        if unmoved and (kept or self.is_contiguous(memory_format=memory_format)):
            return self
        options: dict[str, Any] = {"non_blocking": non_blocking, "copy": copy}
        if dtype not in (None, self.dtype):
            options["dtype"] = dtype
        if not _same(self, index, device):
            options["device"] = device
        if memory_format is not None:
            options["memory_format"] = memory_format
        if "device" not in options and "dtype" not in options:
            options["dtype"] = self.dtype
        return original_to(self, **options)

    patches.set(torch.Tensor, "to", functools.wraps(original_to)(to))

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        index = devices.current if device is None else devices.resolve(device)
        if index is None:
            raise ValueError(f"Invalid device, must be {devices.kind.name} device")
        extra = {} if memory_format is None else {"memory_format": memory_format}
        return to(self, devices.shown[index], non_blocking=non_blocking, **extra)

    patches.set(torch.Tensor, "cuda", functools.wraps(torch.Tensor.cuda)(cuda))

    def make_cpu(original: Any) -> Any:
        def cpu(self: torch.Tensor, memory_format: Any = None) -> Any:
            if not isinstance(self, SimTensor):
                return original(self) if memory_format is None else original(self, memory_format=memory_format)
            extra = {} if memory_format is None else {"memory_format": memory_format}
            return to(self, torch.device("cpu"), **extra)

        return cpu

    patches.method("cpu", make_cpu)

    def make_type(original: Any) -> Any:
        def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
            prefix = f"torch.{devices.kind.name}."
            if dtype is None:
                if not isinstance(self, SimTensor):
                    return original(self)
                return prefix + self._host.type().removeprefix("torch.")
            if isinstance(dtype, type) and not issubclass(dtype, torch.Tensor):
                dtype = f"{dtype.__module__}.{dtype.__name__}"
            if isinstance(dtype, str):
                device = devices.shown[devices.current] if dtype.startswith(prefix) else torch.device("cpu")
                if _same(self, devices.current if device.type != "cpu" else None, device):
                    device = self.device
                wanted = _legacy_dtype(dtype.rpartition(".")[2])
                return to(self, device, wanted, non_blocking)
            return to(self, dtype, non_blocking) if isinstance(dtype, torch.dtype) else original(self, dtype)

        return type_

    patches.method("type", make_type)


_LEGACY = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8, "BoolTensor": torch.bool,
    "ComplexFloatTensor": torch.complex64, "ComplexDoubleTensor": torch.complex128,
}  # fmt: skip


def _legacy_dtype(name: str) -> torch.dtype:
    if name not in _LEGACY:
        raise ValueError(f"invalid type: '{name}'")
    return _LEGACY[name]

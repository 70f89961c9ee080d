"""torch.cuda.FloatTensor and its kin, and torch.set_default_tensor_type."""

from __future__ import annotations

from typing import Any

import torch

from devguard.simulate.devices import Devices, default_device
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor

DTYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "LongTensor": torch.int64, "IntTensor": torch.int32, "ShortTensor": torch.int16,
    "CharTensor": torch.int8, "ByteTensor": torch.uint8, "BoolTensor": torch.bool,
}  # fmt: skip


class _TensorType(type):
    """The type of torch.cuda.FloatTensor: a constructor, a dtype and a device in one."""

    dtype: torch.dtype
    is_cuda = True

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


def _construct(cls: Any, *args: Any, device: Any = "cuda") -> torch.Tensor:
    """FloatTensor(2, 3), FloatTensor([1.0]), FloatTensor(tensor) or FloatTensor()."""
    if len(args) == 1 and not isinstance(args[0], int):
        if isinstance(args[0], torch.Tensor):
            if args[0].dtype != cls.dtype or not args[0].is_cuda:
                raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
            return args[0].detach()
        if isinstance(args[0], torch.Size):
            args = tuple(args[0])
        else:
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
    return torch.empty(args or (0,), dtype=cls.dtype, device=device)


def install(devices: Devices, patches: Patches) -> None:
    """Replace the legacy types."""
    made = {
        name: _TensorType(name, (), {"__new__": _construct, "dtype": dtype, "__module__": "torch.cuda"})
        for name, dtype in DTYPES.items()
    }
    for name, cls in made.items():
        patches.set(torch.cuda, name, cls)
    _new(patches)
    original = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any) -> None:
        found = (
            made.get(t.removeprefix("torch.cuda.")) if isinstance(t, str) else t if isinstance(t, _TensorType) else None
        )
        if found is None:
            original(t)
            _leave_default_device(devices)
        else:
            torch.set_default_dtype(found.dtype)
            torch.set_default_device(devices.kind.name)

    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)
    dtype = torch.get_default_dtype()
    patches.on_restore(lambda: torch.set_default_dtype(dtype))
    patches.on_restore(lambda: _leave_default_device(devices))


def _leave_default_device(devices: Devices) -> None:
    """A default device of the simulation must not stay the default."""
    device = default_device()
    if device is not None and device.type == devices.kind.name:
        torch.set_default_device(None)


def _new(patches: Patches) -> None:
    """Tensor.new, for a simulated tensor."""

    def make(original: Any) -> Any:
        def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self, SimTensor):
                return original(self, *args, **kwargs)
            if self.layout == torch.sparse_coo and args and isinstance(args[0], torch.Tensor):
                return torch.sparse_coo_tensor(*args, dtype=self.dtype, device=self.device)
            if len(args) == 1 and not isinstance(args[0], int):
                given = args[0]
                if isinstance(given, torch.Size):
                    return self.new_empty(given)
                return given.detach() if isinstance(given, torch.Tensor) else self.new_tensor(given)
            return self.new_empty(args or (0,))

        return new

    patches.method("new", make)

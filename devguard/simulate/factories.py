"""Kernels for ops that create tensors from nothing: they arrive at the device's dispatch key, not at a tensor."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from devguard.simulate.devices import DeviceType
from devguard.simulate.dispatch import dispatch, kernel_of
from devguard.simulate.patches import Patches

# Factories without a kernel that works for every device; all others end in empty or empty_strided.
_FACTORIES = (
    "empty.memory_format",
    "empty_strided",
    "tril_indices",
    "triu_indices",
    "_efficientzerotensor",
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
)

# Ops that C++ calls with Python's dispatch key switched off (torch.tensor([cuda scalar]), x[[0, 1]]): they pass the wrapper by,
# and PyTorch's fallback can't take a tensor that Python knows.
_BELOW_PYTHON = ("copy_", "_local_scalar_dense", "detach", "alias", "view", "lift_fresh")


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


def register(kind: DeviceType, patches: Patches) -> None:
    """Register the kernels for devices of `kind`; `patches` gives them back."""
    aten = torch.library.Library("aten", "IMPL")
    patches.on_restore(aten._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a CUDA build they replace its kernels, as meant
        for name in _FACTORIES:
            func = _overload(name)
            if func is not None:
                for key in (kind.key, kind.hidden_key):
                    aten.impl(name, kernel_of(func), key)
        # A nested tensor on its way from the CPU: PyTorch picks the kernel by where it goes.
        aten.impl("_to_copy", kernel_of(_overload("_to_copy")), f"NestedTensor{kind.key}")
        for name in _BELOW_PYTHON:
            aten.impl(name, kernel_of(_overload(name)), kind.hidden_key)
    rest = torch.library.Library("_", "IMPL")
    patches.on_restore(rest._destroy)

    def fallback(func: Any, *args: Any, **kwargs: Any) -> Any:
        return dispatch(func, (), args, kwargs)

    rest.fallback(fallback, kind.hidden_key)

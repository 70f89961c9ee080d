"""Pinned host memory: plain memory whose storage says that it is pinned."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor

_MARK = "_devguard_pinned"


def is_pinned(tensor: torch.Tensor) -> bool:
    """Is it a CPU tensor in pinned memory?"""
    if isinstance(tensor, SimTensor) or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    return hasattr(tensor.untyped_storage(), _MARK)


def mark(tensor: torch.Tensor) -> torch.Tensor:
    """Say that the memory of a fresh tensor is pinned."""
    setattr(tensor.untyped_storage(), _MARK, True)
    return tensor


def install(patches: Patches) -> None:
    """Replace Tensor.pin_memory and Tensor.is_pinned."""

    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if isinstance(self, SimTensor) or self.layout is not torch.strided or self.device.type != "cpu":
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        return self if is_pinned(self) else torch.ops.aten._pin_memory(self)

    library = torch.library.Library("aten", "IMPL")
    patches.on_restore(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("_pin_memory", lambda self, device=None: mark(self.clone()), "CPU")
    patches.set(torch.Tensor, "pin_memory", pin_memory)
    patches.set(torch.Tensor, "is_pinned", lambda self, device=None: is_pinned(self))

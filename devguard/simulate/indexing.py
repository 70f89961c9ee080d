"""x[...] and x[...] = v: what C++ turns into tensors on the way (lists, arrays, numbers) is made here for simulated tensors.

C++ makes them by the device it knows, below Python's dispatch. Here a list becomes a tensor on the device, an array one
that is copied there, and a number a 0-dim CPU tensor, as on CUDA.
"""

from __future__ import annotations

import numbers
from typing import Any

import torch

from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor, wrap

_aten = torch.ops.aten
_READY = (int, slice, torch.Tensor, type(None), type(Ellipsis))
_MOST_DIMENSIONS = 32


def get(self: SimTensor, index: Any) -> torch.Tensor:
    """`SimTensor.__getitem__`."""
    if not isinstance(index, _READY):
        index = _index(self, index)
    return torch.Tensor.__getitem__(self, index)


def set_(self: SimTensor, index: Any, value: Any) -> None:
    """`SimTensor.__setitem__`."""
    if not isinstance(index, _READY):
        index = _index(self, index)
    if not isinstance(value, torch.Tensor) and isinstance(value, numbers.Number):
        value = _number(value, self.dtype)
    torch.Tensor.__setitem__(self, index, value)


def install(patches: Patches) -> None:
    """Put both in place.

    On the simulated class, not on torch.Tensor: a Python __getitem__ there would make every tensor a sequence for C++, and
    torch.tensor([scalar, scalar]) of plain tensors would fail."""
    patches.set(SimTensor, "__getitem__", get)
    patches.set(SimTensor, "__setitem__", set_)


def _number(value: Any, dtype: torch.dtype) -> torch.Tensor:
    guard = torch._C._DisableTorchDispatch()
    try:
        return torch.scalar_tensor(value, dtype=torch.float32 if dtype in _QUANTIZED else dtype, device="cpu")
    finally:
        del guard


_QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


def _index(tensor: SimTensor, index: Any) -> Any:
    """`index` with every list and array in it turned into a tensor."""
    if isinstance(index, tuple):
        return tuple(_entry(tensor, entry) for entry in index)
    if isinstance(index, list) and _means_tuple(index):
        return tuple(_entry(tensor, entry) for entry in index)
    return _entry(tensor, index)


def _means_tuple(index: list[Any]) -> bool:
    """PyTorch's (and old NumPy's) rule for a list that stands for several indices."""
    if len(index) >= _MOST_DIMENSIONS:
        return False
    return any(isinstance(e, (slice, torch.Tensor, list, tuple, type(Ellipsis), type(None))) for e in index)


def _entry(tensor: SimTensor, entry: Any) -> Any:
    if isinstance(entry, _READY) or hasattr(entry, "__index__"):
        return entry
    if hasattr(entry, "__array_interface__"):
        return torch.as_tensor(entry).to(tensor.device)
    if isinstance(entry, (list, tuple, range)):
        if _holds_tensors(entry):
            return torch.tensor(entry, device=tensor.device)
        guard = torch._C._DisableTorchDispatch()
        made = torch.tensor(entry, device="cpu") if len(entry) else torch.empty(0, dtype=torch.int64, device="cpu")
        del guard
        return _aten.lift_fresh(wrap(made, tensor._index))
    return entry


def _holds_tensors(entry: Any) -> bool:
    return any(isinstance(e, torch.Tensor) or (isinstance(e, (list, tuple)) and _holds_tensors(e)) for e in entry)

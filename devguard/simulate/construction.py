"""torch.tensor and its kin: they make the tensor on the CPU and then name its device, which C++ doesn't know."""

from __future__ import annotations

import functools
from typing import Any

import torch

from devguard.simulate.devices import Devices, default_device
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor, wrap

_aten = torch.ops.aten


def install(devices: Devices, patches: Patches) -> None:
    """Replace torch.tensor, as_tensor, asarray, Tensor.new_tensor, and the constructors of sparse and nested tensors."""
    patches.set(torch, "tensor", _tensor(devices, torch.tensor))
    patches.set(torch, "as_tensor", _as_tensor(devices, torch.as_tensor))
    patches.set(torch, "asarray", _asarray(devices, torch.asarray))
    patches.method("new_tensor", _new_tensor)
    for name, parts in _SPARSE.items():
        patches.set(torch, name, _sparse(devices, getattr(torch, name), parts))
    for name in _SPARSE_CHECKS:
        patches.set(torch, name, _sparse_check(getattr(torch, name)))
    patches.set(torch.nested, "nested_tensor", _nested(devices, torch.nested.nested_tensor))


def _asked(devices: Devices, device: Any) -> int | None:
    """Index of the simulated device that a constructor is asked for, by its argument or as the default."""
    if device is None:
        device = default_device()
    return None if device is None else devices.resolve(device)


def _on_device(tensor: torch.Tensor, index: int, requires_grad: bool) -> Any:
    made = _aten.lift_fresh(wrap(tensor, index))
    return made.requires_grad_() if requires_grad else made


def _tensor(devices: Devices, original: Any) -> Any:
    @functools.wraps(original)
    def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
               pin_memory: bool = False, **kwargs: Any) -> Any:  # fmt: skip
        if isinstance(data, torch.Tensor):
            index = None if device is None else devices.resolve(device)
            if index is None and not isinstance(data, SimTensor):
                made = original(data, dtype=dtype, device=device, requires_grad=requires_grad, **kwargs)
                return made.pin_memory() if pin_memory else made
            target = devices.shown[index] if index is not None else (device or data.device)
            return data.detach().to(target, dtype or data.dtype, copy=True).requires_grad_(requires_grad)
        index = _asked(devices, device)
        if index is not None:
            return _on_device(_host_tensor(original, data, dtype, **kwargs), index, requires_grad)
        made = original(_read(data), dtype=dtype, device=device, requires_grad=requires_grad, **kwargs)
        return made.pin_memory() if pin_memory else made

    return tensor


def _as_tensor(devices: Devices, original: Any) -> Any:
    @functools.wraps(original)
    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
        if isinstance(data, torch.Tensor):
            return data if device is None and dtype is None else data.to(device=device, dtype=dtype)
        index = _asked(devices, device)
        if index is None:
            return original(_read(data), dtype=dtype, device=device)
        return _on_device(_host_tensor(torch._C._VariableFunctions.tensor, data, dtype), index, False)

    return as_tensor


def _asarray(devices: Devices, original: Any) -> Any:
    @functools.wraps(original)
    def asarray(
        obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False
    ) -> Any:
        if isinstance(obj, torch.Tensor):
            index = None if device is None else devices.resolve(device)
            if index is None and not isinstance(obj, SimTensor):
                return original(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
            return obj.detach().to(device=device, dtype=dtype, copy=bool(copy)).requires_grad_(requires_grad)
        index = _asked(devices, device)
        if index is None:
            return original(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)
        return _on_device(_host_tensor(torch._C._VariableFunctions.tensor, obj, dtype), index, requires_grad)

    return asarray


def _new_tensor(original: Any) -> Any:
    def new_tensor(self: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
        if not isinstance(self, SimTensor) and device is None:
            return original(self, data, dtype=dtype, **kwargs)
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    return new_tensor


# Constructors of tensors that are made of other tensors, with how many of those come first.
_SPARSE = {"sparse_coo_tensor": 2, "sparse_csr_tensor": 3, "sparse_csc_tensor": 3, "sparse_bsr_tensor": 3,
           "sparse_bsc_tensor": 3, "sparse_compressed_tensor": 3}  # fmt: skip

# Checks of what a file held, before torch.load hands it out; C++ refuses the device that hides in a simulated tensor.
_SPARSE_CHECKS = ("_validate_sparse_coo_tensor_args", "_validate_sparse_compressed_tensor_args")


def _sparse(devices: Devices, original: Any, parts: int) -> Any:
    @functools.wraps(original)
    def sparse(*args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
        index = _asked(devices, device)
        if index is None:
            index = next((a._index for a in args if isinstance(a, SimTensor)), None)
        if index is None:
            return original(*args, dtype=dtype, device=device, **kwargs)
        given = [a if isinstance(a, torch.Tensor) else torch.tensor(a) for a in args[:parts]]
        given = [a.to(devices.shown[index]) for a in given]
        values = given[-1].to(dtype) if dtype is not None else given[-1]
        with torch._C.DisableTorchFunction():  # a default device would be put in again
            return original(*given[:-1], values, *args[parts:], **kwargs)

    return sparse


def _sparse_check(original: Any) -> Any:
    @functools.wraps(original)
    def check(*args: Any, **kwargs: Any) -> None:
        original(*(a._host if isinstance(a, SimTensor) else a for a in args), **kwargs)

    return check


def _nested(devices: Devices, original: Any) -> Any:
    @functools.wraps(original)
    def nested_tensor(tensor_list: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
        index = _asked(devices, device)
        if index is None and not _has_simulated(tensor_list):
            return original(tensor_list, dtype=dtype, device=device, **kwargs)
        where = None if index is None else devices.shown[index]
        parts = [t if isinstance(t, torch.Tensor) else torch.tensor(t) for t in tensor_list]
        parts = [t.detach().to(device=where, dtype=dtype) for t in parts]
        requires_grad = kwargs.pop("requires_grad", False)
        made = torch.nested.as_nested_tensor(parts, **{k: v for k, v in kwargs.items() if k == "layout"})
        return made.detach().requires_grad_(requires_grad)

    return nested_tensor


def _host_tensor(original: Any, data: Any, dtype: Any, **kwargs: Any) -> torch.Tensor:
    data = _read(data)
    guard = torch._C._DisableTorchDispatch()
    try:
        return original(data, dtype=dtype, device="cpu", **kwargs)  # type: ignore[no-any-return]
    finally:
        del guard


def _read(data: Any) -> Any:
    """`data` with every simulated tensor in it read to the host, one by one, as torch.tensor does with a list of them."""
    if isinstance(data, SimTensor):
        if data.numel() == 1:
            data.item()  # what an observer sees on CUDA; the value below keeps the type
        return data._host
    if isinstance(data, (list, tuple)) and _has_simulated(data):
        return [_read(v) for v in data]
    return data


def _has_simulated(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_has_simulated, data))
    return isinstance(data, SimTensor)

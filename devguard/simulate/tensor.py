"""The simulated tensor: PyTorch's C++ sees a tensor on the hidden device, Python sees cuda:i, a CPU tensor holds the data."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet, _disabled_torch_function_impl
from torch.torch_version import TorchVersion

from devguard.simulate import state
from devguard.simulate.storage import SimStorage, on_device, recount

_make_wrapper: Any = torch.Tensor._make_wrapper_subclass
_aten = torch.ops.aten
_storage = torch._C.TensorBase.untyped_storage
_STRIDED = torch.strided
_OWN = frozenset({"_host", "_index", "_kept"})

# PyTorch 2.8 (no longer 2.11) breaks, now and then, when garbage is collected in the moment in which C++ takes the last reference to the
# Python object of a storage of a class of its own. A tensor that holds that object gives no such moment.
_KEEPS_STORAGES = TorchVersion(torch.__version__) < "2.11"


class SimTensor(torch.Tensor):
    """A tensor on a simulated device. `_host` is the CPU tensor with its data, `_index` the number of its device."""

    __torch_function__: Any = _disabled_torch_function_impl  # as fast as a plain tensor, and nn's fast paths stay on

    _host: torch.Tensor
    _index: int
    _kept: Any  # see _KEEPS_STORAGES

    # `__torch_dispatch__` is set in dispatch.py: the two files would import each other otherwise.

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return state.current().devices.shown[self._index]

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return state.current().devices.kind.name == "cuda"

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return self._index


# What programs read in type(t) and in PyTorch's and Python's error messages.
SimTensor.__name__ = SimTensor.__qualname__ = "Tensor"
SimTensor.__module__ = "torch"


class _Converting(SimTensor):
    """Stands where a program's class looks for torch.Tensor with super(): there, results become of that class."""


_Converting.__torch_function__ = vars(torch.Tensor)["__torch_function__"]


@functools.cache
def simulated_class(plain: type[torch.Tensor]) -> type[SimTensor]:
    """The class of a simulated `plain`: SimTensor itself for torch.Tensor, a class of both for any other (nn.Parameter)."""
    if issubclass(plain, SimTensor):
        return plain
    if plain is torch.Tensor:
        return SimTensor
    body = {"_plain": plain, "__module__": plain.__module__, "__qualname__": plain.__qualname__}
    metaclass: Any = type(plain)
    made: Any = metaclass(plain.__name__, (plain, _Converting), body)
    # What the plain class does with torch functions (as inherited) comes before what SimTensor does: nothing.
    # Set afterwards, because PyTorch switches an inherited one off in a new class that has a __torch_dispatch__.
    made.__torch_function__ = next(
        vars(c)["__torch_function__"] for c in plain.__mro__ if "__torch_function__" in vars(c)
    )
    return made  # type: ignore[no-any-return]


def plain_class(cls: type[torch.Tensor]) -> type[torch.Tensor]:
    """The class that a tensor of class `cls` has on the CPU."""
    if not issubclass(cls, SimTensor):
        return cls
    return getattr(cls, "_plain", torch.Tensor)


# One hidden device type carries every simulated kind, so these are constants of PyTorch, not of a simulation.
_HIDDEN = tuple(torch.device("lazy", i) for i in range(64))
_AUTOCAST = DispatchKeySet(DispatchKey.AutocastCUDA)
# Types of tensors that need more than sizes and strides: they go through _wrap_special.
_SPECIAL = frozenset({
    torch.complex32, torch.complex64, torch.complex128,
    torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4,
})  # fmt: skip


def wrap(host: torch.Tensor, index: int, cls: type[torch.Tensor] = SimTensor) -> SimTensor:
    """A simulated tensor on device `index` that holds `host` (a CPU tensor that nobody else may hold)."""
    made: SimTensor
    dtype, layout = host.dtype, host.layout
    if dtype in _SPECIAL or layout is not _STRIDED or host.is_neg() or host.is_nested:
        made = _wrap_special(host, index, cls)
        kept: Any = [on_device(_storage(part), index) for part in _parts(host)]
    else:
        made = _make_wrapper(
            cls, host.shape, host.stride(), host.storage_offset(), None, dtype, layout, _HIDDEN[index],
            False, False, None, False, False, _AUTOCAST,
        )  # fmt: skip
        kept = _storage(host)
        if kept.__class__ is not SimStorage:
            on_device(kept, index)
    made._host = host
    made._index = index
    if _KEEPS_STORAGES:
        made._kept = kept  # comes last: attributes go in order, and the data must have gone before
    return made


def _parts(host: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The strided tensors that hold the data of a tensor of any layout."""
    if host.layout is _STRIDED:
        return (host,)
    if host.layout is torch.sparse_coo:
        return host._indices(), host._values()
    if host.layout in (torch.sparse_csr, torch.sparse_bsr):
        return host.crow_indices(), host.col_indices(), host.values()
    if host.layout in _COMPRESSED:
        return host.ccol_indices(), host.row_indices(), host.values()
    return ()


def _wrap_special(host: torch.Tensor, index: int, cls: type[torch.Tensor]) -> SimTensor:
    """The wrapper of a sparse, nested, quantized, conjugated or negated tensor: the same dispatch keys as the CPU's."""
    keys = _AUTOCAST
    for has, key in (
        (host.layout is torch.strided and host.is_conj(), DispatchKey.Conjugate),
        (host.layout is torch.strided and host.is_neg(), DispatchKey.Negative),
        (host.is_quantized, DispatchKey.Quantized),  # type: ignore[attr-defined]
        (host.is_nested, DispatchKey.NestedTensor),
        (host.layout in _COMPRESSED, DispatchKey.SparseCsr),
    ):
        if has:
            keys = keys | DispatchKeySet(key)
    size, stride, offset, layout, ask = (
        host.shape if not host.is_nested else (host.numel(), *[1] * (host.dim() - 1)),
        None,
        None,
        _STRIDED,
        False,
    )
    if host.layout is torch.sparse_coo:
        layout = torch.sparse_coo
    elif host.layout is not _STRIDED:
        ask = True  # C++ can't make this layout here, but asks Python for it
    elif not host.is_nested:
        stride, offset = host.stride(), host.storage_offset()
    return _make_wrapper(  # type: ignore[no-any-return]
        cls, size, stride, offset, None, host.dtype, layout, _HIDDEN[index], False, False, None, False, ask, keys
    )


_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})


def sync_metadata(tensor: SimTensor) -> None:
    """Give the C++ side of `tensor` the sizes, strides and offset of its data, after an op that changed them in place."""
    host = tensor._host
    # Meta kernels change sizes without touching data; with dispatch off they run on the wrapper itself.
    guard = torch._C._DisableTorchDispatch()
    before = torch._C._meta_in_tls_dispatch_include()
    torch._C._set_meta_in_tls_dispatch_include(True)
    try:
        with torch._C.DisableTorchFunction():  # `with torch.device(...)` looks into both calls
            storage = torch._C.TensorBase.untyped_storage(tensor)
            _aten.set_.source_Storage_storage_offset(tensor, storage, host.storage_offset(), host.shape, host.stride())
    finally:
        torch._C._set_meta_in_tls_dispatch_include(before)
        del guard
    storage = on_device(host.untyped_storage(), tensor._index)
    recount(storage)
    if _KEEPS_STORAGES:
        tensor._kept = storage


def attributes_of(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes a program has set on a tensor: all but what makes it a simulated one."""
    return {k: v for k, v in tensor.__dict__.items() if k not in _OWN}


def become(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Let the object `tensor` hold `data`'s data on `data`'s device, as `tensor.data = data` does on CUDA.

    It stays the same object, with its hooks, attributes and requires_grad, also while a graph that used it is alive.
    """
    with torch._C.DisableTorchFunctionSubclass():  # as assigning `.data` in C++ asks no subclass
        if isinstance(tensor, SimTensor) and isinstance(data, SimTensor) and _alike(tensor, data):
            tensor._host = data._host.detach()
            with torch._C._AutoDispatchBelowADInplaceOrView():  # which would count a new version
                sync_metadata(tensor)
        else:
            _exchange(tensor, data)


def _alike(a: SimTensor, b: SimTensor) -> bool:
    return a._index == b._index and a.dtype == b.dtype and a.layout == b.layout == _STRIDED


def _exchange(tensor: torch.Tensor, data: torch.Tensor) -> None:
    cls = plain_class(type(tensor))
    requires_grad = tensor.requires_grad and tensor.is_leaf
    kept, hooks, late_hooks = attributes_of(tensor), tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    grad = tensor.grad if tensor.is_leaf else None
    fresh: torch.Tensor
    if isinstance(data, SimTensor):
        fresh = wrap(data._host.detach(), data._index, simulated_class(cls))
    else:
        guard = torch._C._DisableTorchDispatch()
        fresh = torch.Tensor._make_subclass(cls, data) if cls is not torch.Tensor else data.detach()
        del guard
    fresh.__dict__.update(kept)
    fresh.requires_grad_(requires_grad)
    tensor_class, fresh_class = type(tensor), type(fresh)
    tensor.__class__, fresh.__class__ = fresh_class, tensor_class
    tensor.__dict__, fresh.__dict__ = fresh.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, fresh)
    if hooks:
        tensor._backward_hooks = hooks
    if late_hooks:
        tensor._post_accumulate_grad_hooks = late_hooks
    if grad is not None:
        # PyTorch refuses a gradient on another device than its tensor's, so it goes along.
        tensor.grad = _like(grad, tensor)


def _like(grad: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`grad` on `tensor`'s device and in its dtype, without an op that a dispatch mode would see."""
    host = grad._host if isinstance(grad, SimTensor) else grad
    guard = torch._C._DisableTorchDispatch()
    moved = host.detach().to(tensor.dtype, copy=True)
    del guard
    return wrap(moved, tensor._index) if isinstance(tensor, SimTensor) else moved

"""Ops that need more than their CPU kernel to compute as on CUDA.

Some C++ code takes another path for a tensor it knows to be a Python subclass; some CUDA kernels have no CPU counterpart
or take types that the CPU's don't.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from devguard.simulate.devices import DeviceType
from devguard.simulate.patches import Patches

_aten = torch.ops.aten

# Ops with a CPU kernel that C++ would decompose for a device that has none: they are given one.
_DECOMPOSED = ("silu_backward", "mish_backward", "native_channel_shuffle")


def install(kind: DeviceType, patches: Patches, kernel_of: Callable[[Any], Callable[..., Any]]) -> None:
    """Register the kernels; `patches` gives them back."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_restore(library._destroy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _DECOMPOSED:
            library.impl(name, kernel_of(getattr(_aten, name).default), kind.hidden_key)
        library.impl("prod", _prod, f"Autograd{kind.hidden_key}")
        library.impl("prod.dim_int", _prod_dim, f"Autograd{kind.hidden_key}")


# PyTorch's own autograd kernel of an op, and Python's dispatch below it.
_PLAIN_AUTOGRAD = DispatchKeySet(DispatchKey.AutogradCPU) | DispatchKeySet(DispatchKey.Python)


def _below(func: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return func(*args, **kwargs)


def _prod(self: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    if not (torch.is_grad_enabled() and self.requires_grad):
        return _below(_aten.prod.default, self, dtype=dtype)  # type: ignore[no-any-return]
    if torch._C._are_functorch_transforms_active():
        return _aten.prod.default.redispatch(_PLAIN_AUTOGRAD, self, dtype=dtype)  # type: ignore[no-any-return]
    return _Prod.apply(self, dtype)  # type: ignore[no-any-return,no-untyped-call]


def _prod_dim(self: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    if not (torch.is_grad_enabled() and self.requires_grad):
        return _below(_aten.prod.dim_int, self, dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    if torch._C._are_functorch_transforms_active():
        return _aten.prod.dim_int.redispatch(  # type: ignore[no-any-return]
            _PLAIN_AUTOGRAD, self, dim, keepdim, dtype=dtype
        )
    return _ProdDim.apply(self, dim, keepdim, dtype)  # type: ignore[no-any-return,no-untyped-call]


def _without_zeros(grad: torch.Tensor, self: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return grad * (result / self).conj()


def _exclusive(self: torch.Tensor, dim: int, grad: torch.Tensor) -> torch.Tensor:
    """The gradient where a slice may hold zeros: products of everything before and everything after."""
    if self.numel() == 0:
        return grad.expand_as(self)
    if self.size(dim) == 1:
        return grad
    ones = torch.ones_like(self.narrow(dim, 0, 1))
    before = torch.cat((ones, self.narrow(dim, 0, self.size(dim) - 1)), dim).cumprod(dim)
    after = torch.cat((ones, self.narrow(dim, 1, self.size(dim) - 1).flip(dim)), dim).cumprod(dim).flip(dim)
    return grad * (before * after).conj()


class _Prod(torch.autograd.Function):
    """The gradient of prod as PyTorch computes it for tensors that are no subclass (it looks for zeros first)."""

    @staticmethod
    def forward(ctx: Any, self: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        result = _aten.prod.default(self, dtype=dtype)
        ctx.save_for_backward(self, result)
        return result  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        self, result = ctx.saved_tensors
        grad = grad.to(self.dtype)
        result = result.to(self.dtype)
        if self.dim() == 0:
            return grad.clone(), None
        zeros = (self == 0).nonzero()
        if zeros.numel() == 0:
            return _without_zeros(grad, self, result), None
        if zeros.size(0) > 1:
            return torch.zeros_like(self), None
        return _exclusive(self.contiguous().view(-1), 0, grad).view_as(self), None


class _ProdDim(torch.autograd.Function):
    """The same for prod over one dimension."""

    @staticmethod
    def forward(ctx: Any, self: torch.Tensor, dim: int, keepdim: bool, dtype: torch.dtype | None) -> torch.Tensor:
        result = _aten.prod.dim_int(self, dim, keepdim, dtype=dtype)
        ctx.save_for_backward(self, result)
        ctx.dim, ctx.keepdim = dim, keepdim
        return result  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        self, result = ctx.saved_tensors
        grad = grad.to(self.dtype)
        result = result.to(self.dtype)
        if self.dim() == 0:
            return grad, None, None, None
        dim = ctx.dim % self.dim()
        if not ctx.keepdim and self.dim() != 1:
            grad, result = grad.unsqueeze(dim), result.unsqueeze(dim)
        if (self == 0).sum(dim, keepdim=True).sum().item() == 0:
            return _without_zeros(grad, self, result), None, None, None
        return _exclusive(self, dim, grad), None, None, None


# "mm" with a wider result type exists on CUDA alone: name -> positions of the factors.
_WIDE = {"aten::mm": 2, "aten::bmm": 2, "aten::addmm": 3, "aten::baddbmm": 3}
_REFUSED = re.compile(r"not implemented for '(\w+)'|not supported for|Could not run")
_HALF = (torch.float16, torch.bfloat16)


def substitute(func: Any, args: Sequence[Any], kwargs: dict[str, Any], problem: Exception) -> Any:
    """The result of an op whose CPU kernel refuses what CUDA's takes; NotImplemented where CUDA refuses it too.

    `args` and `kwargs` hold CPU tensors.
    """
    if not _REFUSED.search(str(problem)):
        return NotImplemented
    name = func._schema.name
    if name in _WIDE and func._overloadname in ("dtype", "dtype_out"):
        return _wide(func, args, kwargs)
    if any(isinstance(a, torch.Tensor) and a.dtype in _HALF for a in args):
        return _in_float32(func, args, kwargs)
    return NotImplemented


def _wide(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    factors = _WIDE[func._schema.name]
    dtype = args[factors] if len(args) > factors else kwargs.pop("out_dtype")
    wide = [a.to(dtype) for a in args[:factors]]
    rest = {k: v for k, v in kwargs.items() if k != "out"}
    result = getattr(_aten, func._schema.name.partition("::")[2])(*wide, **rest)
    if "out" in kwargs:
        return kwargs["out"].resize_(result.shape).copy_(result)
    return result


def _in_float32(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute in float32 and round, which is what CUDA's half kernels do."""
    half = next(a.dtype for a in args if isinstance(a, torch.Tensor) and a.dtype in _HALF)
    written = [i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.float() if value.dtype in _HALF else value
        if isinstance(value, (list, tuple)):
            return type(value)(map(widen, value))
        return value

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(half) if value.dtype == torch.float32 else value
        if isinstance(value, (list, tuple)):
            return type(value)(map(narrow, value))
        return value

    wide = [widen(a) for a in args]
    result = func(*wide, **{k: widen(v) for k, v in kwargs.items()})
    for i in written:
        target, source = (args[i], wide[i]) if i < len(args) else (None, None)
        if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor) and target is not source:
            target.resize_(source.shape).copy_(source)
            return target
    return narrow(result)

"""torch.autocast for simulated devices.

PyTorch's own autocast kernels cast only what C++ believes to be on CUDA. Simulated tensors carry CUDA's autocast dispatch
key, so the same kernels written here run exactly where CUDA's would: above autograd, only while autocast is on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from devguard.simulate.devices import DeviceType
from devguard.simulate.patches import Patches
from devguard.simulate.tensor import SimTensor

# The lists of torch/include/ATen/autocast_mode.h: what runs in half, in float32, in the widest type of its operands.
_LOWER = """
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention _cudnn_rnn
""".split()
_FLOAT32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim
cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d
upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
_upsample_bicubic2d_aa
""".split()
_FLOAT32_RESULT = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
_NORMS = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()

_UNSAFE = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\nsafe to autocast."
)


class _Casts:
    """Casts of one simulation, with the cache of weights that autocast keeps until its outermost region ends."""

    def __init__(self, kind: DeviceType) -> None:
        self.kind = kind
        self.cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        if _is_here(value):
            if not _eligible(value) or value.dtype == dtype:
                return value
            if value.dtype != torch.float32 or not value.requires_grad or not value.is_leaf or value._is_view() \
                    or not torch.is_autocast_cache_enabled() or dtype == torch.float32:  # fmt: skip
                return value.to(dtype)
            kept = self.cache.get(id(value))
            if kept is None:
                kept = self.cache[id(value)] = (value, value.to(dtype))
            return kept[1]
        if isinstance(value, (list, tuple)):
            return [self.cast(v, dtype) for v in value]
        return value

    def all(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype
    ) -> tuple[list[Any], dict[str, Any]]:
        return [self.cast(a, dtype) for a in args], {k: self.cast(v, dtype) for k, v in kwargs.items()}


def _eligible(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dtype != torch.float64


def _is_here(value: Any) -> bool:
    """Is it a tensor on a simulated device, also in a wrapper (of torch.func, or of a program's own class)?"""
    return isinstance(value, SimTensor) or (isinstance(value, torch.Tensor) and value.is_cuda)


def _tensors(values: Any) -> list[torch.Tensor]:
    found = []
    for v in values:
        if _is_here(v):
            found.append(v)
        elif isinstance(v, (list, tuple)):
            found.extend(_tensors(v))
    return found


def install(kind: DeviceType, patches: Patches) -> None:
    """Register the kernels; `patches` gives them back."""
    casts = _Casts(kind)
    key = DispatchKeySet(getattr(DispatchKey, kind.autocast_key))
    library = torch.library.Library("aten", "IMPL")
    patches.on_restore(library._destroy)
    tables: list[tuple[Any, Callable[..., Any]]] = [
        *((name, _lower(casts, key)) for name in _LOWER),
        *((name, _float32(casts, key)) for name in _FLOAT32),
        *((name, _float32_result(key)) for name in _FLOAT32_RESULT),
        *((name, _norm(key, appended)) for name, appended in _NORMS.items()),
        *((name, _widest(casts, key)) for name in _WIDEST),
        ("binary_cross_entropy", _refuse),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in tables:
            func = _overload(name)
            if func is not None:
                library.impl(name, make(func), kind.autocast_key)
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        casts.cache.clear()
        clear()

    patches.set(torch, "clear_autocast_cache", clear_autocast_cache)


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


def _lower(casts: _Casts, key: DispatchKeySet) -> Callable[..., Any]:
    def make(func: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                args_, kwargs_ = casts.all(args, kwargs, torch.get_autocast_dtype(casts.kind.name))
                return func(*args_, **kwargs_)

        return kernel

    return make


def _float32(casts: _Casts, key: DispatchKeySet) -> Callable[..., Any]:
    def make(func: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                args_, kwargs_ = casts.all(args, kwargs, torch.float32)
                return func(*args_, **kwargs_)

        return kernel

    return make


def _float32_result(key: DispatchKeySet) -> Callable[..., Any]:
    def make(func: Any) -> Any:
        at = [a.name for a in func._schema.arguments].index("dtype")

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                given = args[at] if at < len(args) else kwargs.get("dtype")
                if given is None and _is_here(args[0]) and _eligible(args[0]):
                    if at < len(args):
                        args = (*args[:at], torch.float32, *args[at + 1 :])
                    else:
                        kwargs["dtype"] = torch.float32
                return func(*args, **kwargs)

        return kernel

    return make


def _norm(key: DispatchKeySet, appended: str) -> Callable[..., Any]:
    def make(func: Any) -> Any:
        with_dtype = _overload(appended)

        def kernel(self: Any, p: Any = 2, *rest: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                if not _eligible(self):
                    return func(self, p, *rest, **kwargs)
                if rest or kwargs:
                    dim = rest[0] if rest else kwargs["dim"]
                    keepdim = rest[1] if len(rest) > 1 else kwargs.get("keepdim", False)
                    return with_dtype(self, p, dim, keepdim, dtype=torch.float32)
                return with_dtype(self, p, dtype=torch.float32)

        return kernel

    return make


def _widest(casts: _Casts, key: DispatchKeySet) -> Callable[..., Any]:
    def make(func: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(key):
                dtype = torch.get_autocast_dtype(casts.kind.name)
                if any(t.dtype == torch.float32 for t in _tensors((*args, *kwargs.values()))):
                    dtype = torch.float32
                args_, kwargs_ = casts.all(args, kwargs, dtype)
                return func(*args_, **kwargs_)

        return kernel

    return make


def _refuse(func: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(_UNSAFE)

    return kernel

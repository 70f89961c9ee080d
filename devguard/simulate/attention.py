"""scaled_dot_product_attention as on CUDA: one fused op, computed by the CPU's own fused kernel where the CPU would take it."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import DispatchKey

from devguard.simulate.tensor import SimTensor

_aten = torch.ops.aten
_FLASH = 1  # at::sdp::SDPBackend::flash_attention


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention, above autograd."""
    tensors = (query, key, value, *(() if attn_mask is None else (attn_mask,)))
    options = {"scale": scale, "enable_gqa": enable_gqa}
    if not all(isinstance(t, SimTensor) for t in tensors) or not _fused(tensors, dropout_p, is_causal, options):
        function = _aten.scaled_dot_product_attention.default
        return function._op_dk(
            DispatchKey.CompositeImplicitAutograd, query, key, value, attn_mask, dropout_p, is_causal, **options
        )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        hidden = attn_mask.logical_not()
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(hidden, float("-inf"))
    graph = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return _aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, graph, dropout_p, is_causal, scale=scale
    )[0]


def _fused(tensors: Any, dropout_p: float, is_causal: bool, options: dict[str, Any]) -> bool:
    """Would the CPU take its fused kernel for this? (No op is seen.)"""
    if torch._C._are_functorch_transforms_active() or (len(tensors) > 3 and tensors[3].requires_grad):
        return False
    guard = torch._C._DisableTorchDispatch()
    try:
        hosts = [t._host for t in tensors]
        mask = hosts[3] if len(hosts) > 3 else None
        choice: Any = torch._fused_sdp_choice
        return bool(choice(*hosts[:3], mask, dropout_p, is_causal, **options) == _FLASH)
    except RuntimeError:
        return False
    finally:
        del guard


def forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """CUDA's _scaled_dot_product_efficient_attention, of CPU tensors."""
    result, log_sum = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=bias, scale=scale
    )
    return result, log_sum, torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


def backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    result: torch.Tensor,
    log_sum: torch.Tensor,
    seed: torch.Tensor,
    offset: torch.Tensor,
    dropout_p: float,
    mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """CUDA's _scaled_dot_product_efficient_attention_backward, of CPU tensors."""
    grads = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, result, log_sum, dropout_p, is_causal, attn_mask=bias, scale=scale
    )
    return (*grads, None)

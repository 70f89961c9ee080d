"""The ops of SyncBatchNorm, which PyTorch has for devices only, on CPU tensors."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def _wide(tensor: Tensor) -> Tensor:
    """In the type that statistics are kept in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _channels(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(1, -1, *[1] * (like.dim() - 2))


def _others(tensor: Tensor) -> list[int]:
    return [d for d in range(tensor.dim()) if d != 1]


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """batch_norm_stats: mean and inverse deviation of each channel."""
    variance, mean = torch.var_mean(_wide(input), _others(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """batch_norm_elemt: the normalisation itself."""
    out = (_wide(input) - _channels(mean, input)) * _channels(invstd, input)
    if weight is not None:
        out = out * _channels(weight, input)
    if bias is not None:
        out = out + _channels(bias, input)
    return out.to(input.dtype)


def gather_stats(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """batch_norm_gather_stats_with_counts: the statistics of all ranks together; updates the running ones."""
    counts = counts.to(mean.dtype).reshape(-1, 1)
    total = counts.sum()
    common = (mean * counts).sum(0) / total
    squares = ((invstd.pow(-2) - eps + (mean - common).square()) * counts).sum(0)
    for running, value in ((running_mean, common), (running_var, squares / (total - 1))):
        if running is not None:
            running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)
    return common, torch.rsqrt(squares / total + eps)


def backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """batch_norm_backward_reduce: sums over this rank's batch, and the gradients of weight and bias."""
    grad = _wide(grad_out)
    sum_dy = grad.sum(_others(input))
    sum_dy_xmu = (grad * (_wide(input) - _channels(mean, input))).sum(_others(input))
    dtype = sum_dy.dtype if weight is None else weight.dtype
    grad_weight = (sum_dy_xmu * invstd).to(dtype) if weight_g else None
    return sum_dy, sum_dy_xmu, grad_weight, sum_dy.to(dtype) if bias_g else None


def backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """batch_norm_backward_elemt: the gradient of the input."""
    total = count.sum().to(sum_dy.dtype)
    centred = _wide(input) - _channels(mean, input)
    slope = _channels(invstd.square() * sum_dy_xmu / total, input)
    grad = (_wide(grad_out) - _channels(sum_dy / total, input) - centred * slope) * _channels(invstd, input)
    return (grad if weight is None else grad * _channels(weight, input)).to(input.dtype)

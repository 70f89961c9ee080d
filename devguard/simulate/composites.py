"""Functions made of ops that PyTorch's C++ composes by device: what they are made of on CUDA.

`ABOVE` holds the functions themselves, above autograd; `BELOW` the ops of CUDA they end in, as functions of CPU tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devguard.simulate import attention, fourier, recurrent, syncbn

_aten = torch.ops.aten


def _ctc_loss(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any, **kwargs: Any) -> Any:
    """CUDA reads the lengths on the host."""
    lengths = [t.to("cpu", torch.int64).tolist() for t in (input_lengths, target_lengths)]
    return torch.ops.aten.ctc_loss.IntList(log_probs, targets, *lengths, *rest, **kwargs)


ABOVE: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention.attention,
    **{f"{mode}.input": recurrent.whole(mode, False) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{mode}.data": recurrent.whole(mode, True) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **fourier.TRANSFORMS,
    "ctc_loss.Tensor": _ctc_loss,
}


def _dropout(image: torch.Tensor, p: float, train: bool | None, *, generator: torch.Generator) -> Any:
    """native_dropout as its CPU kernel computes it, from a generator of its own."""
    if train is not None and not train:
        return image.clone(), torch.ones(image.shape, dtype=torch.bool, device="cpu")
    keep = 1.0 - p
    mask = _aten.empty_like(image, dtype=torch.bool)
    _aten.bernoulli_.float(mask, keep, generator=generator)
    return image.mul(mask).mul_(0.0 if keep == 0 else 1.0 / keep), mask


# Random ops without an argument for a generator that are given one here.
GENERATED = frozenset({"aten::native_dropout"})


def _zeros(size: Any, **kwargs: Any) -> torch.Tensor:
    """Forward-mode AD's zeros that hold no memory: here they do."""
    return torch.zeros(size, **kwargs)


BELOW: Mapping[str, Callable[..., Any]] = {
    "aten::native_dropout": _dropout,
    "aten::_efficientzerotensor": _zeros,
    "aten::_scaled_dot_product_efficient_attention": attention.forward,
    "aten::_scaled_dot_product_efficient_attention_backward": attention.backward,
    "aten::_cudnn_rnn": recurrent.forward,
    "aten::_cudnn_rnn_backward": recurrent.backward,
    "aten::batch_norm_stats": syncbn.stats,
    "aten::batch_norm_elemt": syncbn.elemt,
    "aten::batch_norm_gather_stats_with_counts": syncbn.gather_stats,
    "aten::batch_norm_backward_reduce": syncbn.backward_reduce,
    "aten::batch_norm_backward_elemt": syncbn.backward_elemt,
}

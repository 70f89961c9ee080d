"""Functions made of ops that PyTorch's C++ composes by device: what they are made of on CUDA.

`ABOVE` holds the functions themselves, above autograd; `BELOW` the ops of CUDA they end in, as functions of CPU tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from devguard.simulate import attention, recurrent

ABOVE: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention.attention,
    **{f"{mode}.input": recurrent.whole(mode, False) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{mode}.data": recurrent.whole(mode, True) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}


def _dropout(image: torch.Tensor, p: float, train: bool | None, *, generator: torch.Generator) -> Any:
    """native_dropout as its CPU kernel computes it, from a generator of its own."""
    if train is not None and not train:
        return image.clone(), torch.ones(image.shape, dtype=torch.bool, device="cpu")
    keep = 1.0 - p
    mask = torch.empty_like(image, dtype=torch.bool).bernoulli_(keep, generator=generator)
    return image.mul(mask).mul_(0.0 if keep == 0 else 1.0 / keep), mask


# Random ops without an argument for a generator that are given one here.
GENERATED = frozenset({"aten::native_dropout"})
BELOW: Mapping[str, Callable[..., Any]] = {
    "aten::native_dropout": _dropout,
    "aten::_scaled_dot_product_efficient_attention": attention.forward,
    "aten::_scaled_dot_product_efficient_attention_backward": attention.backward,
    "aten::_cudnn_rnn": recurrent.forward,
    "aten::_cudnn_rnn_backward": recurrent.backward,
}

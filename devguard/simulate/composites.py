"""Functions made of ops that PyTorch's C++ composes by device: what they are made of on CUDA.

`ABOVE` holds the functions themselves, above autograd; `BELOW` the ops of CUDA they end in, as functions of CPU tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from devguard.simulate import attention, recurrent

ABOVE: Mapping[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention.attention,
    **{f"{mode}.input": recurrent.whole(mode, False) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"{mode}.data": recurrent.whole(mode, True) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}
BELOW: Mapping[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_efficient_attention": attention.forward,
    "aten::_scaled_dot_product_efficient_attention_backward": attention.backward,
    "aten::_cudnn_rnn": recurrent.forward,
    "aten::_cudnn_rnn_backward": recurrent.backward,
}

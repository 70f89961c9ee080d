"""What a piece of PyTorch code did, down to the last bit, so that two runs of it can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten


@dataclass
class Outcome:
    """Everything a user could tell two runs apart by."""

    error: tuple[str, str] | None
    tensors: list[tuple[Any, ...]]
    others: list[str]
    rng: bytes

    def differs_from(self, other: Outcome) -> str:
        """The first difference in words, empty where there is none."""
        for name in ("error", "tensors", "others", "rng"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                if name == "rng":
                    return "the state of the random number generator differs"
                return f"{name}: {str(mine)[:300]} != {str(theirs)[:300]}"
        return ""


def bits(tensor: torch.Tensor) -> bytes:
    """The values of a tensor as bytes; NaNs compare equal to themselves this way."""
    plain = tensor.detach()
    if plain.layout is torch.jagged or plain.is_nested:
        return b"".join(bits(part) for part in plain.unbind())
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    if plain.is_quantized:
        plain = plain.int_repr()
    plain = plain.resolve_conj().resolve_neg().contiguous().cpu()
    if plain.numel() == 0:
        return b""
    return bytes(plain.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes())


def describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Values, metadata, memory layout and place in the autograd graph.

    The version counter is left out: under any dispatch mode PyTorch's own formulas for some gradients (cov, sort, triplet_margin_loss)
    choose out-of-place ops, so a fresh result counts fewer in-place changes.
    """
    strides = tuple(tensor.stride()) if tensor.layout is torch.strided and not tensor.is_nested else ()
    shape = () if tensor.is_nested else tuple(tensor.shape)
    grad_fn = type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else ""
    grad_fn = grad_fn.replace(
        "ReshapeAlias", "View"
    )  # PyTorch picks another of two equal views under any dispatch mode
    return (
        type(tensor).__name__,
        tensor.dtype,
        str(tensor.device),
        shape,
        strides,
        tensor.requires_grad,
        tensor.is_leaf,
        grad_fn,
        bits(tensor) if tensor.device.type != "meta" else b"",
    )


def outcome(function: Callable[[], Any], seed: int = 0) -> Outcome:
    """Run `function` with a fixed seed and record what came out, an exception included."""
    torch.manual_seed(seed)
    error = None
    tensors: list[tuple[Any, ...]] = []
    others: list[str] = []
    try:
        leaves, _ = tree_flatten(function())
    except Exception as problem:
        error = (type(problem).__name__, str(problem))
    else:
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                tensors.append(describe(leaf))
            else:
                others.append(
                    repr(leaf)[:200] if isinstance(leaf, (int, float, str, bool, complex)) else type(leaf).__name__
                )
    return Outcome(error, tensors, others, bytes(torch.get_rng_state().numpy().tobytes()))

"""RNN, LSTM and GRU as on CUDA: one op for the whole layer stack, computed by the CPU's own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey

_aten = torch.ops.aten
_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # numbered as cuDNN numbers them
_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def whole(mode: str, packed: bool) -> Callable[..., Any]:
    """`mode`.input (or .data, for a packed sequence) above autograd."""
    function = getattr(getattr(_aten, mode), "data" if packed else "input")

    def run(*args: Any, **kwargs: Any) -> Any:
        names = [a.name for a in function._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        image = given["data"] if packed else given["input"]
        if image.dtype not in _FLOATING or image.numel() == 0 or torch._C._are_functorch_transforms_active():
            return function._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        hidden, cell = given["hx"] if mode == "lstm" else (given["hx"], None)
        size = (hidden if cell is None else cell).size(-1)
        projected = hidden.size(-1) if hidden.size(-1) != size else 0
        stride = (4 if given["has_biases"] else 2) + bool(projected)
        lengths = given["batch_sizes"].tolist() if packed else []
        output, hy, cy, *_ = _aten._cudnn_rnn(
            image, given["params"], stride, None, hidden, cell, _MODES.index(mode), size, projected,
            given["num_layers"], given.get("batch_first", False), given["dropout"], given["train"],
            given["bidirectional"], lengths, None,
        )  # fmt: skip
        return (output, hy, cy) if mode == "lstm" else (output, hy)

    return run


def forward(
    image: torch.Tensor, weights: Sequence[torch.Tensor], stride: int, buffer: Any, hidden: torch.Tensor, cell: Any,
    mode: int, size: int, projected: int, layers: int, batch_first: bool, dropout: float, train: bool,
    bidirectional: bool, lengths: Sequence[int], state: Any,
) -> Any:  # fmt: skip
    """_cudnn_rnn, of CPU tensors. In training the CPU's graph is kept with the reserve space for the gradient."""
    biases = stride >= 4
    track = train and torch.is_grad_enabled() and image.dtype.is_floating_point
    leaves = [t.detach().requires_grad_() if track else t for t in (image, hidden, *weights)]
    last = cell.detach().requires_grad_() if track and cell is not None else cell
    state_in: Any = leaves[1] if last is None else (leaves[1], last)
    function = getattr(_aten, _MODES[mode])
    options = (biases, layers, dropout, train, bidirectional)
    with _with_graph(), torch.set_grad_enabled(track):
        if lengths:
            sizes = torch.tensor(lengths, dtype=torch.int64)
            results = function.data(leaves[0], sizes, state_in, leaves[2:], *options)
        else:
            results = function.input(leaves[0], state_in, leaves[2:], *options, batch_first)
    reserve = torch.empty(1, dtype=torch.uint8)
    if track:
        # The storage lives as long as autograd keeps the reserve space, and is the same for all of its aliases.
        reserve.untyped_storage()._devguard_graph = (leaves, last, results)  # type: ignore[attr-defined]
    made = [r.detach() for r in results]
    if cell is None:
        made.append(image.new_empty(0))
    return (*made, reserve, image.new_empty(0))


def backward(
    image: torch.Tensor, weights: Sequence[torch.Tensor], stride: int, buffer: Any, hidden: torch.Tensor, cell: Any,
    output: Any, grad_output: Any, grad_hidden: Any, grad_cell: Any, mode: int, size: int, projected: int, layers: int,
    batch_first: bool, dropout: float, train: bool, bidirectional: bool, lengths: Sequence[int], state: Any,
    reserve: torch.Tensor, mask: Sequence[bool],
) -> Any:  # fmt: skip
    """_cudnn_rnn_backward, of CPU tensors."""
    graph = getattr(reserve.untyped_storage(), "_devguard_graph", None)
    if graph is None:
        raise RuntimeError("cudnn RNN backward can only be called in training mode")
    leaves, last, results = graph
    wanted = [*leaves, *(() if last is None else (last,))]
    pairs = [(r, g) for r, g in zip(results, (grad_output, grad_hidden, grad_cell), strict=False) if g is not None]
    with _with_graph():
        grads = torch.autograd.grad(
            [r for r, _ in pairs], wanted, [g for _, g in pairs], retain_graph=True, allow_unused=True
        )
    found = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, grads, strict=True)]
    return found[0], found[1], None if last is None else found[-1], found[2 : 2 + len(weights)]


class _with_graph:
    """Let ops on CPU tensors build a graph of their own, inside an op of the simulated ones."""

    def __enter__(self) -> None:
        exclude = torch._C._SetExcludeDispatchKeyGuard
        self._guards = [exclude(k, False) for k in (DispatchKey.AutogradFunctionality, DispatchKey.ADInplaceOrView)]
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *exc: Any) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*exc)

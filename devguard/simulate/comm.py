"""Copies between the devices of one process that torch.nn.parallel and torch.cuda.nccl ask torch._C for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from devguard.simulate.devices import Devices
from devguard.simulate.patches import Patches

Tensors = Sequence[torch.Tensor]


def install(devices: Devices, patches: Patches) -> None:
    """Give torch._C its functions for several devices."""

    def target(index: int | None) -> torch.device:
        if index is not None and index < 0:
            return torch.device("cpu") if index == -1 else devices.shown[devices.current]
        return devices.shown[devices.index(index)]

    def broadcast(tensor: torch.Tensor, to: Sequence[int]) -> list[torch.Tensor]:
        return [tensor.to(target(i), non_blocking=True) for i in to]

    def coalesced(tensors: Tensors, to: Sequence[int], buffer_size: int) -> list[list[torch.Tensor]]:
        return [[t.to(target(i), non_blocking=True) for t in tensors] for i in to]

    def scatter(tensor: torch.Tensor, to: Sequence[int], sizes: Any, dim: int, streams: Any) -> list[torch.Tensor]:
        parts = tensor.chunk(len(to), dim) if sizes is None else tensor.split(list(sizes), dim)
        return [part.to(target(i), non_blocking=True) for part, i in zip(parts, to, strict=False)]

    def scatter_out(tensor: torch.Tensor, out: Tensors, dim: int, streams: Any) -> Tensors:
        return _copy(tensor.split([t.size(dim) for t in out], dim), out)

    def gather(tensors: Tensors, dim: int, to: int | None) -> torch.Tensor:
        place = target(to)
        return torch.cat([t.to(place, non_blocking=place.type != "cpu") for t in tensors], dim)

    functions: dict[str, Callable[..., Any]] = {
        "_broadcast": broadcast,
        "_broadcast_coalesced": coalesced,
        "_broadcast_out": lambda tensor, out: [tensor, *_copy([tensor] * len(out), out)],
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": lambda tensors, out, dim: out.copy_(gather(tensors, dim, out.get_device())),
        "_nccl_all_reduce": lambda inputs, outputs, op=0, *rest: _copy(
            [_reduced(inputs, op, t) for t in inputs], outputs
        ),
        "_nccl_reduce": lambda inputs, output, root=0, op=0, *rest: output.copy_(_reduced(inputs, op, inputs[root])),
        "_nccl_broadcast": lambda inputs, root=0, *rest: _copy([inputs[root]] * len(inputs), inputs),
        "_nccl_all_gather": lambda inputs, outputs, *rest: _copy([_joined(inputs, t) for t in outputs], outputs),
        "_nccl_reduce_scatter": _reduce_scatter,
    }
    for name, function in functions.items():
        patches.set(torch._C, name, torch.no_grad()(function))


def _copy(sources: Tensors, targets: Tensors) -> Tensors:
    for source, to in zip(sources, targets, strict=True):
        if source is not to:
            to.copy_(source, non_blocking=True)
    return targets


_OPERATIONS: dict[int, Callable[..., torch.Tensor]] = {0: torch.add, 1: torch.mul, 2: torch.maximum, 3: torch.minimum}


def _reduced(inputs: Tensors, op: int, like: torch.Tensor) -> torch.Tensor:
    """All inputs brought together on `like`'s device (NCCL's numbers: sum, product, max, min)."""
    first, *others = [t.to(like.device, non_blocking=True) for t in inputs]
    total = first.clone()
    for other in others:
        total = _OPERATIONS[op](total, other)
    return total


def _joined(inputs: Tensors, like: torch.Tensor) -> torch.Tensor:
    return torch.cat([t.to(like.device, non_blocking=True).reshape(-1) for t in inputs]).reshape(like.shape)


def _reduce_scatter(inputs: Tensors, outputs: Tensors, op: int = 0, *rest: Any) -> None:
    for position, output in enumerate(outputs):
        total = _reduced(inputs, op, output).reshape(-1)
        output.copy_(total.chunk(len(outputs))[position].reshape(output.shape))

"""Which operands an op on several devices copies unasked, read from `knowledge/copies.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from devguard.knowledge.copies import MixedOp
from devguard.observe.dispatch import Op

_MASKS = (torch.bool, torch.uint8)
_Tensor = torch.Tensor


def _value(op: Op, name: str) -> Any:
    for index, argument in enumerate(op.func._schema.arguments):
        if argument.name == name:
            return op.argument(index, name)
    return None


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, _Tensor):
        return [value]
    return [item for item in value if isinstance(item, _Tensor)] if isinstance(value, (list, tuple)) else []


def copied_operands(rule: MixedOp, op: Op) -> Iterator[tuple[str, Any, Any]]:
    """(argument, tensor that is copied, tensor whose device it goes to) of one call of an op that copies unasked."""
    if rule.to == "others":
        yield from _to_the_others(rule, op)
        return
    targets = _tensors(_value(op, rule.to))
    if not targets:
        return
    if "values" in rule.moves and _is_masked_fill(op, targets[0]):
        return
    for name in rule.moves:
        moved = _tensors(_value(op, name))
        paired = len(targets) == len(moved) and len(targets) > 1
        for index, tensor in enumerate(moved):
            target = targets[index] if paired else targets[0]
            if tensor.get_device() != target.get_device() and tensor.numel():
                yield name, tensor, target


def _to_the_others(rule: MixedOp, op: Op) -> Iterator[tuple[str, Any, Any]]:
    operands = [(name, tensor) for name in rule.moves for tensor in _tensors(_value(op, name))]
    target = next((tensor for _, tensor in operands if tensor.get_device() >= 0 and tensor.dim()), None)
    target = (
        target if target is not None else next((tensor for _, tensor in operands if tensor.get_device() >= 0), None)
    )
    if target is None:
        return
    for name, tensor in operands:
        if tensor.get_device() != target.get_device() and (not tensor.dim() or not rule.only_0dim):
            yield name, tensor, target


def _is_masked_fill(op: Op, target: Any) -> bool:
    """``x[mask] = number``: one boolean mask on the tensor's device and one value on the host; the value travels by itself."""
    indices, values = _tensors(_value(op, "indices")), _value(op, "values")
    return (
        len(indices) == 1
        and indices[0].dtype in _MASKS
        and indices[0].get_device() == target.get_device()
        and isinstance(values, _Tensor)
        and values.numel() == 1
        and values.get_device() < 0
    )


def is_host_mask(tensor: Any) -> bool:
    """A boolean mask on the host used as an index: turned into pinned indices there, and copied without blocking."""
    return tensor.dtype in _MASKS and tensor.get_device() < 0


def layout_of(tensor: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """What tells two views of one storage apart, and one state of its data from the next."""
    try:
        version = tensor._version
    except RuntimeError:  # inference tensors count no versions
        version = -1
    if tensor.is_nested:  # it has no shape of its own
        return version, 0, (), ()
    return version, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def bytes_of(tensor: Any) -> int:
    """The size of a tensor's elements in bytes."""
    return int(tensor.numel() * tensor.element_size())


def is_pinned(tensor: Any) -> bool:
    """Is a host tensor in pinned memory?"""
    return tensor.get_device() < 0 and bool(tensor.is_pinned())

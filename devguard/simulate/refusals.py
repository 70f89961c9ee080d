"""What CUDA refuses: operands on several devices."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from devguard.simulate.dispatch import Plan

# Ops that take operands from any device.
_ANY_DEVICE = frozenset({
    "aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::set_data",
    "aten::_foreach_copy_", "aten::_amp_update_scale_", "aten::is_same_size", "aten::_has_same_storage_numel",
    "aten::resize_as_", "aten::lift_fresh", "aten::_pin_memory", "aten::set_", "aten::new_empty_strided",
    "aten::_pad_packed_sequence", "aten::_pack_padded_sequence", "aten::_pack_padded_sequence_backward",
})  # fmt: skip
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
                       "aten::_unsafe_index", "aten::_unsafe_index_put"})  # fmt: skip


@functools.cache
def _checks() -> dict[str, tuple[str, list[str]]]:
    text = resources.files("devguard.knowledge").joinpath("device_checks.json").read_text(encoding="utf-8")
    return {name: (row[0], row[1:]) for name, row in json.loads(text).items()}


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _flat(v)]
    return []


def common_device(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], index: int) -> int:
    """The device an op with operands on several devices runs on; raises what CUDA raises where it refuses them.

    `index` is the first simulated device met; the result is the index for the results (-1: the CPU).
    """
    if plan.name in _ANY_DEVICE or plan.name.startswith("c10d"):
        first = _flat(args[0]) if args else []
        return index if not first or first[0].is_cuda or plan.returns_args is not None else -1
    schema = plan.func._schema
    named = {a.name: args[i] if i < len(args) else kwargs.get(a.name) for i, a in enumerate(schema.arguments)}
    if plan.name in _INDEXING:
        return _indexing(plan, named, index)
    check = _checks().get(_key(plan))
    if check is not None and check[1]:
        _exactly_same(check[0], check[1], named)
    else:
        _iterator(plan, [t for v in named.values() for t in _flat(v)])
    return index


def _key(plan: Plan) -> str:
    overload = plan.func._overloadname
    base = plan.name.partition("::")[2]
    return base if overload == "default" else f"{base}.{overload}"


def _exactly_same(method: str, checked: Sequence[str], named: Mapping[str, Any]) -> None:
    """The check that PyTorch generates for most CUDA kernels."""
    common: torch.device | None = None
    for name in checked:
        for tensor in _flat(named.get(name)):
            if common is None:
                common = tensor.device
            elif tensor.device != common:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but got {name} is on {tensor.device}, "
                    f"different from other tensors on {common} (when checking argument in method {method})"
                )


def _iterator(plan: Plan, tensors: Sequence[torch.Tensor]) -> None:
    """The check of element-wise kernels: one operand may be a 0-dim CPU tensor."""
    common = next((t.device for t in tensors if t.device.type != "cpu"), torch.device("cpu"))
    scalars = 0
    foreach = plan.name.startswith("aten::_foreach")
    for tensor in tensors:
        if tensor.device == common or foreach:
            continue
        if tensor.dim() == 0 and tensor.device.type == "cpu" and not (plan.written and tensor is tensors[0]):
            scalars += 1
            if scalars > 1:
                raise RuntimeError("Trying to pass too many CPU scalars to non-CPU kernel!")
            continue
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{common} and {tensor.device}!"
        )


def _indexing(plan: Plan, named: Mapping[str, Any], index: int) -> int:
    own = named["self"].device
    for indices in _flat(named["indices"]):
        if indices.device not in (own, torch.device("cpu")):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({own})"
            )
    values = named.get("values")
    if values is not None and values.device != own and values.numel() > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{own if own.type != 'cpu' else values.device} and {values.device if own.type != 'cpu' else own}!"
        )
    return index

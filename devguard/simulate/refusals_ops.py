"""Ops whose operands follow rules of their own on CUDA. Each rule gives the device the op runs on, or raises CUDA's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from devguard.knowledge import placement
from devguard.simulate.refusals import (
    CPU,
    Call,
    Rule,
    check_iterator,
    flat,
    index_of,
    refuse,
    same_device,
)
from devguard.simulate.refusals_conv import batch_norm, convolution


def _anywhere(call: Call) -> int:
    """Operands on any device: the op copies what it needs. The result is where the first operand is."""
    return next((index_of(t) for t in flat(list(call.args))), call.index)


def _index(call: Call) -> int:
    own = call.named["self"]
    for index in flat(call.named["indices"]):
        if index.device not in (own.device, CPU):
            raise refuse(f"indices should be either on cpu or on the same device as the indexed tensor ({own.device})")
    return index_of(own)


def _index_put(call: Call) -> int:
    own, value = call.named["self"], call.named["values"]
    if value.device != own.device and value.dim() > 0:
        summed = call.named.get("accumulate", False) or torch.are_deterministic_algorithms_enabled()
        if summed and own.device.type != "cpu":
            raise refuse(f"expected device {own.device} but got device {value.device} for value tensor")
        common = own.device if own.device != CPU else value.device
        raise refuse(placement.iterator_check(common, value.device if own.device != CPU else CPU))
    return index_of(own)


def _where(call: Call) -> int:
    """0-dim operands are copied to the device of the first operand that is not on the CPU."""
    tensors = list(flat([call.named[n] for n in ("condition", "self", "other")]))
    common = next((t for t in tensors if t.device.type != "cpu"), tensors[0])
    written = list(flat(call.named.get("out")))
    check_iterator([common, *written, *(t for t in tensors if t.dim() > 0)], 1 + len(written), scalars=False)
    return index_of(common)


def _masked_fill(call: Call) -> int:
    own, mask, value = call.named["self"], call.named["mask"], call.named["value"]
    if isinstance(value, torch.Tensor) and own.device.type == "cpu" and value.device.type != "cpu":
        raise refuse("masked_fill_: Expected inputs to be on same device")
    if mask.device != own.device:
        raise refuse(
            f"expected self and mask to be on the same device, but got mask on {mask.device} and self on {own.device}"
        )
    return index_of(own)


def _index_fill(call: Call) -> int:
    own = call.named["self"]
    check_iterator([own, call.named["index"]], 1, scalars=False)
    return index_of(own)


def _block_diag(call: Call) -> int:
    first = call.named["tensors"][0]
    for position, tensor in enumerate(call.named["tensors"]):
        if tensor.device != first.device:
            raise refuse(
                "torch.block_diag: input tensors must all be on the same device. "
                f"Input 0 is on device {first.device} and input {position} is on device {tensor.device}"
            )
    return call.index


def _ctc_loss(call: Call) -> int:
    """The lengths are read on the host, wherever they are."""
    wrapper, *names = placement.table().kernels["_ctc_loss"]
    same_device(wrapper, [(n, call.named.get(n)) for n in names])
    return index_of(call.named["log_probs"])


def _pack(call: Call) -> int:
    return index_of(call.named["input"])


def fused_step(call: Call) -> int:
    """Fused optimizers with a tensor as learning rate: that one may be on the CPU."""
    device = call.named["self"][0].device
    for name in ("grad_scale", "found_inf", "lr"):
        value = call.named.get(name)
        if isinstance(value, torch.Tensor) and value.device != device and not (name == "lr" and value.device == CPU):
            raise refuse(f"{name} must be on the same GPU device as the params")
    for value in call.named.values():
        if isinstance(value, (list, tuple)):
            check_iterator([*call.named["self"], *flat(value)], 1, scalars=False)
    return call.index


def _in_order(*names: str) -> Callable[[Call], int]:
    """Operands on any device; the result is where the first of `names` is."""

    def rule(call: Call) -> int:
        return index_of(next(flat([call.named.get(n) for n in names])))

    return rule


_ANYWHERE = """
_copy_from _copy_from_and_resize _has_same_storage_numel _pad_packed_sequence _pin_memory _to_copy
bernoulli_ copy_ is_same_size is_set_to lift_fresh new_empty_strided resize_as_ set_ set_data
""".split()

RULES: Mapping[str, Rule] = {
    **{f"aten::{name}": _anywhere for name in _ANYWHERE},
    **{f"aten::{name}": _index for name in ("index", "_unsafe_index")},
    **{
        f"aten::{name}": _index_put
        for name in ("index_put", "index_put_", "_index_put_impl", "_index_put_impl_", "_unsafe_index_put")
    },
    **{f"aten::{name}": _masked_fill for name in ("masked_fill", "masked_fill_")},
    **{f"aten::{name}": _index_fill for name in ("index_fill", "index_fill_")},
    **{f"aten::{name}": _in_order("self") for name in ("fill", "fill_")},
    **{f"aten::{name}": convolution for name in ("convolution", "_convolution", "convolution_overrideable")},
    **{f"aten::{name}": batch_norm for name in ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")},
    "aten::where": _where,
    "aten::block_diag": _block_diag,
    "aten::_ctc_loss": _ctc_loss,
    "aten::_pack_padded_sequence": _pack,
    "aten::_pack_padded_sequence_backward": _in_order("grad"),
}  # fmt: skip

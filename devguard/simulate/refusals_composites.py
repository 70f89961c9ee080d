"""Checks that PyTorch's C++ makes in functions composed of ops, before any op: there it would name the hidden device.

They are registered above the hidden device's autograd key, say what CUDA says, and then run the function as it is. In
inference mode such a function reaches `dispatch` whole, which asks `before` for the same check.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._C import DispatchKey

from devguard.knowledge import placement
from devguard.simulate.composites import ABOVE
from devguard.simulate.devices import DeviceType
from devguard.simulate.patches import Patches
from devguard.simulate.refusals import flat, refuse, same_device
from devguard.simulate.tensor import SimTensor

Named = Mapping[str, Any]
Check = Callable[[Named], None]


def _type_of(tensors: Iterable[torch.Tensor]) -> list[str]:
    return [t.device.type for t in tensors]


def _inner(named: Named) -> None:
    own, other = _type_of((named["self"], named["other"]))
    if own != other:
        raise refuse(
            f"Expected tensor to have {own} DeviceType, but got tensor with {other} DeviceType "
            "(while checking arguments for inner())"
        )


def _take_along(named: Named) -> None:
    own, other = named["self"].device, named["indices"].device
    if own != other:
        raise refuse(
            f"Expected tensor to have {own} Device, but got tensor with {other} Device "
            "(while checking arguments for torch.take_along_dim():)"
        )


def _tensor_split(named: Named) -> None:
    where = named["tensor_indices_or_sections"].device
    if where.type != "cpu":
        raise refuse(f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {where}")


def _weight_norm(named: Named) -> None:
    v, g = named["v"].device, named["g"].device
    if v != g:
        raise refuse(
            f"weight_norm: expected v_in and g_in to be on the same device, but v_in is on {v} and g_in is on {g}"
        )


def _window(name: str) -> Check:
    def check(named: Named) -> None:
        window = named.get("window")
        if window is not None and window.device != named["self"].device:
            raise refuse(
                f"{name} input and window must be on the same device but got self on {named['self'].device} "
                f"and window on {window.device}"
            )

    return check


def _gradient(named: Named) -> None:
    own = named["self"].device
    for spacing in flat(named["spacing"]):
        if spacing.device != own:
            raise refuse(
                f"torch.gradient expected each tensor to be on the same device, but got devices {own} and {spacing.device}!"
            )


def _multi_dot(named: Named) -> None:
    first, *others = flat(named["tensors"] if "tensors" in named else named["matrices"])
    for position, tensor in enumerate(others, 1):
        if tensor.device != first.device:
            raise refuse(
                f"multi_dot(): all tensors must be on the same device but tensor 0 is on {first.device} "
                f"and tensor {position} on {tensor.device}"
            )


def _attention(named: Named) -> None:
    query, key, value = (named[n].device for n in ("query", "key", "value"))
    if not query.type == key.type == value.type:
        raise refuse(
            f"Expected query, key, and value to have the same device type, but got query.device: {query} "
            f"key.device: {key} and value.device: {value} instead."
        )


def _rnn(named: Named) -> None:
    image = named["input"] if "input" in named else named["data"]
    for name, argument in (("hidden", "hx"), ("parameter", "params")):
        for tensor in flat(named[argument]):
            if tensor.device != image.device:
                raise refuse(
                    f"Input and {name} tensors are not at the same device, found input tensor at {image.device} "
                    f"and {name} tensor at {tensor.device}"
                )


def _cell(named: Named) -> None:
    """CUDA multiplies input and state with their weights, and adds the biases in a fused kernel."""
    state = next(flat(named["hx"]))
    pairs = ((named["input"], named["w_ih"]), (state, named["w_hh"]))
    for tensor, weight in pairs:
        _kernel("mm", self=tensor, mat2=weight)
    names = ("input_gates", "hidden_gates", "hx", "input_bias", "hidden_bias")
    values = (named["input"], state, state, named.get("b_ih"), named.get("b_hh"))
    _kernel("_thnn_fused_gru_cell", **dict(zip(names, values, strict=True)))


def _plain_cell(named: Named) -> None:
    for tensor, weight, bias in (("input", "w_ih", "b_ih"), ("hx", "w_hh", "b_hh")):
        given = named.get(bias)
        if given is None:
            _kernel("mm", self=named[tensor], mat2=named[weight])
        else:
            _kernel("addmm", self=given, mat1=named[tensor], mat2=named[weight])


def _rms_norm(named: Named) -> None:
    _kernel("_fused_rms_norm", input=named["input"], weight=named.get("weight"))


def _pad_packed(named: Named) -> None:
    check_lengths(named["batch_sizes"])


def _pack_padded(named: Named) -> None:
    check_lengths(named["lengths"])


def check_lengths(lengths: Any) -> None:
    """Packed sequences keep their lengths on the CPU."""
    if isinstance(lengths, torch.Tensor) and lengths.device.type != "cpu":
        kind = lengths.type().rpartition(".")[2].removesuffix("Tensor")
        raise refuse(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} {kind} tensor"
        )


def _kernel(name: str, **values: Any) -> None:
    row = placement.table().kernels.get(name)
    if row is not None:
        same_device(row[0], [(argument, values.get(argument)) for argument in row[1:]])


CHECKS: Mapping[str, Check] = {
    "inner": _inner,
    "take_along_dim": _take_along,
    "_weight_norm": _weight_norm,
    "tensor_split.tensor_indices_or_sections": _tensor_split,
    "stft.center": _window("stft"),
    "stft": _window("stft"),
    "istft": _window("istft"),
    "gradient.tensorarray": _gradient,
    "gradient.tensorarrayint": _gradient,
    "linalg_multi_dot": _multi_dot,
    "chain_matmul": _multi_dot,
    "scaled_dot_product_attention": _attention,
    **{f"{kind}.{form}": _rnn for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data")},
    "lstm_cell": _cell,
    "gru_cell": _cell,
    "rnn_tanh_cell": _plain_cell,
    "rnn_relu_cell": _plain_cell,
    "rms_norm": _rms_norm,
    "_pad_packed_sequence": _pad_packed,
    "_pack_padded_sequence": _pack_padded,  # an op, checked by `dispatch`
}  # fmt: skip


def overload(name: str) -> Any:
    """The overload called `name` in native_functions.yaml, None where this PyTorch has none."""
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), which or "default", None)


def named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    names = [a.name for a in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def install(kind: DeviceType, patches: Patches) -> None:
    """Register the checks; `patches` gives them back."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_restore(library._destroy)
    key = f"Autograd{kind.hidden_key}"
    kernels = dict(ABOVE) | {name: _checked(name, check) for name, check in CHECKS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kernel in kernels.items():
            func = overload(name)
            if func is not None and func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd):
                library.impl(name, kernel, key)
    _host_only(patches)


def _host_only(patches: Patches) -> None:
    """Methods that run a Python function on every element: on the CPU only."""
    for name in ("map_", "map2_"):
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def method(self: torch.Tensor, *args: Any, _original: Any = original, _name: str = name) -> Any:
            if any(isinstance(t, SimTensor) for t in (self, *args)):
                raise TypeError(f"{_name} is only implemented on CPU tensors")
            return _original(self, *args)

        patches.set(torch.Tensor, name, method)


def _checked(name: str, check: Check) -> Callable[..., Any]:
    func = overload(name)
    above = ABOVE.get(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        check(named(func, args, kwargs))
        if above is not None:
            return above(*args, **kwargs)
        return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    return kernel

"""What there is to know about one op before running it on simulated tensors, read from its schema once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload

from devguard.knowledge import syncs
from devguard.simulate import refusals, state, transfers
from devguard.simulate.composites import ABOVE, BELOW, GENERATED

# Results that are on the CPU on CUDA too: op name -> positions in the result.
_HOST_RESULTS: Mapping[str, frozenset[int]] = {
    "aten::_pack_padded_sequence": frozenset({1}),
    "aten::_nested_tensor_size": frozenset({0}),
    "aten::_nested_tensor_strides": frozenset({0}),
    "aten::_nested_tensor_storage_offsets": frozenset({0}),
}
# Ops that may change sizes, strides or offset of an argument although no tag says so.
_RESHAPING = frozenset({"aten::resize_", "aten::resize_as_", "aten::set_", "aten::as_strided_", "aten::set_data"})


class Plan:
    """What there is to know about one overload."""

    __slots__ = (
        "above", "aliases", "always", "autocast", "call", "composite", "copies", "device_at", "func", "generator",
        "host_results", "name", "own_kernel", "reshapes", "returned", "returns_args", "rule", "seeded", "special",
        "waits", "written",
    )  # fmt: skip

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        arguments = schema.arguments
        self.func = func
        self.call: Callable[..., Any] = BELOW.get(schema.name, func._op)
        self.name = schema.name
        names = [a.name for a in arguments]
        written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        self.written = tuple((names.index(n), n) for n in written)
        self.returns_args = _returned_arguments(schema)
        self.returned = self.returns_args[0] if self.returns_args is not None and len(self.returns_args) == 1 else None
        self.aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.device_at = names.index("device") if "device" in names else -1
        self.generator = "generator" in names or schema.name in GENERATED
        self.seeded = torch.Tag.nondeterministic_seeded in func.tags and not self.generator
        out = bool(written) and any(a.is_out for a in arguments)
        self.reshapes = bool(written) and (out or torch.Tag.inplace_view in func.tags or self.name in _RESHAPING)
        self.host_results = _HOST_RESULTS.get(self.name)
        self.rule: refusals.Rule | None = None  # for operands on several devices: found when it is first needed
        self.always = refusals.always(func)
        self.own_kernel = _own_kernel(func)
        self.above = ABOVE.get(refusals.name_in_table(func))
        key = DispatchKey.CompositeImplicitAutograd
        self.composite = func.has_kernel_for_dispatch_key(key) and not func.has_kernel_for_dispatch_key(DispatchKey.CPU)
        # The CPU's autocast must not reach the data of another device.
        self.autocast = func.has_kernel_for_dispatch_key(DispatchKey.AutocastCPU)
        self.copies = transfers.COPIES.get(schema.name)
        self.waits = bool(syncs.entries_of(func))  # for the device: then copies on their way to the host may arrive
        self.special = bool(
            self.always or self.own_kernel or self.composite or self.autocast or self.copies or self.waits
        )


# Namespaces of PyTorch's own ops, which run on the CPU's data. An op of anybody else may be Python that looks at devices.
_TORCH = frozenset({"aten", "prim", "prims", "c10d", "c10d_functional", "_c10d_functional", "quantized", "profiler",
                    "_c10d_functional_autograd", "torchvision", "torchaudio", "fbgemm", "mkldnn", "onednn"})  # fmt: skip


# Ops of PyTorch's namespaces that are Python all the same.
_IN_PYTHON = frozenset({"_c10d_functional::_wrap_tensor_autograd"})


def _own_kernel(func: OpOverload) -> DispatchKeySet | None:
    """The kernel of a user's op that must get the simulated tensors themselves: the one for the device, or for any."""
    if func.namespace in _TORCH and func._schema.name not in _IN_PYTHON:
        return None
    for key in (state.current().devices.kind.key, "CompositeExplicitAutograd"):
        if func.has_kernel_for_dispatch_key(getattr(DispatchKey, key)):
            return DispatchKeySet(getattr(DispatchKey, key))
    return None


def _returned_arguments(schema: Any) -> tuple[tuple[int, str] | None, ...] | None:
    """For each result the argument it is (in-place and out= ops), None for a new tensor; None if all are new."""
    found: list[tuple[int, str] | None] = []
    for result in schema.returns:
        at: tuple[int, str] | None = None
        if result.alias_info is not None and result.alias_info.is_write:
            for i, a in enumerate(schema.arguments):
                if a.alias_info is not None and a.alias_info.before_set == result.alias_info.before_set:
                    at = (i, a.name)
                    break
        found.append(at)
    return tuple(found) if any(f is not None for f in found) else None


_plans: dict[int, Plan] = {}  # by the identity of the overload, which is quicker than its own hash


def plan_of(func: OpOverload) -> Plan:
    """The plan of an overload. Raises NotImplementedError for one that has no kernel on the simulated device."""
    plan = _plans.get(id(func))
    if plan is None or plan.func is not func:
        refusals.missing_kernel(func)
        plan = _plans[id(func)] = Plan(func)
    return plan

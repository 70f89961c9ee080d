"""Run an op on simulated tensors: on the CPU tensors that hold their data, and wrap what comes out.

What an overload does to its arguments is read from its schema once and kept as a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload

from devguard.simulate import kernels, refusals, state
from devguard.simulate.composites import ABOVE, BELOW
from devguard.simulate.random import SimGenerator
from devguard.simulate.tensor import SimTensor, sync_metadata, wrap

_PLAIN, _SIMULATED, _OTHER, _LIST, _SUBCLASS = range(5)


class _Kinds(dict[type, int]):
    """What the hot path must do with a value of some class, worked out once per class."""

    def __missing__(self, cls: type) -> int:
        if issubclass(cls, SimTensor):
            kind = _SIMULATED
        elif issubclass(cls, torch.Tensor):
            kind = _PLAIN
        elif issubclass(cls, (list, tuple)):
            kind = _LIST
        else:
            kind = _OTHER
        self[cls] = kind
        return kind


_kinds = _Kinds()

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
        "above", "aliases", "always", "call", "composite", "device_at", "func", "generator", "host_results", "name", "own_kernel", "reshapes",
        "returns_args", "rule", "seeded", "single", "written",
    )  # fmt: skip

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        arguments = schema.arguments
        self.func = func
        self.call: Callable[..., Any] = BELOW.get(schema.name, func)
        self.name = schema.name
        names = [a.name for a in arguments]
        written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        self.written = tuple((names.index(n), n) for n in written)
        self.returns_args = _returned_arguments(schema)
        self.single = len(schema.returns) == 1
        self.aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.device_at = names.index("device") if "device" in names else -1
        self.generator = "generator" in names
        self.seeded = torch.Tag.nondeterministic_seeded in func.tags and not self.generator
        out = bool(written) and any(a.is_out for a in arguments)
        self.reshapes = bool(written) and (out or torch.Tag.inplace_view in func.tags or self.name in _RESHAPING)
        self.host_results = _HOST_RESULTS.get(self.name)
        self.rule: refusals.Rule | None = None  # for operands on several devices: found when it is first needed
        self.always = refusals.always(func)
        self.own_kernel = _own_kernel(func)
        self.above = ABOVE.get(refusals.name_in_table(func))
        key = DispatchKey.CompositeImplicitAutograd
        self.composite = func.has_kernel_for_dispatch_key(key) and not func.has_kernel_for_dispatch_key("CPU")


# Namespaces of PyTorch's own ops, which run on the CPU's data. An op of anybody else may be Python that looks at devices.
_TORCH = frozenset({"aten", "prim", "prims", "c10d", "c10d_functional", "_c10d_functional", "quantized", "profiler",
                    "_c10d_functional_autograd", "torchvision", "torchaudio", "fbgemm", "mkldnn", "onednn"})  # fmt: skip


def _own_kernel(func: OpOverload) -> DispatchKeySet | None:
    """The kernel of a user's op that must get the simulated tensors themselves: the one for the device, or for any."""
    if func.namespace in _TORCH:
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


_plans: dict[OpOverload, Plan] = {}


class _Unwrap:
    """Collects the CPU tensors behind a list of arguments and what devices were met."""

    __slots__ = ("index", "mixed", "plain")

    def __init__(self) -> None:
        self.index = -1
        self.plain = self.mixed = False

    def sequence(self, values: Sequence[Any]) -> Sequence[Any]:
        taken = []
        for value in values:
            kind = _kinds[value.__class__]
            if kind == _SIMULATED:
                if self.index != value._index:
                    if self.index >= 0:
                        self.mixed = True
                    else:
                        self.index = value._index
                value = value._host
            elif kind == _PLAIN:
                self.plain = True
            elif kind == _LIST:
                value = self.sequence(value)
            taken.append(value)
        return taken if type(values) is not tuple else tuple(taken)


def dispatch(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """`__torch_dispatch__` of simulated tensors, and the kernel of every factory on a simulated device."""
    plan = _plans.get(func)
    if plan is None:
        if func is _LAYOUT:
            return args[0]._host.layout
        if not isinstance(func, OpOverload):
            return func(*args, **(kwargs or {}))
        refusals.missing_kernel(func)
        plan = _plans[func] = Plan(func)
    if plan.always is not None:
        plan.always(args, kwargs or {})
    if plan.own_kernel is not None:
        return func.redispatch(plan.own_kernel, *args, **(kwargs or {}))
    if plan.composite:
        # Reached whole only in inference mode: its parts are what CUDA would run and check.
        if plan.above is not None:
            return plan.above(*args, **(kwargs or {}))
        result = func.decompose(*args, **(kwargs or {}))
        if result is not NotImplemented:
            return result
    # The loop of _Unwrap.sequence, written out: this is the hot path.
    index, uneven = -1, False
    hosts: list[Any] = []
    for value in args:
        kind = _kinds[value.__class__]
        if kind == _SIMULATED:
            if index != value._index:
                if index >= 0:
                    uneven = True
                else:
                    index = value._index
            value = value._host
        elif kind == _PLAIN:
            uneven = True
        elif kind == _LIST:
            inner = _Unwrap()
            value = inner.sequence(value)
            if inner.index >= 0:
                if index >= 0 and inner.index != index:
                    uneven = True
                elif index < 0:
                    index = inner.index
            uneven = uneven or inner.plain or inner.mixed
        hosts.append(value)
    host_kwargs: dict[str, Any] = {}
    if kwargs:
        inner = _Unwrap()
        for name, value in kwargs.items():
            kind = _kinds[value.__class__]
            if kind != _OTHER:
                (value,) = inner.sequence((value,))
            host_kwargs[name] = value
        if inner.index >= 0:
            uneven = uneven or (index >= 0 and inner.index != index) or inner.mixed
            index = inner.index if index < 0 else index
        uneven = uneven or inner.plain
    if uneven:
        verdict = refusals.settle(plan, args, kwargs or {}, index)
        if isinstance(verdict, refusals.Parts):
            return verdict.result
        index = verdict
    if plan.device_at >= 0:
        index = _target(plan, hosts, host_kwargs, index)
    if (plan.generator or plan.seeded) and index >= 0:
        result = _run_random(plan, hosts, host_kwargs, index)
    else:
        try:
            result = plan.call(*hosts, **host_kwargs)
        except RuntimeError as problem:
            result = kernels.substitute(func, hosts, host_kwargs, problem)
            if result is NotImplemented:
                raise
    if plan.reshapes:
        _sync_written(plan, args, kwargs)
    if plan.returns_args is not None:
        return _with_arguments(plan, result, args, kwargs, index)
    if index < 0:
        return result
    if result.__class__ is torch.Tensor and plan.host_results is None:
        if plan.aliases:
            for value in args:
                if value.__class__ is not torch.Tensor and isinstance(value, SimTensor) and value._host is result:
                    return value
        return wrap(result, index)
    return _wrap_results(plan, result, index)


SimTensor.__torch_dispatch__ = staticmethod(dispatch)  # type: ignore[method-assign,assignment]


def _target(plan: Plan, hosts: list[Any], host_kwargs: dict[str, Any], index: int) -> int:
    """Index of the device the op's device argument asks for (-1: none of ours), with that argument set for the CPU run."""
    at = plan.device_at
    if "device" in host_kwargs:
        asked = host_kwargs["device"]
    else:
        asked = hosts[at] if at < len(hosts) else None
    if asked is None:
        return index
    found = state.current().devices.resolve(asked)
    if found is not None:
        if "device" in host_kwargs:
            host_kwargs["device"] = _CPU
        else:
            hosts[at] = _CPU
    if host_kwargs.get("pin_memory"):
        host_kwargs["pin_memory"] = False
    return -1 if found is None else found


_CPU = torch.device("cpu")
_LAYOUT = torch.ops.prim.layout.default


def _run_random(plan: Plan, hosts: list[Any], host_kwargs: dict[str, Any], index: int) -> Any:
    """Run a random op with the device's own generator."""
    generators = state.current().generators
    if plan.generator:
        given = host_kwargs.get("generator")
        if given is None:
            host_kwargs["generator"] = generators[index]
        else:
            refusals.check_generator(SimGenerator.known(given), generators[index].device.type)
        return plan.call(*hosts, **host_kwargs)
    host = torch.default_generator
    before = host.get_state()
    host.set_state(generators[index].get_state())
    try:
        return plan.call(*hosts, **host_kwargs)
    finally:
        generators[index].set_state(host.get_state())
        host.set_state(before)


def _argument(at: tuple[int, str], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    position, name = at
    return args[position] if position < len(args) else (kwargs or {}).get(name)


def _sync_written(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    for at in plan.written:
        written = _argument(at, args, kwargs)
        for tensor in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(tensor, SimTensor):
                host = tensor._host
                if tensor.shape != host.shape or tensor.stride() != host.stride() \
                        or tensor.storage_offset() != host.storage_offset():  # fmt: skip
                    sync_metadata(tensor)


def _with_arguments(plan: Plan, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, index: int) -> Any:
    """The result of an in-place or out= op: the arguments it wrote, as the objects that came in."""
    assert plan.returns_args is not None
    if plan.single:
        assert plan.returns_args[0] is not None
        return _argument(plan.returns_args[0], args, kwargs)
    return tuple(
        (wrap(r, index) if index >= 0 and isinstance(r, torch.Tensor) else r)
        if at is None
        else _argument(at, args, kwargs)
        for at, r in zip(plan.returns_args, result)
    )


def _wrap_results(plan: Plan, result: Any, index: int) -> Any:
    host = plan.host_results or ()
    if isinstance(result, torch.Tensor):
        return result if 0 in host else wrap(result, index)
    if isinstance(result, (list, tuple)):
        return type(result)(
            r if i in host else wrap(r, index) if isinstance(r, torch.Tensor)
            else [wrap(x, index) if isinstance(x, torch.Tensor) else x for x in r] if isinstance(r, list) else r
            for i, r in enumerate(result)
        )  # fmt: skip
    return result


def kernel_of(func: OpOverload) -> Callable[..., Any]:
    """`func` as a kernel that can be registered at a dispatch key."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return dispatch(func, (), args, kwargs)

    return kernel

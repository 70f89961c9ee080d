"""Run an op on simulated tensors: on the CPU tensors that hold their data, and wrap what comes out.

What an overload does to its arguments is read from its schema once and kept as a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch._ops import OpOverload

from devguard.simulate import kernels, refusals, state, transfers
from devguard.simulate.plan import Plan, _plans, plan_of
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


class _Unwrap:
    """Collects the CPU tensors behind a list of arguments and what devices were met."""

    __slots__ = ("index", "mixed", "plain")

    def __init__(self, index: int) -> None:
        self.index = index
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

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        taken = dict(values)
        for name, value in values.items():
            if _kinds[value.__class__] != _OTHER:
                (taken[name],) = self.sequence((value,))
        return taken


def dispatch(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """`__torch_dispatch__` of simulated tensors, and the kernel of every factory on a simulated device."""
    plan = _plans.get(id(func))
    if len(types) > 1 and not all(issubclass(t, SimTensor) for t in types):
        return NotImplemented  # for another tensor subclass, which holds simulated tensors
    if plan is None or plan.func is not func:
        if func is _LAYOUT:  # asked by C++ where it can't take an exception
            return args[0]._host.layout
        if not isinstance(func, OpOverload):
            return func(*args, **(kwargs or {}))
        plan = plan_of(func)
    if plan.special:
        result = _special(plan, args, kwargs)
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
            inner = _Unwrap(index)
            value = inner.sequence(value)
            index, uneven = inner.index, uneven or inner.plain or inner.mixed
        hosts.append(value)
    if kwargs:
        inner = _Unwrap(index)
        host_kwargs = inner.mapping(kwargs)
        index, uneven = inner.index, uneven or inner.plain or inner.mixed
    else:
        host_kwargs = {}
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
    if plan.aliases:
        return _views(plan, args, result, index)
    return wrap(result, index) if result.__class__ is _Tensor else _wrap_results(plan, result, index)


def _views(plan: Plan, args: Sequence[Any], result: Any, index: int) -> Any:
    """Views as new wrappers, or the argument that the op returned as it is."""
    base: Any = args[0] if args else None
    if _kinds[base.__class__] == _SIMULATED:
        if base._host is result:
            return base
        if torch.is_inference_mode_enabled() and not base.is_inference():
            with torch.inference_mode(False):  # a view of an ordinary tensor is an ordinary tensor
                return _wrap_results(plan, result, index)
    return _wrap_results(plan, result, index)


def _special(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    """What must come before the ordinary way of an op; NotImplemented where that way is to be taken."""
    if plan.always is not None:
        plan.always(args, kwargs or {})
    if plan.copies is not None:
        return plan.copies(*args, **(kwargs or {}))
    if plan.waits:
        transfers.before_wait(plan.func, args, kwargs or {})
    if plan.own_kernel is not None:
        return plan.func.redispatch(plan.own_kernel, *args, **(kwargs or {}))
    if plan.composite:
        # Reached whole only in inference mode: its parts are what CUDA would run and check.
        if plan.above is not None:
            return plan.above(*args, **(kwargs or {}))
        return plan.func.decompose(*args, **(kwargs or {}))
    if plan.autocast and not _excluded(DispatchKey.AutocastCPU):
        with torch._C._ExcludeDispatchKeyGuard(_CPU_AUTOCAST):
            return dispatch(plan.func, (), args, kwargs)
    return NotImplemented


_Tensor = torch.Tensor
_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_CPU_AUTOCAST = DispatchKeySet(DispatchKey.AutocastCPU)

SimTensor.__torch_dispatch__ = staticmethod(dispatch)


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
    if plan.returned is not None:
        return _argument(plan.returned, args, kwargs)
    assert plan.returns_args is not None
    return tuple(
        (wrap(r, index) if index >= 0 and isinstance(r, torch.Tensor) else r)
        if at is None
        else _argument(at, args, kwargs)
        for at, r in zip(plan.returns_args, result, strict=True)
    )


def _wrap_results(plan: Plan, result: Any, index: int) -> Any:
    host = plan.host_results or ()
    if result.__class__ is _Tensor:
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
        return SimTensor.__torch_dispatch__(func, (), args, kwargs)  # which others may look into (intercept.py)

    return kernel

"""What CUDA refuses, in its words: operands on several devices, and arguments on a device of the wrong kind.

An op whose operands are all on one device never comes here (see `Plan.checked` for the few that are looked at always).
Most CUDA kernels start with a generated check of exact equality (knowledge/placement.py); element-wise kernels let one
0-dim CPU operand through; an op that is made of other ops has no check of its own: its parts run on the simulated tensors
and each is judged; and some ops have rules of their own (refusals_ops.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DispatchKey

from devguard.knowledge import placement
from devguard.simulate import scalars, state
from devguard.simulate.devices import driver_error
from devguard.simulate.tensor import SimTensor

if TYPE_CHECKING:
    from devguard.simulate.plan import Plan

CPU = torch.device("cpu")
_PARTS = (DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeExplicitAutogradNonFunctional)


class Call:
    """One call of an op whose operands sit on several devices."""

    __slots__ = ("_args", "_kwargs", "_values", "args", "index", "kwargs", "plan")

    def __init__(self, plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], index: int) -> None:
        self.plan, self.args, self.kwargs, self.index = plan, args, kwargs, index
        self._values: dict[str, Any] | None = None

    @property
    def named(self) -> dict[str, Any]:
        """Argument name -> value, in the order of the schema, without those left at their default."""
        if self._values is None:
            names = [a.name for a in self.plan.func._schema.arguments]
            self._values = dict(zip(names, self.args, strict=False))
            self._values.update((n, self.kwargs[n]) for n in names if n in self.kwargs)
        return self._values

    def tensors(self) -> list[torch.Tensor]:
        """All operands in the order of the schema, results to be written (`out=`, self) first, as TensorIterator has them."""
        written = {name for _, name in self.plan.written}
        first = [t for name in written if name in self.named for t in flat(self.named[name])]
        return first + [t for name, value in self.named.items() if name not in written for t in flat(value)]


class Parts:
    """The result of an op that has run as its parts."""

    __slots__ = ("result",)

    def __init__(self, result: Any) -> None:
        self.result = result


Rule = Callable[[Call], "int | Parts"]


def flat(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from flat(entry)


def refuse(text: str) -> RuntimeError:
    """The exception for a refusal in CUDA's words."""
    return RuntimeError(text)


def index_of(tensor: torch.Tensor) -> int:
    """Number of the simulated device of a tensor; -1 for one on the CPU."""
    return tensor._index if isinstance(tensor, SimTensor) else -1


def settle(plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], index: int) -> int | Parts:
    """The device an op with operands on several devices runs on (-1: the CPU), or its result where it ran as its parts.

    `index` is the first simulated device met. Raises what CUDA raises where it refuses the operands.
    """
    if plan.rule is None:
        plan.rule = _rule_for(plan)
    call = Call(plan, args, kwargs, index)
    verdict = plan.rule(call)
    if torch.is_grad_enabled():
        scalars.bring_gradients_home(call.tensors())
    return verdict


Check = Callable[[Sequence[Any], Mapping[str, Any]], None]


def always(func: Any) -> Check | None:
    """What must be looked at in every call of `func` on simulated tensors, or None."""
    from devguard.simulate import refusals_composites as composites

    check = composites.CHECKS.get(name_in_table(func)) if func.namespace == "aten" else None
    if check is None:
        return None
    return lambda args, kwargs: check(composites.named(func, args, kwargs))


def name_in_table(func: Any) -> str:
    base = str(func._schema.name.partition("::")[2])
    return base if func._overloadname == "default" else f"{base}.{func._overloadname}"


def in_forked_child(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises what PyTorch or the driver says in a child that was forked after its parent had used a device."""
    if not any(isinstance(t, SimTensor) for t in flat(list(args))):
        torch.cuda._lazy_init()
    raise driver_error("initialization error")


def check_generator(generator: torch.Generator, wanted: str) -> None:
    """Raises what PyTorch raises where a random op on a device of type `wanted` is given another device's generator."""
    if generator.device.type != wanted:
        raise refuse(f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'")


# Ops without a CUDA kernel that a simulated tensor reaches only because C++ takes another path for it than for CUDA.
_INTERNAL = frozenset({
    "_functional_assert_async.msg", "_make_dep_token", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "narrow_copy.out", "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized", "from_file", "to_mkldnn",
})  # fmt: skip


# Kernels of the sparse CPU backend alone. (They decide by their operands' graph, which data without one must not reach.)
_SPARSE_CPU_ONLY = frozenset({"_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward"})


def missing_kernel(func: Any) -> None:
    """Raises NotImplementedError, as PyTorch does, for an op that has a kernel for the CPU and none for CUDA."""
    name = name_in_table(func)
    missing = name in placement.table().cpu_only or name in _SPARSE_CPU_ONLY
    if func.namespace == "aten" and missing and name not in _INTERNAL:
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because the operator "
            "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
            "build). If you are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes "
            f"for possible resolutions. 'aten::{name}' is only available for these backends: [CPU]."
        )


def _rule_for(plan: Plan) -> Rule:
    from devguard.simulate.refusals_ops import RULES, fused_step

    namespace, _, base = plan.name.partition("::")
    if plan.name in RULES:
        return RULES[plan.name]
    if namespace != "aten":
        return _first_of_any if namespace in ("c10d", "_c10d_functional") else iterator
    if plan.func._overloadname == "tensor_lr":
        return fused_step
    row = placement.table().kernels.get(name_in_table(plan.func))
    if row is None or base.startswith("_foreach_"):
        key = next((k for k in _PARTS if plan.func.has_kernel_for_dispatch_key(k)), None)
        return iterator if key is None else _in_parts(key)
    return _exact(row[0], row[1:]) if len(row) > 1 else iterator


def _first_of_any(call: Call) -> int:
    """Operands may be anywhere; results are where the first one is."""
    return next((index_of(t) for t in call.tensors()), call.index)


def _in_parts(key: DispatchKey) -> Rule:
    """No kernel of CUDA's own: run the ops it is made of."""

    def rule(call: Call) -> int | Parts:
        try:
            return Parts(call.plan.func._op_dk(key, *call.args, **call.kwargs))
        except RuntimeError as error:
            if f" {state.current().devices.kind.hidden}:" not in str(error):
                raise
            return iterator(call)  # made of no ops but of an iterator over its operands (ldexp in PyTorch 2.11)

    return rule


def _exact(wrapper: str, checked: Sequence[str]) -> Rule:
    def rule(call: Call) -> int:
        same_device(wrapper, [(name, call.named.get(name)) for name in checked])
        return call.index

    return rule


def same_device(wrapper: str, arguments: Sequence[tuple[str, Any]]) -> None:
    """The check that PyTorch generates for most CUDA kernels: the first tensor sets the device, no exceptions."""
    common: torch.device | None = None
    for name, value in arguments:
        for tensor in flat(value):
            if common is None:
                common = tensor.device
            elif tensor.device != common:
                raise refuse(placement.kernel_check(wrapper, name, tensor.device, common))


# Iterators that let no CPU scalar in.
_NO_SCALARS = frozenset({"aten::addcdiv", "aten::addcdiv_", "aten::binary_cross_entropy", "aten::binomial"})


def iterator(call: Call) -> int:
    """The check of element-wise kernels: one operand may be a 0-dim CPU tensor, a result that is written may not."""
    tensors = call.tensors()
    written = sum(1 for _, name in call.plan.written for _ in flat(call.named.get(name)))
    check_iterator(tensors, written, scalars=call.plan.name not in _NO_SCALARS)
    return call.index


def check_iterator(tensors: Sequence[torch.Tensor], written: int, *, scalars: bool = True) -> None:
    """TensorIterator's device check of `tensors`, of which the first `written` are results."""
    common = next((t.device for t in tensors if t.device.type != "cpu"), CPU)
    seen = 0
    for position, tensor in enumerate(tensors):
        if tensor.device == common:
            continue
        if scalars and position >= written and tensor.dim() == 0 and tensor.device.type == "cpu":
            seen += 1
            if seen > 1:
                raise refuse("Trying to pass too many CPU scalars to non-CPU kernel!")
        elif _broadcast(tensors):
            raise refuse(placement.iterator_check(common, tensor.device))
        else:
            return  # shapes are looked at first: the op itself says so


def _broadcast(tensors: Sequence[torch.Tensor]) -> bool:
    try:
        torch.broadcast_shapes(*(t.shape for t in tensors))
    except RuntimeError:
        return False
    return True

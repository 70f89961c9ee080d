"""What PyTorch's own test tables say a simulated device must compute: the same as the CPU, bit for bit.

Each `check_*` function runs one entry of one table on the CPU and on a simulated device and returns what differs.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

from devguard.simulate.tensor import SimTensor, wrap

# Where CUDA itself does otherwise than the CPU, in the words of its refusal or by the name of the entry.
REFUSED_BY_CUDA = ("cudnn RNN backward can only be called in training mode",)
OTHERWISE_ON_CUDA = ("linear_cross_entropy_chunked", "LinearCrossEntropyLoss")  # multiplies halves into float32
# Results without defined values.
NOT_ON_CUDA = {"sparse_mm_reduce"}  # although its table says so: the kernel is the CPU's alone
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing a simulated device does otherwise than the CPU."""

    entry: str
    what: str


def on_device(value: Any) -> Any:
    """`value` with every tensor in it put on cuda:0 as it is: same strides, same views of one storage not kept."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, SimTensor):
            made = wrap(_copied(leaf.detach()), 0)
            return made.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return "cuda:0"
        return leaf

    return tree_map(move, value)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.layout == torch.strided and not tensor.is_nested
    return copy.deepcopy(tensor) if plain else tensor.clone()


def on_cpu(value: Any) -> Any:
    """The CPU tensors behind every simulated tensor in `value`."""
    return tree_map(lambda leaf: leaf._host if isinstance(leaf, SimTensor) else leaf, value)


def differs(expected: Any, got: Any, values: bool = True) -> str | None:
    """What differs between a result of the CPU and one of the device; None if nothing does."""
    flat_expected, _ = tree_flatten(expected)
    flat_got, _ = tree_flatten(got)
    if len(flat_expected) != len(flat_got):
        return f"{len(flat_got)} results instead of {len(flat_expected)}"
    for a, b in zip(flat_expected, flat_got, strict=True):
        if not isinstance(a, torch.Tensor):
            if type(a) is not type(b) or (a != b and a == a and not isinstance(a, (torch.device, torch.Generator))):
                return f"{b!r} instead of {a!r}"
            continue
        if not isinstance(b, SimTensor):
            return f"a result is on {getattr(b, 'device', type(b))}"
        host = b._host
        if b.shape != host.shape or (b.layout == torch.strided and not b.is_nested and b.stride() != host.stride()):
            return f"says shape {tuple(b.shape)}, stride {b.stride()}, holds {tuple(host.shape)}, {host.stride()}"
        found = _differ(a.detach(), host.detach(), values)
        if found:
            return found
    return None


def _differ(a: torch.Tensor, b: torch.Tensor, values: bool) -> str | None:
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return f"{b.dtype} {tuple(b.shape)} {b.layout} instead of {a.dtype} {tuple(a.shape)} {a.layout}"
    if a.is_nested:
        return next(filter(None, (_differ(x, y, values) for x, y in zip(a.unbind(), b.unbind(), strict=True))), None)
    if a.layout == torch.strided and a.stride() != b.stride():
        return f"stride {b.stride()} instead of {a.stride()}"
    if not values:
        return None
    try:
        torch.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)
    except AssertionError as problem:
        return "other values: " + " ".join(str(problem).split())[:200]
    return None


def run(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The function's result, or the exception it raised, from a fixed seed."""
    torch.manual_seed(0)
    try:
        return function(), None
    except Exception as problem:
        return None, problem


def outcome(entry: str, on_the_cpu: tuple[Any, Exception | None], on_the_device: tuple[Any, Exception | None],
            values: bool = True) -> Difference | None:  # fmt: skip
    """The difference between two runs, if any. A call that both refuse is no difference."""
    (expected, refused), (got, failed) = on_the_cpu, on_the_device
    if refused is not None:
        return None if failed is not None else Difference(entry, f"accepts what the CPU refuses: {refused}"[:300])
    if failed is not None and str(failed) in REFUSED_BY_CUDA:
        return None
    if failed is not None:
        return Difference(entry, f"{type(failed).__name__}: {failed}"[:400])
    found = differs(expected, got, values and not any(name in entry for name in OTHERWISE_ON_CUDA))
    return Difference(entry, found) if found else None


def dtypes_of(op: Any) -> list[torch.dtype]:
    """float32, one integer and one half type, as far as the op has them on the CPU (else the first it has)."""
    has = op.supported_dtypes("cpu") & op.supported_dtypes("cuda")
    chosen = [next((d for d in wanted if d in has), None) for wanted in (
        (torch.float32,), (torch.int64, torch.int32, torch.uint8, torch.bool), (torch.bfloat16, torch.float16))]  # fmt: skip
    found = [d for d in chosen if d is not None]
    return found or sorted(has, key=str)[:1]


def entries() -> Iterator[tuple[str, Any, torch.dtype]]:
    """Every op of op_db with each of its dtypes."""
    for op in op_db:
        if op.formatted_name in NOT_ON_CUDA:
            continue
        for dtype in dtypes_of(op):
            yield f"{op.formatted_name}-{str(dtype).removeprefix('torch.')}", op, dtype


def check_op(entry: str, op: Any, dtype: torch.dtype, samples: int | None = None) -> Difference | None:
    """Forward, and where there is a gradient the gradient, of the first `samples` samples (None: all)."""
    grad = dtype.is_floating_point and op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    grad = grad and dtype in op.supported_backward_dtypes("cuda")
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
            if samples is not None and i >= samples:
                break
            inputs = (sample.input, sample.args, sample.kwargs)
            # tensor_split takes its indices from the CPU alone, there and here
            moved = (on_device(inputs[0]), *inputs[1:]) if op.name == "tensor_split" else on_device(inputs)
            values = op.name not in UNDEFINED
            cpu = run(lambda: _call(op, sample, inputs, grad and values))  # noqa: B023
            device = run(lambda: _call(op, sample, moved, grad and values))  # noqa: B023
            found = outcome(f"{entry}[{i}]", cpu, device, values)
            if found:
                return found
    return None


def _call(op: Any, sample: Any, inputs: Any, grad: bool) -> Any:
    first, args, kwargs = inputs
    result = op(first, *args, **kwargs)
    if not grad:
        return result
    outputs = [t for t in tree_flatten(sample.output_process_fn_grad(result))[0]
               if isinstance(t, torch.Tensor) and t.requires_grad]  # fmt: skip
    leaves = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not leaves:
        return result
    seeds = [torch.ones_like(t) for t in outputs]
    return result, torch.autograd.grad(outputs, leaves, seeds, allow_unused=True)


def module_entries() -> Iterator[tuple[str, Any, torch.dtype, bool]]:
    """Every module of module_db, in training and in evaluation."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (True, False) if info.train_and_eval_differ else (True,):
            yield f"{info.name}-{'train' if training else 'eval'}", info, torch.float32, training


def check_module(
    entry: str, info: Any, dtype: torch.dtype, training: bool, samples: int | None = None
) -> Difference | None:
    """Forward, and the gradients of parameters and inputs, of the first `samples` inputs of a module (None: all)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for i, given in enumerate(made[:samples]):
            if given.forward_input is None:
                continue
            results = []
            for device in ("cpu", "cuda"):
                results.append(run(lambda: _run_module(info, given, training, device)))  # noqa: B023
            found = outcome(f"{entry}[{i}]", results[0], results[1])
            if found:
                return found
    return None


def _run_module(info: Any, given: Any, training: bool, device: str) -> Any:
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    module = info.module_cls(*copy.deepcopy(args), **{k: v for k, v in kwargs.items() if k != "device"})
    module.train(training)
    inputs = (given.forward_input.args, given.forward_input.kwargs)
    if device == "cuda":
        module.cuda()
        inputs = on_device(inputs)
    else:
        inputs = tree_map(
            lambda t: t.detach().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, inputs
        )
    torch.manual_seed(3)
    result = module(*inputs[0], **inputs[1])
    outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    leaves = [t for t in (*module.parameters(), *tree_flatten(inputs)[0])
              if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf]  # fmt: skip
    if not outputs or not leaves:
        return result
    return result, torch.autograd.grad(outputs, leaves, [torch.ones_like(t) for t in outputs], allow_unused=True)


def optimizer_entries() -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """Every optimizer of optim_db with each of its configurations, foreach and not, fused where there is one."""
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        for config in info.optim_inputs_func(device="cpu"):
            kinds: list[dict[str, Any]] = [{}]
            kinds += [{"foreach": False, **({"fused": False} if "fused" in info.supported_impls else {})}]
            kinds += [{k: True} for k in ("foreach", "fused") if k in info.supported_impls]
            for flags in kinds:
                if flags.get("fused") and not {"cpu", "cuda"} <= {str(name) for name in info.supports_fused_on}:
                    continue
                name = ",".join(f"{k}={v}" for k, v in flags.items()) or "default"
                yield f"{info.optim_cls.__name__}-{config.desc}-{name}", info, config, flags


def check_optimizer(entry: str, info: Any, config: Any, flags: dict[str, Any]) -> Difference | None:
    """Parameters and state after three steps, on the CPU and on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # the implementation that CUDA takes where none is asked for
        many = "foreach" in info.supported_impls and info.optim_cls.__name__ != "Adafactor"
        chosen = flags or ({"foreach": True} if many else {})
        cpu = run(lambda: _run_optimizer(info, config, chosen, "cpu"))
        device = run(lambda: _run_optimizer(info, config, flags, "cuda"))
        return outcome(entry, cpu, device)


def _run_optimizer(info: Any, config: Any, flags: dict[str, Any], device: str) -> Any:
    torch.manual_seed(5)
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (4,), (2, 3, 2))]
    values = [torch.randn_like(p) for p in params]
    if info.optim_cls.__name__ == "Muon":
        params, values = params[:1], values[:1]
    if device == "cuda":
        params, values = on_device(params), on_device(values)
        params = [torch.nn.Parameter(p) for p in params]
    kwargs = {**copy.deepcopy(config.kwargs), **flags}
    optimizer = info.optim_cls(params, **kwargs)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((p - v) ** 2).sum() for p, v in zip(params, values, strict=True))
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    state = [
        v for p in params for _, v in sorted(optimizer.state[p].items()) if isinstance(v, torch.Tensor) and v.dim()
    ]
    return params, state

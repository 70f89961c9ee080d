"""The code that transparency is proven on: PyTorch's own op_db, module_db and optim_db. Nothing here is ours."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Entries whose own output differs between two plain runs of the same process: uninitialised memory.
NOT_REPEATABLE = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

Subject = tuple[str, Callable[[], Any]]


def _op(op: Any, sample: Any, backward: bool) -> Callable[[], Any]:
    def run() -> Any:
        arguments = copy.deepcopy((sample.args, sample.kwargs))
        first = torch.utils._pytree.tree_map_only(torch.Tensor, _fresh, sample.input)
        result = op(first, *arguments[0], **arguments[1])
        if not backward:
            return result
        outputs = [
            t
            for t in torch.utils._pytree.tree_leaves(result)
            if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_nested
        ]
        inputs = [t for t in torch.utils._pytree.tree_leaves(first) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs or not inputs:
            return result
        grads = torch.autograd.grad(outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True)
        return result, grads

    return run


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def op_subjects(every: int = 1, offset: int = 0, samples: int = 2) -> Iterator[Subject]:
    """(name, code) for every `every`-th entry of op_db, forward and backward."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db[offset::every]:
        if op.name in NOT_REPEATABLE or op.name.startswith("_refs"):
            continue
        dtypes = op.supported_dtypes("cpu")
        if not dtypes:
            continue
        dtype = torch.float32 if torch.float32 in dtypes else sorted(dtypes, key=str)[0]
        backward = op.supports_autograd and dtype.is_floating_point
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=backward)):
                if index >= samples:
                    break
                yield f"{op.name}.{op.variant_test_name} sample {index}", _op(op, sample, backward)


def error_subjects(every: int = 1, samples: int = 8) -> Iterator[Subject]:
    """(name, code) for what `every`-th entries of op_db that know wrong inputs refuse: the exception must be the same."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in [op for op in op_db if op.error_inputs_func is not None][::every]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            for index, wrong in enumerate(op.error_inputs("cpu")):
                if index >= samples:
                    break
                yield f"{op.name}.{op.variant_test_name} error {index}", _op(op, wrong.sample_input, backward=False)


def _module(info: Any, case: Any) -> Callable[[], Any]:
    def run() -> Any:
        torch.manual_seed(1)
        made = case.constructor_input
        module = info.module_cls(*copy.deepcopy(made.args), **copy.deepcopy(made.kwargs))
        call = case.forward_input
        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        result = module(*args, **kwargs)
        outputs = [
            t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        if outputs:
            sum(t.abs().sum() if t.is_complex() else t.sum() for t in outputs).backward()
        return result, [p.grad for p in module.parameters()]

    return run


def module_subjects(every: int = 1, samples: int = 1) -> Iterator[Subject]:
    """(name, code) for every `every`-th module of module_db: construction, forward, backward."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db[::every]:
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
        for index, case in enumerate(inputs):
            if index >= samples:
                break
            if case.forward_input is not None:
                yield f"{info.name} case {index}", _module(info, case)


def _optimizer(info: Any, config: Any) -> Callable[[], Any]:
    def run() -> Any:
        torch.manual_seed(2)
        model = torch.nn.Linear(3, 2)
        optimizer = info.optim_cls(model.parameters(), **copy.deepcopy(config.kwargs))
        for _ in range(3):

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(torch.ones(4, 3)).square().mean()
                loss.backward()
                return loss

            closure()
            optimizer.step(closure if info.step_requires_closure else None)
        return list(model.parameters()), [value for state in optimizer.state.values() for value in state.values()]

    return run


def optimizer_subjects(every: int = 1) -> Iterator[Subject]:
    """(name, code) for every `every`-th configuration of optim_db: three steps, parameters and states."""
    from torch.testing._internal.common_optimizers import optim_db

    flat = [(info, config) for info in optim_db for config in info.optim_inputs_func(device="cpu")]
    for info, config in flat[::every]:
        if info.optim_cls.__name__ != "SparseAdam":
            yield f"{info.optim_cls.__name__} {config.desc}", _optimizer(info, config)

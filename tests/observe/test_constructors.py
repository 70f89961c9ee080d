"""Tensors of a program's own class can be made by `super().__new__(cls, data)` under a watch, as without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import devguard


class Indices(torch.Tensor):
    def __new__(cls, *data: Any) -> Any:
        return super().__new__(cls, *data)


@pytest.mark.parametrize("simulated", [False, True], ids=["plain", "simulated"])
@pytest.mark.parametrize(
    "data", [(torch.arange(3.0),), ([1, 2.0],), (2, 3), ()], ids=["tensor", "list", "sizes", "none"]
)
def test_it_is_made_of_whatever_pytorch_s_own_takes(data: Any, simulated: bool) -> None:
    def make() -> Any:
        with devguard.watch() as outer, devguard.watch():
            made = Indices(*data)
        assert not [entry.what for entry in outer.report.not_seen]
        return made

    if simulated:
        with devguard.simulate("cuda:1"):
            made = make()
    else:
        made = make()
    plain = Indices(*data)
    assert type(made) is Indices
    assert (made.shape, made.dtype) == (plain.shape, plain.dtype)


def test_it_is_made_of_a_tensor_on_the_device_and_the_graph_goes_on() -> None:
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        data = torch.ones(2, device="cuda:1", requires_grad=True)
        made = Indices(data * 2)
        made.sum().backward()
        assert isinstance(made, Indices)
        assert isinstance(made + 1, Indices)
        assert str(made.device) == "cuda:1"
        assert data.grad is not None
        assert data.grad.tolist() == [2, 2]
    assert not watch.report.not_seen


def test_a_mode_of_the_program_has_its_say() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counter.seen += 1
            return func(*args, **(kwargs or {}))

    with devguard.watch(), Counter(), pytest.raises(RuntimeError, match="already associated"):
        Indices([1.0])
    assert Counter.seen == 1

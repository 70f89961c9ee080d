"""What programs do with PyTorch's functions besides calling them goes on while a watch has wrapped them."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from torch import nn

import devguard

WRAPPED = [
    torch.load,
    torch.tensor,
    torch.as_tensor,
    torch.from_numpy,
    torch.compile,
    torch.autograd.grad,
    nn.Module.to,
]


@pytest.mark.parametrize("function", WRAPPED, ids=lambda function: function.__name__)
def test_a_wrapped_function_can_be_pickled(function):
    owner = nn.Module if function is nn.Module.to else torch.autograd if function is torch.autograd.grad else torch
    with devguard.watch():
        wrapped = getattr(owner, function.__name__)
        assert wrapped is not function
        inside = pickle.dumps(functools.partial(wrapped))
        assert pickle.loads(inside).func == function
    assert b"devguard" not in inside
    assert pickle.loads(inside).func is function
    assert pickle.loads(pickle.dumps(wrapped)) is function  # one that was kept beyond the watch


def test_a_wrapped_function_of_two_watches_can_be_pickled():
    with devguard.watch(), devguard.watch():
        inside = pickle.dumps([torch.as_tensor, torch.load, torch.Tensor.to])
    assert pickle.loads(inside) == [torch.as_tensor, torch.load, torch.Tensor.to]


def test_a_wrapped_method_can_be_pickled():
    with devguard.watch():
        move = pickle.loads(pickle.dumps(torch.ones(2).to))
    assert move(torch.float64).tolist() == [1.0, 1.0]


def test_a_module_that_holds_a_wrapped_function_can_be_copied():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = torch.as_tensor
            self.cast = torch.ones(1).to

    with devguard.watch():
        twin = copy.deepcopy(Reader())
        assert copy.copy(twin.read) == torch.as_tensor
        assert twin.read([1.0]).tolist() == [1.0]
        assert twin.cast(torch.int64).tolist() == [1]


def test_scripts_may_call_what_is_wrapped():
    def scale(x):
        return torch.tensor([2.0]) * torch.as_tensor(x)

    with devguard.watch():
        assert torch.jit.script(scale)(torch.ones(1)).tolist() == [2.0]
    assert torch.jit.script(scale)(torch.ones(1)).tolist() == [2.0]


def test_nothing_of_a_watch_stays_in_the_table_of_scripts():
    table = torch.jit._builtins._get_builtin_table()
    before = dict(table)
    with devguard.watch():
        pass
    assert table == before


def test_a_subclass_recognizes_the_method_it_is_called_for():
    seen = []

    class Listening(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.to:
                seen.append(type(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(1).as_subclass(Listening)
    with devguard.watch():
        x.to(torch.float64)
    x.to(torch.float64)
    assert seen == [type(torch.Tensor.to)] * 2


def test_an_unbound_call_is_seen():
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        kept = list(map(torch.Tensor.cpu, [torch.ones(1, device="cuda")] * 9))
    assert len(kept) == 9
    assert [found.rule for found in watch.report.findings if found.level != "note"] == ["DG202"]

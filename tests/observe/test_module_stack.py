"""The stack of running modules: paths, calls, exceptions, several watches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import devguard


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.heads = [nn.Linear(3, 2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.heads[0](self.body(x))


def paths_of(watch: Any, run: Any) -> list[tuple[str, str]]:
    """The path of every module that is entered while `run` runs."""
    seen: list[tuple[str, str]] = []
    recorder = watch._recorder
    recorder.observers["module stack"].entered.append(lambda module, args, kwargs: seen.append(recorder.module_path()))
    run()
    return seen


def test_paths_start_from_the_first_module_called() -> None:
    net = Net()
    criterion = nn.MSELoss()
    with devguard.watch() as watch:
        seen = paths_of(watch, lambda: criterion(net(torch.ones(1, 3)), torch.ones(1, 2)))
    assert seen == [
        ("", "Net"),
        ("body", "Sequential"),
        ("body.0", "Linear"),
        ("body.1", "ReLU"),
        ("heads[0]", "Linear"),
        ("criterion", "MSELoss"),
    ]


def test_paths_start_from_the_watched_root() -> None:
    net = Net()
    wrapper = nn.Sequential(net)
    with devguard.watch(net) as watch:
        seen = paths_of(watch, lambda: wrapper(torch.ones(1, 3)))
    assert seen[:3] == [("wrapper", "Sequential"), ("", "Net"), ("body", "Sequential")]


def test_calls_of_the_root_are_steps_and_those_of_other_modules_are_none() -> None:
    net, criterion = Net(), nn.MSELoss()
    with devguard.watch() as watch:
        for _ in range(3):
            criterion(net(torch.ones(1, 3)), torch.ones(1, 2))
    assert watch.report.steps == 3


def test_exception_leaves_the_stack_empty_and_is_told_innermost_first() -> None:
    net = Net()
    told: list[str] = []
    with devguard.watch() as watch:
        stack = watch._recorder.observers["module stack"]
        stack.failed.append(lambda module, args, kwargs, error: told.append(type(module).__name__))
        with pytest.raises(RuntimeError):
            net(torch.ones(1, 4))
        assert watch._recorder.thread.modules == []
    assert told == ["Linear", "Sequential", "Net"]


def test_interrupt_leaves_the_stack_empty() -> None:
    class Stopped(nn.Module):
        def forward(self) -> None:
            raise KeyboardInterrupt

    with devguard.watch() as watch:
        with pytest.raises(KeyboardInterrupt):
            Stopped()()
        assert watch._recorder.thread.modules == []


@pytest.mark.parametrize("first_out", [0, 1])
def test_watches_may_end_in_any_order(first_out: int) -> None:
    original = nn.Module._call_impl
    watches = [devguard.watch(), devguard.watch()]
    for watch in watches:
        watch.start()
    watches[first_out].stop()
    module = nn.Linear(2, 2)
    module(torch.ones(1, 2))
    watches[1 - first_out].stop()
    assert nn.Module._call_impl is original
    assert watches[1 - first_out].report.steps == 1


def test_arguments_and_results_pass_through() -> None:
    class Echo(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    marker = object()
    with devguard.watch():
        assert Echo()(1, marker, key=2) == ((1, marker), {"key": 2})


def test_compiled_module_stays_in_one_graph() -> None:
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with devguard.watch(), devguard.watch():
        torch.compile(net, backend=backend, fullgraph=True)(torch.ones(1, 3))
    assert len(graphs) == 1

"""What the watch notices of optimizers, apart from the rules' judgement."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

import devguard
from devguard.observe.optimizers_facts import OptimizerFacts


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def test_the_name_of_a_state_tensor() -> None:
    model = nn.Linear(3, 2)
    with devguard.watch() as watch:
        resumed = torch.optim.Adam(model.parameters())
        train(model, resumed)
        optimizers = watch._recorder.observers["optimizers"]
        step = resumed.state[model.weight]["step"]
        assert optimizers.state_name(step).endswith("resumed.state[...]['step']")
        assert optimizers.state_name(torch.ones(1)) == ""


def test_an_optimizer_older_than_the_watch_is_known_from_its_first_step() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with devguard.watch() as watch:
        train(model, optimizer, steps=3)
    assert watch.report.steps == 3
    assert watch.report.findings == []


def test_nothing_keeps_an_optimizer_or_its_model_alive() -> None:
    with devguard.watch() as watch:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        gone = [weakref.ref(model), weakref.ref(optimizer)]
        del model, optimizer
        gc.collect()
        assert [reference() for reference in gone] == [None, None]
        assert watch.report.complete


def test_an_exception_in_a_step_leaves_the_optimizer_usable() -> None:
    class Broken(torch.optim.SGD):
        fail = True

        def step(self, closure=None):  # type: ignore[no-untyped-def]
            if self.fail:
                raise KeyError("lost")
            return super().step(closure)

    model = nn.Linear(3, 2)
    with devguard.watch() as watch:
        optimizer = Broken(model.parameters(), lr=0.1)
        try:
            train(model, optimizer)
        except KeyError:
            optimizer.fail = False
        train(model, optimizer)
    assert watch.report.complete
    assert watch.report.findings == []


def test_a_closure_that_steps_another_optimizer() -> None:
    outer, inner = nn.Linear(3, 2), nn.Linear(3, 2)
    with devguard.watch() as watch:
        second = torch.optim.SGD(inner.parameters(), lr=0.1)
        first = torch.optim.LBFGS(outer.parameters(), max_iter=2)

        def closure() -> torch.Tensor:
            first.zero_grad()
            train(inner, second, steps=1)
            loss = outer(torch.ones(2, 3)).pow(2).sum()
            loss.backward()
            return loss

        first.step(closure)  # type: ignore[arg-type]
    assert watch.report.complete
    assert watch._recorder.facts.table(OptimizerFacts).state == {}


def test_many_short_lived_optimizers_are_forgotten() -> None:
    model = nn.Linear(3, 2)
    with devguard.watch() as watch:
        kept = []
        for index in range(600):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if index % 100 == 0:
                kept.append(optimizer)
        assert len(watch._recorder.observers["optimizers"].known) < 300


def test_a_step_that_raised_explains_no_later_failure() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        train(model, optimizer)
        model.to("cuda")  # the state stays behind
        model(torch.ones(2, 3, device="cuda")).sum().backward()
        for later in (optimizer.step, lambda: torch.ones(3, device="cuda") + torch.ones(3)):
            try:
                later()
            except RuntimeError:
                pass
    assert [found.rule for found in watch.report.findings if found.level == "error"] == ["DG106", "DG108"]

"""every=N watches one step in N and leaves no trace in between."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

import devguard


def train(steps: int, seen: list[bool] | None = None) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        loss = model(torch.ones(3, 4)).sum()
        if seen is not None:
            seen.append(_get_current_dispatch_mode() is not None)
        loss.backward()
        optimizer.step()


def test_one_step_in_n_is_watched():
    seen: list[bool] = []
    with devguard.watch(every=5):
        train(11, seen)
    assert [index for index, watched in enumerate(seen) if watched] == [0, 5, 10]


def test_the_report_counts_all_steps_and_tells_what_was_skipped():
    with devguard.watch(every=5) as watch:
        train(10)
    assert watch.report.steps == 10
    assert [(entry.what, entry.count) for entry in watch.report.not_seen] == [
        ("steps between the watched ones (every=5)", 8)
    ]


def test_hooks_are_gone_between_watched_steps():
    from torch.nn.modules import module

    with devguard.watch(every=100):
        train(1)
        assert not module._global_forward_pre_hooks
        assert not hasattr(torch.Tensor.to, "_self_wrapper")


def test_a_program_without_optimizer_is_sampled_by_its_roots_calls():
    model = nn.Linear(4, 2)
    seen = []
    model.register_forward_hook(lambda *_: seen.append(_get_current_dispatch_mode() is not None))
    with devguard.watch(model, every=3):
        for _ in range(7):
            model(torch.ones(1, 4))
    assert [index for index, watched in enumerate(seen) if watched] == [0, 3, 6]


def test_watch_step_ends_a_step():
    with devguard.watch(every=2) as watch:
        states = []
        for _ in range(4):
            states.append(_get_current_dispatch_mode() is not None)
            watch.step()
    assert states == [True, False, True, False]

"""What a failure of a part of devguard is, and what is the program's own."""

from __future__ import annotations

import torch

import devguard
from devguard.observe.recorder import Recorder


def test_a_program_that_recurses_without_end_switches_no_part_off() -> None:
    def endless(x: torch.Tensor) -> torch.Tensor:
        return endless(x + 1)

    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        try:
            endless(torch.zeros(1, device="cuda"))
        except RecursionError:
            ended = True
        torch.ones(2, device="cuda").sum().item()
    assert ended
    assert watch.report.complete
    assert not watch.report.not_seen


def test_a_part_that_recurses_without_end_is_switched_off() -> None:
    recorder = Recorder()
    recorder.fail("a part", RecursionError("maximum recursion depth exceeded"))
    assert recorder.broken == {"a part"}

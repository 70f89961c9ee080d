"""devguard never does what it flags: it runs no op of its own, on a real device or a simulated one."""

from __future__ import annotations

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

import devguard
from tests.robustness.program import run


class Ops(TorchDispatchMode):
    """Lists every op that arrives below the watch."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Empty(TorchDispatchMode):
    """A mode that does nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_same_ops_run_with_and_without_a_watch(device):
    with devguard.simulate("cuda:1"):
        with Ops() as plain, Empty():  # PyTorch 2.8 detaches once more under a second mode, whatever mode it is
            run(device)
        with Ops() as watched, devguard.watch() as watch:
            run(device)
        assert watch.report.ops > 0
    assert watched.names == plain.names


def test_asking_for_the_report_runs_no_op():
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        run("cuda")
        with Ops() as ops:
            assert watch.report.findings
    assert ops.names == []

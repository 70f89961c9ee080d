"""CUDA's own reports of waits: what the table knows is no news, what it lacks is a finding. No GPU is needed: the tests report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch

import devguard
from devguard.observe import gpu_trace
from devguard.observe.gpu_trace import Subscription
from devguard.observe.syncs import Syncs
from devguard.report.model import Report
from devguard.simulate.tensor import SimTensor


@contextlib.contextmanager
def reporting(every: int = 1) -> Iterator[tuple[devguard.Watch, Any]]:
    """A watch that listens, and a function that reports a wait as CUDA would."""
    subscription = Subscription()
    subscription.done = True
    with (
        devguard.simulate("cuda:1"),
        mock.patch.object(gpu_trace, "SUBSCRIPTION", subscription),
        mock.patch.object(gpu_trace, "wanted", return_value=True),
        devguard.watch(every=every) as watch,
    ):
        yield watch, subscription.tell


def waits(report: Report) -> list[tuple[str, str, int]]:
    assert report.complete, report.not_seen
    return [(found.rule, found.certainty, found.count) for found in report.findings if found.rule.startswith("DG2")]


def test_a_wait_that_nobody_knows_is_a_certain_finding_at_the_users_line() -> None:
    with reporting() as (watch, report):
        for _ in range(3):
            report("stream")
    assert waits(watch.report) == [("DG205", "certain", 3)]
    (found,) = watch.report.findings
    assert found.cause is not None
    assert found.cause.text == 'report("stream")'
    assert "CUDA reported a stream synchronization" in found.message


def test_a_wait_inside_an_op_that_the_table_knows_is_no_news() -> None:
    with reporting() as (watch, report):
        x = torch.ones(3, device="cuda")
        with inside("aten::_local_scalar_dense", report):
            x.sum().item()
    assert waits(watch.report) == [("DG201", "certain", 1)]


def test_a_wait_inside_an_op_that_the_table_lacks_names_the_op() -> None:
    with reporting() as (watch, report):
        x = torch.ones(3, device="cuda")
        with inside("aten::cumsum", report):
            x.cumsum(0)
    assert waits(watch.report) == [("DG205", "certain", 1)]
    assert "cumsum" in watch.report.findings[0].message


def test_a_wait_inside_an_entry_point_is_the_entry_points() -> None:
    with reporting() as (watch, report), mock.patch.object(torch.cuda, "synchronize", side_effect=report):
        with devguard.watch() as inner:  # the outer one wrapped what is replaced here
            torch.cuda.synchronize("device")
        assert waits(inner.report) == [("DG204", "certain", 1)]
    assert waits(watch.report) == [("DG205", "certain", 1)]


def test_nothing_is_told_after_the_watch() -> None:
    with reporting() as (watch, report):
        pass
    report("stream")
    assert waits(watch.report) == []


def test_a_watch_that_leaves_steps_out_asks_for_no_trace() -> None:
    with reporting(every=2) as (watch, report):
        report("stream")
    assert waits(watch.report) == []


def test_a_failing_listener_does_not_reach_the_program() -> None:
    with reporting() as (watch, report), mock.patch.object(Syncs, "fact_for", side_effect=ZeroDivisionError):
        report("stream")
        report("stream")
    assert watch.report.findings == []
    assert not watch.report.complete


def test_torch_is_subscribed_to_once_and_listeners_come_and_go() -> None:
    pytest.importorskip("torch.cuda._gpu_trace")
    told: list[str] = []
    subscription = Subscription()
    with mock.patch.object(torch._C, "_activate_gpu_trace") as activate:
        assert subscription.add(told.append)
        assert subscription.add(told.append)
        subscription.remove(told.append)
    assert activate.call_count == 1


def test_no_trace_is_wanted_where_there_is_no_cuda_device() -> None:
    assert gpu_trace.wanted(simulated=True) is False
    if not torch.cuda.is_available():
        assert gpu_trace.wanted(simulated=False) is False


@contextlib.contextmanager
def inside(op: str, report: Any) -> Iterator[None]:
    """Report a wait from inside the kernel of an op."""
    run = SimTensor.__torch_dispatch__

    def kernel(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name == op:
            report("stream")
        return run(func, types, args, kwargs)

    with mock.patch.object(SimTensor, "__torch_dispatch__", staticmethod(kernel)):
        yield

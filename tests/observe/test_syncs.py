"""The observer of waits, looked at below the rules: times, threads without a frame, entry points, and its own failures."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import sys
import threading
from collections.abc import Iterator
from unittest import mock

import pytest
import torch

import devguard
from devguard.observe.dispatch import DispatchMode, Handlers, Op
from devguard.observe.entries import Entries
from devguard.observe.frames import raw_site
from devguard.observe.recorder import Recorder
from devguard.observe.symbolize import where
from devguard.observe.syncs import Syncs
from devguard.observe.syncs_facts import SyncFact


@contextlib.contextmanager
def observing(on_hardware: bool = False) -> Iterator[Syncs]:
    """The observer alone, with its entry points, on a simulated device; `on_hardware` hides that it is simulated."""
    with devguard.simulate("cuda:1"):
        recorder = Recorder()
        recorder.facts.devices = ["cuda:0"]
        recorder.facts.simulated = not on_hardware
        handlers = Handlers()
        syncs = Syncs(recorder, handlers)
        entries = Entries(recorder, handlers)
        syncs.start()
        entries.start()
        try:
            with DispatchMode(recorder, handlers):
                yield syncs
        finally:
            entries.stop()
            syncs.stop()
        assert recorder.facts.failures == []


def facts(syncs: Syncs) -> list[SyncFact]:
    return list(syncs.facts.found.values())


def test_on_hardware_the_time_that_the_host_is_blocked_is_measured() -> None:
    with observing(on_hardware=True) as syncs:
        torch.ones(3, device="cuda").sum().item()
        torch.cuda.synchronize()
    assert [fact.rule for fact in facts(syncs)] == ["DG201", "DG204"]
    assert all(fact.tally.seconds > 0 for fact in facts(syncs))


def test_in_a_simulation_no_time_is_measured() -> None:
    with observing() as syncs:
        torch.ones(3, device="cuda").sum().item()
    assert facts(syncs)[0].tally.seconds == 0


def test_an_op_of_a_thread_without_frames_belongs_to_the_line_of_its_backward() -> None:
    with observing() as syncs:
        x = torch.ones(3, device="cuda")
        here = raw_site(sys._getframe())
        syncs.backward.append(here)
        mode = DispatchMode(syncs.recorder, syncs.handlers)
        func = torch.ops.aten.nonzero.default
        syncs.before(Op(func, mode.plan_for(func), (x,), {}, None))
    (fact,) = facts(syncs)
    assert fact.site == here
    place = where(fact.site)
    assert place is not None
    assert "raw_site" in place.text


def test_backward_is_left_again_also_when_it_fails() -> None:
    with observing() as syncs, pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones((), device="cuda").backward()
    assert syncs.backward == []


def test_gradients_asked_for_are_a_backward_too() -> None:
    with observing() as syncs:
        x = torch.full((3,), 2.0, device="cuda", requires_grad=True)
        torch.autograd.grad(x.prod(), x)
    (fact,) = facts(syncs)
    assert (fact.rule, fact.library) == ("DG205", "the backward of prod")
    assert syncs.backward == []


def test_a_thread_reads_under_its_own_entry_points() -> None:
    with observing() as syncs:
        x = torch.ones((), device="cuda")
        inside = threading.Event()

        def read() -> None:
            with DispatchMode(syncs.recorder, syncs.handlers):
                x.item()
            inside.set()

        class Late:
            """Is pickled slowly: meanwhile the other thread reads."""

            def __reduce__(self) -> tuple[type[int], tuple[()]]:
                threading.Thread(target=read).start()
                assert inside.wait(10)
                return int, ()

        torch.save([x, Late()], io.BytesIO())
    assert sorted(fact.rule for fact in facts(syncs)) == ["DG201", "DG202"]


def test_what_is_saved_in_one_call_is_one_wait() -> None:
    with observing() as syncs:
        torch.save({"a": torch.ones(2, device="cuda"), "b": [torch.ones(3, device="cuda")]}, io.BytesIO())
    assert [(fact.rule, fact.tally.count) for fact in facts(syncs)] == [("DG202", 1)]


def test_copying_an_object_is_no_pickling() -> None:
    with observing() as syncs:
        x = torch.ones(2, device="cuda")
        copy.copy(x)
        copy.deepcopy(x)
    assert facts(syncs) == []


def test_pickling_a_host_tensor_is_no_wait() -> None:
    with observing() as syncs:
        pickle.dumps(torch.ones(2))
        torch.save(torch.ones(2), io.BytesIO())
        repr(torch.ones(2))
    assert facts(syncs) == []


def test_two_reads_of_one_statement_are_one_fact_with_both_names() -> None:
    with observing() as syncs:
        a, b = torch.ones((), device="cuda"), torch.ones((), device="cuda")
        total = a.item() + b.item()
    assert total == 2
    (fact,) = facts(syncs)
    assert (fact.tally.count, fact.names) == (2, ["a", "b"])


def test_the_same_line_with_two_causes_gives_two_facts() -> None:
    with observing() as syncs:
        x = torch.ones(3, device="cuda")
        assert x[x > 0].sum().item() == 3
    assert sorted(fact.rule for fact in facts(syncs)) == ["DG201", "DG203"]


def test_no_tensor_is_kept_alive() -> None:
    with observing() as syncs:
        x = torch.ones(3, device="cuda")
        before = sys.getrefcount(x)
        x.sum().item()
        x.tolist()
        repr(x)
        assert len(x[x > 0]) == 3
        assert sys.getrefcount(x) == before
    assert len(facts(syncs)) == 4


def test_a_wait_without_a_name_is_still_counted() -> None:
    failing = mock.patch.object(Syncs, "named", side_effect=ZeroDivisionError("no name"))
    with devguard.simulate("cuda:1"), devguard.watch() as watch, failing:
        torch.ones((), device="cuda").item()
    report = watch.report
    assert [(found.rule, found.tensor) for found in report.findings] == [("DG201", None)]
    assert [entry.what for entry in report.not_seen] == [
        "devguard's own part 'syncs: names' failed and was switched off: ZeroDivisionError: no name"
    ]


def test_a_failure_of_the_observer_does_not_reach_the_program() -> None:
    failing = mock.patch.object(Syncs, "wait", side_effect=ZeroDivisionError)
    with devguard.simulate("cuda:1"), devguard.watch() as watch, failing:
        assert torch.ones((), device="cuda").item() == 1
    assert not watch.report.complete


def test_ops_on_the_host_are_no_waits() -> None:
    with observing() as syncs:
        x = torch.arange(3.0)
        x.sum().item()
        x[x > 0].tolist()
        x.nonzero()
        torch.equal(x, x + 1)
        print(x, file=io.StringIO())
    assert facts(syncs) == []

"""Long runs: memory stays flat, and what repeats is one record."""

from __future__ import annotations

import time
import tracemalloc

import torch

import devguard
from devguard.observe.frames import raw_site
from devguard.observe.origins import LIMIT, Origin, Origins


def own_bytes(snapshot: tracemalloc.Snapshot) -> int:
    return sum(
        line.size for line in snapshot.filter_traces([tracemalloc.Filter(True, "*devguard/*")]).statistics("filename")
    )


def test_memory_is_flat_over_many_ops():
    x = torch.ones(4)

    def work(count):
        for _ in range(count):
            x + x

    tracemalloc.start()
    try:
        with devguard.watch():
            work(2_000)
            early = own_bytes(tracemalloc.take_snapshot())
            work(10_000)
            late = own_bytes(tracemalloc.take_snapshot())
    finally:
        tracemalloc.stop()
    assert late - early < 2**20  # the table of origins may still fill up, to its limit (next test)


def test_memory_is_bounded_with_many_live_tensors():
    origins = Origins()
    site = raw_site(None)
    tracemalloc.start()
    try:
        for key in range(LIMIT + LIMIT // 4):
            origins.put(key, Origin(site, "aten.add.Tensor", -1, 0, None))
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(origins.table) <= LIMIT
    assert size < 32 * 2**20


def test_a_finding_that_repeats_is_one_record():
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        x = torch.ones((), device="cuda")
        for _ in range(3_000):
            x.item()
    (found,) = watch.report.findings
    assert found.count == 3_000


def test_many_steps_leave_memory_flat():
    with devguard.simulate("cuda:1"):
        model = torch.nn.Linear(2, 1).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(1, 2, device="cuda")

        def steps(count):
            for _ in range(count):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()

        with devguard.watch():
            steps(50)
            tracemalloc.start()
            try:
                steps(50)
                early = own_bytes(tracemalloc.take_snapshot())
                steps(400)
                late = own_bytes(tracemalloc.take_snapshot())
            finally:
                tracemalloc.stop()
    assert late - early < 256 * 1024


def test_a_report_of_a_ten_thousand_module_model_is_quick():
    model = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(10_000)))
    started = time.perf_counter()
    with devguard.watch(model) as watch:
        model(torch.ones(1))
    assert watch.report.complete
    assert time.perf_counter() - started < 20

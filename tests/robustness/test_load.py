"""Long runs: memory stays flat, and what repeats is one record."""

from __future__ import annotations

import time
import tracemalloc

import torch

import devguard
from devguard.observe.frames import raw_site
from devguard.observe.origins import LIMIT, Origin, Origins
from devguard.observe.tally import Tally
from tests.robustness import load
from tests.robustness.load import own_bytes


def test_memory_is_flat_over_many_ops():
    x = torch.ones(4)

    def work(count):
        for _ in range(count):
            x + x

    tracemalloc.start()
    try:
        with devguard.watch():
            work(2_000)
            early = own_bytes()
            work(10_000)
            late = own_bytes()
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


def test_any_number_of_events_takes_no_more_memory_than_one():
    tally = Tally()
    tracemalloc.start()
    try:
        tally.hit(0, 2, 4)
        early = tracemalloc.get_traced_memory()[0]
        for step in range(300_000):
            tally.hit(step, 2, 4)
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (tally.count, tally.steps_hit, tally.bytes) == (300_001, 300_000, 1_200_004)
    assert late - early < 1_000


def test_the_load_command_measures_all_it_promises():
    measured = list(load.measure(part=1_000))
    assert [str(one) for one in measured if not one.fits] == []
    assert len(measured) > 15
    assert any("records" in one.what and one.value == 1 for one in measured)


def test_the_load_command_sees_memory_that_grows():
    kept = []

    def work(count):
        for number in range(count):
            kept.append(load.Measured(str(number), 0, 0, ""))

    with devguard.watch() as watch:
        *_, growth = load.memory_over("leak", work, 10, watch)
    assert growth.fits

    def leak(count):
        tally = Tally()
        for number in range(count):
            tally.hit(number, 2, nbytes=1 << 64)
            kept.append(tally.bytes)  # numbers that devguard's code made

    with devguard.watch() as watch:
        *_, growth = load.memory_over("leak", leak, 40_000, watch)
    assert not growth.fits


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
                early = own_bytes()
                steps(400)
                late = own_bytes()
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

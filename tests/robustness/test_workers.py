"""Workers, replicas and tasks: each op is counted once, nothing waits for ever, nothing stays behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from torch.utils.data import DataLoader, Dataset

import devguard


class Rows(Dataset):
    """Items that take a few ops to make, in the worker."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return (torch.ones(2) * index + 1).sum()


def failures(watch):
    return [entry.what for entry in watch.report.not_seen if "switched off" in entry.what]


def consumed(workers, context=None):
    """(sum of all batches, ops that the watch saw) of a loop over a loader."""
    with devguard.watch() as watch:
        total = 0.0
        loader = DataLoader(
            Rows(), batch_size=3, num_workers=workers, multiprocessing_context=context, collate_fn=torch.as_tensor
        )
        for batch in loader:
            total += float(batch.sum())
    assert failures(watch) == []
    return total, watch.report.ops


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_what_loader_workers_do_is_not_counted_here(context):
    plain_total, plain_ops = consumed(0)
    total, ops = consumed(2, context)
    assert total == plain_total
    assert ops < plain_ops - 12  # each item is made by several ops, in the workers


def test_workers_that_stay_for_several_epochs_end_with_their_loader():
    with devguard.watch() as watch:
        loader = DataLoader(Rows(), batch_size=3, num_workers=1, persistent_workers=True)
        sums = [sum(float(batch.sum()) for batch in loader) for _ in range(2)]
        del loader
    assert sums[0] == sums[1]
    assert failures(watch) == []


def test_workers_that_outlive_the_watch_go_on():
    loader = DataLoader(Rows(), batch_size=3, num_workers=1)
    with devguard.watch():
        batches = iter(loader)
        next(batches)
    assert len(list(batches)) == 3


def test_an_exception_in_a_worker_reaches_the_program():
    class Broken(Rows):
        def __getitem__(self, index):
            raise KeyError("row")

    with pytest.raises(KeyError, match="row"), devguard.watch():
        next(iter(DataLoader(Broken(), num_workers=1)))


def test_a_process_that_is_forked_while_threads_run_ops_ends():
    code = """
import os, threading, torch, devguard
def work():
    while not done.is_set():
        torch.ones(3) + 1
done = threading.Event()
with devguard.watch() as watch:
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    for _ in range(10):
        child = os.fork()
        if not child:
            torch.ones(3) + 1
            watch.report
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    done.set()
    [thread.join() for thread in threads]
print("done")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_replicas_of_data_parallel_are_watched_and_compute_the_same():
    class Model(nn.Linear):
        def forward(self, x):
            x.sum().item()
            return super().forward(x)

    def program(model):
        return nn.DataParallel(model)(torch.arange(8.0).view(4, 2).to("cuda"))

    torch.manual_seed(0)
    with devguard.simulate("cuda:2"):
        model = Model(2, 2).to("cuda")
        plain = program(model).cpu()
        with devguard.watch() as watch:
            for _ in range(5):
                watched = program(model)
                watch.step()
            watched = watched.cpu()
        report = watch.report
    assert torch.equal(watched, plain)
    (found,) = [found for found in report.findings if found.where.text == "x.sum().item()"]
    assert found.count == 10  # two replicas, five steps
    assert not [found for found in report.findings if found.level == "error"]
    assert failures(watch) == []


def test_tasks_with_a_watch_each_leave_nothing():
    async def task(index):
        with devguard.watch() as watch:
            for _ in range(index + 1):
                torch.ones(2) + 1
                await asyncio.sleep(0)
        return watch.report.ops

    async def main():
        return await asyncio.gather(*(task(index) for index in range(5)))

    seen = asyncio.run(main())
    assert len(seen) == 5
    assert min(seen) >= 2
    assert _len_torch_dispatch_stack() == 0


def test_a_task_that_is_cancelled_leaves_nothing():
    async def task():
        with devguard.watch():
            await asyncio.sleep(60)

    async def main():
        running = asyncio.create_task(task())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert _len_torch_dispatch_stack() == 0


def test_tasks_and_executors_under_one_watch_are_seen():
    def work():
        torch.ones(2) + 1

    async def main():
        await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))

    with devguard.watch() as watch:
        asyncio.run(main())
    assert watch.report.ops == 8


def test_an_async_generator_that_is_left_early_leaves_nothing():
    async def batches():
        with devguard.watch():
            for _ in range(3):
                yield torch.ones(1)

    async def main():
        source = batches()
        async for _ in source:
            break
        await source.aclose()

    asyncio.run(main())
    assert _len_torch_dispatch_stack() == 0


def test_generators_under_two_watches_may_end_in_any_order():
    def batches():
        with devguard.watch():
            for number in range(3):
                yield torch.ones(1) * number

    first, second = batches(), batches()
    next(first), next(second), next(first)
    first.close()
    assert next(second).item() == 1.0
    second.close()
    assert _len_torch_dispatch_stack() == 0


def test_watches_of_several_threads_see_their_own_thread_only():
    started = threading.Barrier(3)
    seen = {}

    def work(count):
        with devguard.watch() as watch:
            started.wait()
            for _ in range(count):
                torch.ones(2)
            started.wait()
        seen[count] = watch.report.ops

    threads = [threading.Thread(target=work, args=(count,)) for count in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {10: 10, 20: 20, 30: 30}


def test_many_watches_may_begin_and_end_at_once():
    before = {name: vars(torch.Tensor).get(name) for name in ("to", "cpu", "tolist", "__repr__")}
    forward = nn.Module._call_impl
    problems = []

    def work():
        try:
            for _ in range(15):
                with devguard.watch() as watch:
                    torch.ones(2).to(torch.float64)
                problems.extend(failures(watch))
        except BaseException as problem:
            problems.append(problem)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert problems == []
    assert {name: vars(torch.Tensor).get(name) for name in before} == before
    assert nn.Module._call_impl is forward


def test_a_thread_under_two_watches_runs():
    results = []
    with devguard.watch() as outer, devguard.watch() as inner:
        thread = threading.Thread(target=lambda: results.append((torch.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
    assert results == [[2.0, 2.0]]
    assert (outer.report.ops, inner.report.ops) == (2, 2)


def test_a_thread_that_outlives_the_watch_goes_on_unwatched():
    ended = threading.Event()
    results = []

    def work():
        ended.wait()
        results.append((torch.ones(2) + 1).tolist())

    with devguard.watch() as watch:
        thread = threading.Thread(target=work)
        thread.start()
    seen = watch.report.ops
    ended.set()
    thread.join()
    assert results == [[2.0, 2.0]]
    assert watch.report.ops == seen


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < "2.11", reason="2.8 crashes at its end once a mode was popped by hand"
)
def test_a_watch_that_another_thread_ends_sees_no_more():
    watch = devguard.watch().start()
    thread = threading.Thread(target=watch.stop)
    thread.start()
    thread.join()
    seen = watch.report.ops
    try:
        assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]
        assert watch.report.ops == seen
    finally:  # a mode belongs to its thread: only here can it be taken away
        while _len_torch_dispatch_stack():
            torch.utils._python_dispatch._pop_mode()


# --- decorated functions ---


def test_a_decorated_function_may_call_itself():
    watch = devguard.watch()

    @watch
    def down(left):
        return torch.ones(1) if left == 0 else down(left - 1) + 1

    assert down(3).tolist() == [4.0]
    assert watch.report.ops == 4
    assert _len_torch_dispatch_stack() == 0


def test_a_decorated_coroutine_is_watched_to_its_end():
    watch = devguard.watch()

    @watch
    async def work(count):
        await asyncio.sleep(0)
        return torch.ones(count) + 1

    assert asyncio.run(work(2)).tolist() == [2.0, 2.0]
    assert watch.report.ops == 2
    assert asyncio.iscoroutinefunction(work)


def test_a_decorated_generator_is_watched_to_its_end():
    watch = devguard.watch()

    @watch
    def batches():
        got = yield torch.ones(1)
        yield torch.ones(1) + got
        return "end"

    source = batches()
    next(source)
    assert source.send(2).tolist() == [3.0]
    with pytest.raises(StopIteration, match="end"):
        next(source)
    assert watch.report.ops == 3
    assert _len_torch_dispatch_stack() == 0


def test_a_decorated_async_generator_is_watched_to_its_end():
    watch = devguard.watch()
    closed = []

    @watch
    async def batches():
        try:
            try:
                got = yield torch.ones(1)
            except KeyError:
                got = 5
            yield torch.ones(1) + (got or 0)
        finally:
            closed.append(True)

    async def main():
        source = batches()
        await anext(source)
        thrown = await source.athrow(KeyError())
        await source.aclose()
        other = batches()
        await anext(other)
        sent = await other.asend(1)
        return (
            thrown.item(),
            sent.item(),
            [value async for value in other],
            [value.item() async for value in batches()][:1],
        )

    assert asyncio.run(main()) == (6.0, 2.0, [], [1.0])
    assert len(closed) == 3
    assert _len_torch_dispatch_stack() == 0

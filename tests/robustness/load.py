"""Long runs as one command: ``python -m tests.robustness.load`` takes some minutes, prints what it measured against its limits, and
ends with status 1 where one is passed. ``python -m tests.robustness.load 100`` does a hundredth of the work."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

import devguard
from devguard.observe.origins import LIMIT
from devguard.report import write
from tests.report import samples

OPS, STEPS, REPEATS, FINDINGS = 1_000_000, 100_000, 1_000_000, 10_000
MIB = 2**20
OWN_MEMORY = 64 * MIB
FLAT = MIB // 2
_OWN_FILES = str(Path(devguard.__file__).parent / "*")


@dataclass(frozen=True)
class Measured:
    """One number against its limit."""

    what: str
    value: float
    limit: float
    unit: str

    @property
    def fits(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        verdict = "ok" if self.fits else "TOO MUCH"
        return f"{self.what:58} {self.value:12,.2f} {self.unit:4} (limit {self.limit:,g})  {verdict}"


def own_bytes() -> int:
    """What devguard's own code has allocated and still holds."""
    own = [tracemalloc.Filter(True, name) for name in (_OWN_FILES, "<string>")]  # the latter: its named tuples
    taken = tracemalloc.take_snapshot().filter_traces(own)
    return sum(trace.size for trace in taken.statistics("filename"))


def resident() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * 4096


def memory_over(name: str, work: Callable[[int], None], count: int, watch: devguard.Watch) -> Iterator[Measured]:
    """Own memory at the end of the work, and how much it grew over the second half beside the table of origins.

    That table has a limit (`origins.LIMIT`, about 20 MiB) and may take a whole run to reach it: it is emptied for the comparison."""
    recorder = watch._recorder
    assert recorder is not None
    tracemalloc.start()
    try:
        work(count // 2)
        recorder.origins.table.clear()
        half = own_bytes()
        work(count - count // 2)
        end, entries = own_bytes(), len(recorder.origins.table)
        recorder.origins.table.clear()
        rest = own_bytes()
    finally:
        tracemalloc.stop()
    yield Measured(f"{name}: own memory at the end", end / MIB, OWN_MEMORY / MIB, "MiB")
    yield Measured(f"{name}: entries in the table of origins then", entries, LIMIT, "")
    yield Measured(f"{name}: growth over the second half beside it", (rest - half) / MIB, FLAT / MIB, "MiB")


def many_ops(count: int) -> Iterator[Measured]:
    """Small ops at a few places, a thousand results alive at any time."""
    x, alive = torch.ones(4), [torch.ones(1)] * 1_000

    def work(ops: int) -> None:
        for number in range(ops // 4):
            y = x + x
            alive[number % 1_000] = (y * 2).sum() - 1

    with devguard.watch() as watch:
        work(count // 2)
        half = resident()
        work(count - count // 2)
        yield Measured(f"{count:,} ops: growth of the process, second half", (resident() - half) / MIB, 8, "MiB")
        seen = watch.report.ops
    yield Measured(f"{count:,} ops: those that were missed", count - seen, 0, "")
    with devguard.watch() as watch:
        yield from memory_over(f"{count:,} ops", work, count, watch)


def many_steps(count: int) -> Iterator[Measured]:
    """Training steps on a simulated device, with a scalar read and a copy in each."""
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        model = torch.nn.Linear(2, 1).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def work(steps: int) -> None:
            for _ in range(steps):
                x = torch.ones(1, 2).to("cuda")
                optimizer.zero_grad()
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
                loss.item()

        yield from memory_over(f"{count:,} steps", work, count, watch)
    report = watch.report
    yield Measured(f"{count:,} steps: those that were missed", count - report.steps, 0, "")
    yield Measured(f"{count:,} steps: findings", len(report.findings), 10, "")


def one_finding(count: int) -> Iterator[Measured]:
    """The same read again and again."""
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        x = torch.ones((), device="cuda")
        began = time.perf_counter()
        for _ in range(count):
            x.item()
        seconds = time.perf_counter() - began
    records = [found for found in watch.report.findings if found.rule == "DG201"]
    yield Measured(f"a finding {count:,} times: records", len(records), 1, "")
    yield Measured(f"a finding {count:,} times: uncounted", count - records[0].count, 0, "")
    yield Measured(f"a finding {count:,} times: time for one, with the op", seconds / count * 1e6, 1_000, "us")


def threads(count: int) -> Iterator[Measured]:
    """Sixteen threads at once, each with ops, modules and backward."""
    layer = torch.nn.Linear(8, 8)

    def work(index: int) -> int:
        for _ in range(count // 16 // 10):
            layer(torch.full((2, 8), float(index))).sum().backward()
        return index

    with devguard.watch() as watch, ThreadPoolExecutor(16) as pool:
        done = len(list(pool.map(work, range(16))))
    broken = [entry for entry in watch.report.not_seen if "switched off" in entry.what]
    yield Measured("16 threads: those that did not end", 16 - done, 0, "")
    yield Measured("16 threads: parts of devguard that failed", len(broken), 0, "")


def many_findings(count: int) -> Iterator[Measured]:
    """Every format of a report with so many findings."""
    report = samples.report(
        [samples.loss_weight(fingerprint=f"{number:016x}", message=f"criterion_{number}.weight is on cpu")
         for number in range(count)]
    )  # fmt: skip
    for name in write.RENDERERS:
        write.render(samples.full_report(), name)  # what is imported at its first use
        began = time.process_time()
        write.render(report, name)
        yield Measured(f"{count:,} findings as {name}: processor time", time.process_time() - began, 2, "s")


def measure(part: int = 1) -> Iterator[Measured]:
    """Everything, or one `part`-th of the work."""
    yield from many_ops(OPS // part)
    yield from many_steps(STEPS // part)
    yield from one_finding(REPEATS // part)
    yield from threads(OPS // part)
    yield from many_findings(FINDINGS // part)


def main() -> int:
    """Print each number; exit status 1 when one is over its limit."""
    began = time.perf_counter()
    fit = True
    for measured in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        print(measured, flush=True)
        fit = fit and measured.fits
    print(f"{time.perf_counter() - began:.0f} s")
    return 0 if fit else 1


if __name__ == "__main__":
    raise SystemExit(main())

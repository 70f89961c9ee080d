"""``python -m devguard.bench``: what a watch costs, beside the tools that a user would compare it with.

Everything is measured in one process, in turn (A B C, A B C, ...), and printed as medians and ratios; single times of a shared
machine mean little. ``--json PATH`` writes the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import devguard

Step = Callable[[], None]
Context = Callable[[], contextlib.AbstractContextManager[Any]]


class _EmptyMode(TorchDispatchMode):
    """The least that any tool built on a dispatch mode costs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def transformer_step(device: str = "cpu") -> Step:
    """One training step of a two-layer transformer encoder: 64 sequences of 64 tokens, width 128, AdamW."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(64, 64, 128, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def cnn_step(device: str = "cpu") -> Step:
    """One training step of a small CNN: 64 images of 3 x 32 x 32, SGD with momentum."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(64, 3, 32, 32, device=device), torch.randint(0, 10, (64,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def tiny_ops(device: str = "cpu", count: int = 2000) -> Step:
    """`count` additions of 8 x 8: nothing but cost per op."""
    x = torch.ones(8, 8, device=device)

    def step() -> None:
        for _ in range(count):
            x + x

    return step


@contextlib.contextmanager
def _profiler() -> Iterator[None]:
    with torch.profiler.profile(with_stack=True):
        yield


@contextlib.contextmanager
def _debug_mode() -> Iterator[None]:
    from torch.utils._debug_mode import DebugMode

    with DebugMode(record_tensor_attributes=["device"]):
        yield


@contextlib.contextmanager
def _flop_counter() -> Iterator[None]:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        yield


TOOLS: dict[str, Context] = {
    "plain": contextlib.nullcontext,
    "empty dispatch mode": _EmptyMode,
    "devguard watch": devguard.watch,
    "devguard every=100": lambda: devguard.watch(every=100),
    "FlopCounterMode": _flop_counter,
    "DebugMode": _debug_mode,
    "torch.profiler(with_stack)": _profiler,
}

SUBJECTS: dict[str, tuple[Callable[..., Step], int]] = {
    "transformer step": (transformer_step, 4),
    "CNN step": (cnn_step, 8),
    "2000 tiny ops": (tiny_ops, 2),
}


def seconds_per_step(step: Step, context: Context, repeats: int) -> float:
    """The time of one step inside a context that is entered once and warm: its second half of the steps is measured."""
    with context():
        for _ in range(max(repeats // 2, 1)):
            step()
        started = time.perf_counter()
        for _ in range(repeats):
            step()
        return (time.perf_counter() - started) / repeats


def measure(rounds: int, device: str) -> dict[str, dict[str, float]]:
    """Subject -> tool -> median seconds per step, the tools in turn in every round."""
    table: dict[str, dict[str, float]] = {}
    for subject, (make, repeats) in SUBJECTS.items():
        step = make(device)
        step()
        times: dict[str, list[float]] = {tool: [] for tool in TOOLS}
        for _ in range(rounds):
            for tool, context in TOOLS.items():
                times[tool].append(seconds_per_step(step, context, repeats))
        table[subject] = {tool: statistics.median(values) for tool, values in times.items()}
    return table


def measure_simulator(rounds: int) -> dict[str, float]:
    """Subject -> simulated time over plain CPU time, the two in turn."""
    ratios = {}
    for subject, (make, repeats) in SUBJECTS.items():
        plain = make("cpu")
        pairs = []
        for _ in range(rounds):
            cpu = seconds_per_step(plain, contextlib.nullcontext, repeats)
            with devguard.simulate("cuda:1"):
                pairs.append(seconds_per_step(make("cuda"), contextlib.nullcontext, repeats) / cpu)
        ratios[subject] = statistics.median(pairs)
    return ratios


def measure_import(rounds: int) -> dict[str, float]:
    """Milliseconds of ``import devguard``, and of ``import torch`` with the entry point (unset) and without any."""
    code = "import time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"
    runs = {
        "import devguard": (code.format("devguard"), {}),
        "import torch, DEVGUARD unset": (code.format("torch"), {}),
        "import torch, no entry points": (code.format("torch"), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (text, extra) in runs.items():
            environment = {k: v for k, v in os.environ.items() if not k.startswith("DEVGUARD")} | extra
            out = subprocess.run(
                [sys.executable, "-c", text], capture_output=True, text=True, check=True, env=environment
            )
            found[name].append(float(out.stdout))
    return {name: statistics.median(values) for name, values in found.items()}


def lines(table: dict[str, dict[str, float]], simulator: dict[str, float], imports: dict[str, float]) -> Iterator[str]:
    """The figures as a Markdown table."""
    yield f"| {'ms per step (x plain)':28s} | " + " | ".join(SUBJECTS) + " |"
    yield "|---|" + "---|" * len(SUBJECTS)
    for tool in TOOLS:
        cells = [f"{table[s][tool] * 1e3:.2f} ({table[s][tool] / table[s]['plain']:.2f} x)" for s in SUBJECTS]
        yield f"| {tool:28s} | " + " | ".join(cells) + " |"
    yield ""
    watch_to_empty = [table[s]["devguard watch"] / table[s]["empty dispatch mode"] for s in SUBJECTS]
    yield "watch / empty dispatch mode: " + ", ".join(
        f"{s} {r:.2f}" for s, r in zip(SUBJECTS, watch_to_empty, strict=True)
    )
    tiny = table["2000 tiny ops"]
    ours, theirs = tiny["devguard watch"] - tiny["plain"], tiny["DebugMode"] - tiny["plain"]
    yield f"added cost per op: watch {ours / 2000 * 1e6:.1f} us, DebugMode {theirs / 2000 * 1e6:.1f} us ({ours / theirs:.2f} of it)"
    yield "simulator / plain CPU: " + ", ".join(f"{s} {r:.2f}" for s, r in simulator.items())
    yield ", ".join(f"{name} {ms:.1f} ms" for name, ms in imports.items())


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; exit status 0."""
    parser = argparse.ArgumentParser(
        prog="python -m devguard.bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--rounds", type=int, default=7, help="how often every tool has its turn (default 7)")
    parser.add_argument("--device", default="cpu", help="where the subjects run: cpu, or cuda on a machine with a GPU")
    parser.add_argument("--json", metavar="PATH", help="write the figures here too")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = measure(options.rounds, options.device)
    simulator = measure_simulator(max(options.rounds // 2, 1)) if options.device == "cpu" else {}
    imports = measure_import(max(options.rounds // 2, 1))
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread"
    sys.stdout.write(f"torch {torch.__version__}, Python {platform.python_version()}, {machine}\n")
    sys.stdout.write("\n".join(lines(table, simulator, imports)) + "\n")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "steps": table, "simulator": simulator, "imports": imports}, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Compare devguard's tables with a real GPU: ``python -m tests.gpu.calibrate [--json PATH]``. Under ten minutes on one GPU.

Three parts: every op_db sample under CUDA's own sync callbacks and sync_debug_mode against the table of waits; mixed-device calls
against the table of refusals and their wording; what a watch costs on real training steps. Only differences are kept: each row says
what the table holds and what the GPU did, in a form that `devguard/knowledge/` can take over.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from devguard.bench import measure
from devguard.knowledge.syncs import waits
from devguard.observe.gpu_trace import SUBSCRIPTION
from tests.simulate.test_refusals import ROWS, outcome


class Predicted(TorchDispatchMode):
    """Counts the waits that the table expects of the ops that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.by: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for sync, times in waits(func, args, kwargs or {}):
            self.count += times
            self.by.append(sync.op)
        return func(*args, **(kwargs or {}))


def samples(limit: int) -> Iterator[tuple[str, Any, Any]]:
    """(name, op, sample) of op_db on the GPU, `limit` samples of each entry."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        dtypes = op.supported_dtypes("cuda")
        if not dtypes:
            continue
        dtype = torch.float32 if torch.float32 in dtypes else sorted(dtypes, key=str)[0]
        try:
            made = list(zip(range(limit), op.sample_inputs("cuda", dtype, requires_grad=False), strict=False))
        except Exception:  # a sample that can't be made says nothing about waits
            continue
        for index, sample in made:
            yield f"{op.name}.{op.variant_test_name}".rstrip(".") + f" sample {index}", op, sample


def sync_differences(seconds: float, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """(samples run, rows in which the table and CUDA disagree on the number of waits)."""
    heard: list[str] = []
    SUBSCRIPTION.add(heard.append)
    rows: list[dict[str, Any]] = []
    ran, end = 0, time.monotonic() + seconds
    try:
        for name, op, sample in samples(limit):
            if time.monotonic() > end:
                rows.append({"sample": name, "note": "time was up here"})
                break
            row = _sync_row(name, op, sample, heard)
            ran += row is not None
            if row is not None and row["table"] != row["gpu_trace"]:
                rows.append(row)
    finally:
        SUBSCRIPTION.remove(heard.append)
        torch.cuda.set_sync_debug_mode("default")
    return ran, rows


def _sync_row(name: str, op: Any, sample: Any, heard: list[str]) -> dict[str, Any] | None:
    try:
        op(sample.input, *sample.args, **sample.kwargs)  # once unseen: handles, plans and caches are made
        torch.cuda.synchronize()
        heard.clear()
        with warnings.catch_warnings(record=True) as caught, Predicted() as predicted:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            op(sample.input, *sample.args, **sample.kwargs)
            torch.cuda.set_sync_debug_mode("default")
    except Exception:
        torch.cuda.set_sync_debug_mode("default")
        return None
    warned = sum("synchronizing CUDA operation" in str(entry.message) for entry in caught)
    return {
        "sample": name,
        "table": predicted.count,
        "by": predicted.by,
        "gpu_trace": len(heard),
        "sync_debug_mode": warned,
    }


def refusal_differences() -> tuple[int, list[dict[str, Any]]]:
    """(calls made, rows in which the GPU accepts what the table refuses, refuses what it accepts, or says it in other words)."""
    rows = []
    two = torch.cuda.device_count() > 1
    ran = 0
    for expression, expected, message, device, certainty in ROWS:
        if not two and any(name in expression for name in ("y", "g1", "cuda:1", "i=1")):
            continue
        with torch.backends.cudnn.flags(enabled=certainty != "no cudnn"):
            kind, text, where = outcome(expression)
        ran += 1
        if kind != expected or message not in text or (device and where != device):
            rows.append(
                {"call": expression, "table": [expected, message, device, certainty], "gpu": [kind, text, where]}
            )
    return ran, rows


def main(arguments: list[str] | None = None) -> int:
    """Run all three parts; exit status 2 without a GPU, 1 with differences, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.calibrate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", metavar="PATH", help="write the differences here")
    parser.add_argument("--seconds", type=float, default=300, help="time for the sweep over op_db (default 300)")
    parser.add_argument("--samples", type=int, default=3, help="samples of each op (default 3)")
    options = parser.parse_args(arguments)
    if torch.version.cuda is None or not torch.cuda.is_available():
        sys.stderr.write(
            f"calibrate: needs a CUDA build of torch and a GPU; this is torch {torch.__version__} without one\n"
        )
        return 2
    ran, syncs = sync_differences(options.seconds, options.samples)
    called, refusals = refusal_differences()
    cost = measure(5, "cuda")
    found = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0),
        "syncs": {"ran": ran, "differences": syncs},
        "refusals": {"ran": called, "differences": refusals},
        "seconds_per_step": cost,
    }
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    print(f"waits: {ran} samples, {len(syncs)} differ; mixed devices: {called} calls, {len(refusals)} differ")
    for subject, times in cost.items():
        print(f"{subject}: watch {times['devguard watch'] / times['plain']:.2f} x plain")
    return 1 if syncs or refusals else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""On a real GPU: the watch says what it says under the simulator. Skips by itself where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import devguard
from tests.robustness.program import run
from tests.transparency.outcome import outcome

HAS_GPU = torch.version.cuda is not None and torch.cuda.is_available()
EXAMPLES = Path(__file__).parents[2] / "examples"
on_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")


def rules(watch: devguard.Watch, level: str = "warning") -> set[str]:
    return {found.rule for found in watch.report.findings if found.level in ("error", level)}


@pytest.mark.gpu
@on_gpu
def test_a_training_run_gives_the_same_bits_under_a_watch():
    def watched():
        with devguard.watch():
            return run("cuda")

    assert outcome(watched).differs_from(outcome(lambda: run("cuda"))) == ""


@pytest.mark.gpu
@on_gpu
def test_reads_and_unpinned_copies_of_a_loop_are_found():
    with devguard.watch() as watch:
        run("cuda", steps=8)
    assert not watch.report.simulated
    assert {"DG201", "DG202", "DG203", "DG302"} <= rules(watch)


@pytest.mark.gpu
@on_gpu
def test_a_clean_loop_gives_a_clean_report():
    model = nn.Linear(8, 8).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 8, device="cuda")
    with devguard.watch(model) as watch:
        for _ in range(10):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert rules(watch) == set()


@pytest.mark.gpu
@on_gpu
def test_cuda_itself_confirms_the_reads():
    x = torch.ones((), device="cuda")
    with devguard.watch() as watch:
        for _ in range(10):
            x.item()
    (found,) = watch.report.findings
    assert (found.rule, found.count) == ("DG201", 10)


@pytest.mark.gpu
@on_gpu
def test_a_device_error_keeps_its_type_and_gets_the_finding():
    model = nn.Linear(4, 4).to("cuda")
    with pytest.raises(RuntimeError, match="same device") as caught, devguard.watch(model):
        model(torch.ones(1, 4))
    assert any("DG101" in note for note in getattr(caught.value, "__notes__", ()))


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("program", ["digits.py", "digits_broken.py"])
def test_the_examples_run_on_the_gpu(program):
    command = [sys.executable, "-m", "devguard", "run", "--fail-on", "never", str(EXAMPLES / program)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(HAS_GPU, reason="is about machines without a GPU")
def test_calibration_without_a_gpu_says_so_in_one_line_and_stops():
    done = subprocess.run([sys.executable, "-m", "tests.gpu.calibrate"], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("calibrate: needs a CUDA build of torch and a GPU")

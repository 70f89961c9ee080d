"""Several processes with one simulated GPU each: NCCL's collectives over gloo, DistributedDataParallel, FSDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="no gloo in this build"
)


def job(world: int, *checks: str) -> dict[str, list[Any]]:
    """Run tests/simulate/ranks.py under torchrun; the values of all ranks by check."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, str(Path(__file__).with_name("ranks.py")), *checks],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Time stats" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def two_ranks() -> dict[str, list[Any]]:
    return job(2, "plain", "collectives", "refusal", "ddp", "fsdp2", "fsdp1", "batch_norm")


def test_the_program_sees_the_backend_it_asked_for(two_ranks: dict[str, list[Any]]) -> None:
    assert two_ranks["backend"] == ["nccl"]


def test_collectives_give_each_rank_its_own(two_ranks: dict[str, list[Any]]) -> None:
    assert two_ranks["collectives"] == [
        [1, [0, 1], [0, 1], 0, [0, 1], "cuda:0"],
        [1, [0, 1], [0, 1], 2, [0, 1], "cuda:1"],
    ]


def test_nccl_takes_no_cpu_tensor(two_ranks: dict[str, list[Any]]) -> None:
    assert two_ranks["refusal"] == ["No backend type associated with device type cpu"] * 2


gloo_sums = pytest.mark.skipif(
    TorchVersion(torch.__version__) < (2, 11), reason="gloo of 2.8 sums where it should average"
)


@pytest.mark.parametrize("wrapper", ["ddp", pytest.param("fsdp2", marks=gloo_sums), "fsdp1"])
def test_training_in_parts_equals_training_whole(two_ranks: dict[str, list[Any]], wrapper: str) -> None:
    assert two_ranks[wrapper] == pytest.approx(two_ranks["plain"], rel=1e-5)


def test_batch_norm_sees_all_ranks(two_ranks: dict[str, list[Any]]) -> None:
    assert max(map(max, two_ranks["batch_norm"])) < 1e-6


def test_four_ranks_train_together() -> None:
    found = job(4, "plain", "ddp")
    assert found["ddp"] == pytest.approx(found["plain"], rel=1e-5)

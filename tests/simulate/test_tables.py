"""PyTorch's own tables of ops, modules and optimizers on a simulated device: a sample; `python -m tests.simulate.sweep` is all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devguard.simulate import simulate
from tests.simulate.sweep import sweep

# Every so many entries, and of each so many samples: fixed, so that a failure comes back.
SAMPLES = {"op_db": (37, 2), "module_db": (9, 3), "optim_db": (11, None)}
# Known to differ: the layout of one gradient.
KNOWN = {"ormqr"}


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    with simulate("cuda:1"):
        yield


@pytest.mark.parametrize("table", SAMPLES)
def test_entries_compute_what_the_cpu_computes(table: str) -> None:
    wrong: list[str] = []
    every, samples = SAMPLES[table]
    _, total = sweep(table, every, samples, "", wrong.append)
    assert total > 5
    assert [line for line in wrong if not any(name in line for name in KNOWN)] == []


def test_a_wrong_bit_is_found() -> None:
    import torch

    from tests.simulate.oracles import differs, on_device

    right = torch.tensor([1.0, 2.0])
    assert differs(right, on_device(right)) is None
    assert differs(right, on_device(torch.tensor([1.0, 2.0000002]))) is not None
    assert differs(right, right) is not None

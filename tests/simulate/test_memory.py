"""Memory of simulated devices is counted as it comes and goes, and is refused in CUDA's words where there is no more."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from devguard.simulate import simulate
from devguard.simulate.memory import parse_size

cuda = torch.cuda
MIB = 1 << 20


@pytest.fixture
def two_gpus() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


@pytest.mark.usefixtures("two_gpus")
def test_a_tensor_counts_while_it_lives() -> None:
    tensor = torch.zeros(MIB, dtype=torch.uint8, device="cuda:1")
    assert (cuda.memory_allocated(0), cuda.memory_allocated(1)) == (0, MIB)
    del tensor
    assert cuda.memory_allocated(1) == 0
    assert cuda.max_memory_allocated(1) == MIB


@pytest.mark.usefixtures("two_gpus")
def test_small_tensors_count_as_whole_blocks() -> None:
    tensor = torch.zeros(1, device="cuda")
    assert cuda.memory_allocated() == 512
    assert tensor.shape == (1,)


@pytest.mark.usefixtures("two_gpus")
def test_views_share_and_keep_memory() -> None:
    tensor = torch.zeros(1024, 1024, dtype=torch.uint8, device="cuda")
    views = [tensor[0], tensor.t(), tensor.detach(), tensor.view(-1), tensor.data]
    assert cuda.memory_allocated() == MIB
    del tensor
    assert cuda.memory_allocated() == MIB
    views.clear()
    assert cuda.memory_allocated() == 0


@pytest.mark.usefixtures("two_gpus")
def test_what_the_graph_saves_counts() -> None:
    x = torch.ones(MIB // 4, device="cuda", requires_grad=True)
    y = (x * 2).exp().sum()
    assert cuda.memory_allocated() >= 2 * MIB
    y.backward()
    del y
    assert cuda.memory_allocated() == 2 * MIB  # x and its gradient


@pytest.mark.usefixtures("two_gpus")
def test_resizing_counts() -> None:
    tensor = torch.zeros(0, dtype=torch.uint8, device="cuda")
    tensor.resize_(MIB)
    assert cuda.memory_allocated() == MIB
    tensor.untyped_storage().resize_(0)
    assert cuda.memory_allocated() == 0


@pytest.mark.usefixtures("two_gpus")
def test_a_model_moves_its_memory() -> None:
    model = nn.Linear(512, 512, bias=False).cuda()
    assert cuda.memory_allocated(0) == MIB
    model.to("cuda:1")
    assert (cuda.memory_allocated(0), cuda.memory_allocated(1)) == (0, MIB)
    model.cpu()
    gc.collect()
    assert cuda.memory_allocated(1) == 0


@pytest.mark.usefixtures("two_gpus")
def test_peaks_reset_and_caches_empty() -> None:
    torch.zeros(4 * MIB, dtype=torch.uint8, device="cuda")
    assert (cuda.max_memory_allocated(), cuda.memory_allocated()) == (4 * MIB, 0)
    assert cuda.memory_reserved() >= 4 * MIB
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == 0
    cuda.empty_cache()
    assert cuda.memory_reserved() == 0
    assert cuda.mem_get_info() == (80 << 30, 80 << 30)


@pytest.mark.usefixtures("two_gpus")
def test_the_summary_and_the_figures_agree() -> None:
    tensor = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")
    stats = cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == tensor.nbytes
    if hasattr(torch.accelerator, "memory_allocated"):  # PyTorch 2.9
        assert torch.accelerator.memory_allocated() == tensor.nbytes
    assert "3072 KiB" in cuda.memory_summary()


def test_a_limit_is_kept_and_what_was_refused_does_not_count() -> None:
    with simulate("cuda:2", memory="2MiB"):
        kept = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.cat([kept, kept])
        assert str(caught.value).startswith(
            "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 2.00 MiB of which 1.00 MiB is free. "
        )
        del caught
        assert cuda.memory_allocated() == cuda.max_memory_allocated() == MIB
        assert kept.to("cuda:1").is_cuda
        del kept
        assert torch.zeros(2 * MIB, dtype=torch.uint8, device="cuda").is_cuda


def test_a_tensor_too_large_is_refused_before_it_is_made() -> None:
    with simulate("cuda:1", memory="1GiB"), pytest.raises(torch.OutOfMemoryError, match=r"allocate 3725.29 GiB"):
        torch.empty(10**12, device="cuda")


def test_out_of_memory_is_cuda_s_own_exception() -> None:
    with simulate("cuda:1", memory=1024):
        with pytest.raises(cuda.OutOfMemoryError):
            torch.ones(1024, device="cuda")
        with pytest.raises(RuntimeError, match="CUDA out of memory"):
            torch.ones(1024).cuda()
        assert cuda.get_device_properties(0).total_memory == 1024
        assert cuda.memory_stats()["num_ooms"] == 2


def test_a_fraction_limits_too() -> None:
    with simulate("cuda:1", memory="4MiB"):
        cuda.set_per_process_memory_fraction(0.5)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GiB", 16 << 30), ("500 MB", 500 << 20), ("1.5g", 3 << 29), ("1024", 1024), (7, 7), (None, None)],
)
def test_sizes_are_read(text: str | int | None, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["lots", "-1", "16 GiBs", "0", ""])
def test_a_size_that_means_nothing_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="memory") as caught:
        simulate("cuda:1", memory=text)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(MIB // 8, dtype=torch.complex64, device="cuda"),
        lambda: torch.eye(512, device="cuda").to_sparse(),
        lambda: torch.eye(512, device="cuda").to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.zeros(600, device="cuda"), torch.zeros(900, device="cuda")]),
    ],
    ids=["complex", "sparse", "csr", "nested"],
)
def test_every_kind_of_tensor_counts(make: Callable[[], torch.Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = make()
    assert cuda.memory_allocated() > 512
    del tensor
    gc.collect()
    assert cuda.memory_allocated() == 0

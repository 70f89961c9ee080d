"""A non_blocking copy is wrong until a synchronization covers it, the same way in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from devguard.simulate import simulate

cuda = torch.cuda


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


def numbers(device: str = "cuda") -> torch.Tensor:
    return torch.arange(1.0, 5.0, device=device)


RIGHT = torch.arange(1.0, 5.0)


def right(tensor: torch.Tensor) -> bool:
    return torch.equal(tensor, RIGHT)


def test_a_copy_to_the_host_is_late_and_wrong_everywhere() -> None:
    host = torch.tensor([0.0, 2.0, 0.0], device="cuda").to("cpu", non_blocking=True)
    assert host.is_pinned()
    assert host.tolist() == [1, 0, 1]


WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "cuda.synchronize": lambda x: cuda.synchronize(),
    "accelerator.synchronize": lambda x: torch.accelerator.synchronize(),
    "stream.synchronize": lambda x: cuda.current_stream().synchronize(),
    "stream.query": lambda x: cuda.current_stream().query(),
    "item": lambda x: x.sum().item(),
    "if": lambda x: bool(x.sum() > 0),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 2],
    "pageable copy in": lambda x: torch.ones(2).cuda(),
    "copy_ to the host": lambda x: torch.empty(4).copy_(x),
    "print": lambda x: repr(x),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_the_stream_brings_it(name: str) -> None:
    x = numbers()
    host = x.to("cpu", non_blocking=True)
    assert not right(host)
    WAITS[name](x)
    assert right(host)


@pytest.mark.parametrize(
    "work",
    [lambda x: x + 1, lambda x: x.to("cuda:1"), lambda x: torch.zeros(2, device="cuda"), lambda x: x.shape],
    ids=["op", "peer copy", "factory", "shape"],
)
def test_other_work_does_not_bring_it(work: Callable[[torch.Tensor], object]) -> None:
    x = numbers()
    host = x.to("cpu", non_blocking=True)
    work(x)
    assert not right(host)


def test_a_wait_for_another_stream_does_not_bring_it() -> None:
    side = cuda.Stream()
    x = numbers()
    with cuda.stream(side):
        host = x.to("cpu", non_blocking=True)
    x.cpu()
    assert not right(host)
    side.synchronize()
    assert right(host)


def test_a_wait_for_another_device_does_not_bring_it() -> None:
    host = numbers().to("cpu", non_blocking=True)
    cuda.synchronize(1)
    numbers("cuda:1").cpu()
    assert not right(host)


def test_a_stream_that_waited_for_another_brings_its_copies() -> None:
    side = cuda.Stream()
    x = numbers()
    with cuda.stream(side):
        host = x.to("cpu", non_blocking=True)
    cuda.current_stream().wait_stream(side)
    assert not right(host)
    x.sum().item()
    assert right(host)


def test_an_event_covers_what_was_before_it() -> None:
    x = numbers()
    early = x.to("cpu", non_blocking=True)
    event = cuda.Event()
    event.record()
    late = x.to("cpu", non_blocking=True)
    event.synchronize()
    assert right(early)
    assert not right(late)


def test_pinned_memory_keeps_its_bytes_until_then() -> None:
    pinned = torch.full((4,), 9.0).pin_memory()
    pinned.copy_(numbers(), non_blocking=True)
    assert pinned.tolist() == [9, 9, 9, 9]
    cuda.synchronize()
    assert right(pinned)


def test_a_copy_to_pageable_memory_blocks() -> None:
    pageable = torch.zeros(4)
    pageable.copy_(numbers(), non_blocking=True)
    assert right(pageable)


def test_a_blocking_copy_is_right_at_once() -> None:
    assert right(numbers().to("cpu"))
    assert right(numbers().cpu())


def test_a_later_change_on_the_device_does_not_reach_the_copy() -> None:
    x = numbers()
    host = x.to("cpu", non_blocking=True)
    x.zero_()
    cuda.synchronize()
    assert right(host)


def test_a_device_that_reads_in_order_reads_right() -> None:
    host = numbers().to("cpu", non_blocking=True)
    assert right(host.to("cuda", non_blocking=True).cpu())


def test_an_overwritten_pinned_source_spoils_its_copy() -> None:
    source = torch.ones(4).pin_memory()
    x = source.to("cuda", non_blocking=True)
    source.fill_(7)
    total = x.sum()
    cuda.synchronize()
    assert total.item() == 28
    assert x.tolist() == [7, 7, 7, 7]


@pytest.mark.parametrize("pin", [True, False], ids=["after a wait", "pageable"])
def test_a_source_may_be_overwritten(pin: bool) -> None:
    source = torch.ones(4).pin_memory() if pin else torch.ones(4)
    x = source.to("cuda", non_blocking=True)
    if pin:
        cuda.synchronize()
    source.fill_(7)
    assert x.tolist() == [1, 1, 1, 1]


def test_a_target_that_was_written_since_is_left_alone() -> None:
    source = torch.ones(4).pin_memory()
    x = source.to("cuda", non_blocking=True)
    x.mul_(2)
    source.fill_(7)
    cuda.synchronize()
    assert x.tolist() == [2, 2, 2, 2]


def test_copies_come_in_while_the_simulation_ends() -> None:
    from devguard.simulate import active

    host = numbers().to("cpu", non_blocking=True)
    running = active()
    assert running is not None
    running.stop()
    assert right(host)


def test_many_copies_on_the_way_are_not_all_kept() -> None:
    from devguard.simulate import active

    running = active()
    assert running is not None
    hosts = [numbers().to("cpu", non_blocking=True) for _ in range(100)]
    assert len(running.late.pending) <= 64
    assert right(hosts[0])
    assert not right(hosts[-1])


def test_a_copy_made_in_inference_mode_arrives_outside_it() -> None:
    with torch.inference_mode():
        host = numbers().to("cpu", non_blocking=True)
    cuda.synchronize()
    assert right(host)


@torch.inference_mode()
def test_copies_from_and_to_pinned_memory_that_counts_no_versions() -> None:
    source = torch.arange(4.0).pin_memory()
    moved = source.to("cuda", non_blocking=True)
    host = torch.empty(4, pin_memory=True)
    host.copy_(moved, non_blocking=True)
    cuda.synchronize()
    assert host.tolist() == moved.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pinning_loader_in_inference_mode(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    with torch.inference_mode():
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
        batches = [batch.to("cuda", non_blocking=True) for (batch,) in loader]
        assert torch.cat(batches).tolist() == data.tensors[0].tolist()


def train(device: str, loader: torch.utils.data.DataLoader[tuple[torch.Tensor, ...]]) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_usual_training_loop_computes_what_the_cpu_does(workers: int) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
    plain = torch.utils.data.DataLoader(data, batch_size=4)
    pinning = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    assert train("cuda", pinning) == train("cpu", plain)

"""A training job of several ranks with one simulated GPU each, started by torchrun in test_distributed.py.

Each check gives one value per rank; rank 0 prints all of them as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from devguard.simulate import simulate

RANK, WORLD = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def batch(rank: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(rank))


def train(network: nn.Module, data: torch.Tensor) -> float:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        loss = network(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(network(data).square().mean())


def plain() -> float:
    """The same training in one process on the CPU, on all ranks' data."""
    return train(model(), torch.cat([batch(r) for r in range(WORLD)]))


def collectives() -> list[Any]:
    one = torch.full((2,), float(RANK), device="cuda")
    dist.all_reduce(one)
    parts = [torch.zeros(1, device="cuda") for _ in range(WORLD)]
    dist.all_gather(parts, torch.full((1,), float(RANK), device="cuda"))
    whole = torch.zeros(WORLD, device="cuda")
    dist.all_gather_into_tensor(whole, torch.full((1,), float(RANK), device="cuda"))
    share = torch.zeros(1, device="cuda")
    dist.reduce_scatter_tensor(share, torch.arange(float(WORLD), device="cuda"))
    objects: list[Any] = [None] * WORLD
    dist.all_gather_object(objects, RANK)
    dist.barrier()
    return [one[0].item(), [p.item() for p in parts], whole.tolist(), share.item(), objects, str(one.device)]


def refusal() -> str:
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        return str(error)
    return "accepted"


def ddp() -> float:
    network = nn.parallel.DistributedDataParallel(model().cuda(), device_ids=[RANK])
    train(network, batch(RANK))
    everything = torch.cat([batch(r) for r in range(WORLD)]).cuda()
    return float(network.module(everything).square().mean())


def fsdp2() -> float:
    from torch.distributed.fsdp import fully_shard

    network = model().cuda()
    for layer in network:
        fully_shard(layer)
    fully_shard(network)
    return train(network, torch.cat([batch(r) for r in range(WORLD)]).cuda())


def fsdp1() -> float:
    from torch.distributed.fsdp import FullyShardedDataParallel

    network = FullyShardedDataParallel(model().cuda(), device_id=RANK)
    return train(network, torch.cat([batch(r) for r in range(WORLD)]).cuda())


def batch_norm() -> list[float]:
    network = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4)).cuda()
    network = nn.parallel.DistributedDataParallel(network, device_ids=[RANK])
    network(batch(RANK)).sum().backward()
    expected = nn.BatchNorm1d(4)
    expected(torch.cat([batch(r) for r in range(WORLD)]))
    return [
        (getattr(network.module, n).cpu() - getattr(expected, n)).abs().max().item()
        for n in ("running_mean", "running_var")
    ]


CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check for check in (plain, collectives, refusal, ddp, fsdp2, fsdp1, batch_norm)
}


def main() -> None:
    found = {}
    with simulate(f"cuda:{WORLD}"):
        torch.cuda.set_device(RANK)
        dist.init_process_group("nccl", device_id=torch.device("cuda", RANK))
        found["backend"] = [dist.get_backend()]
        for name in sys.argv[1:]:
            every: list[Any] = [None] * WORLD
            dist.all_gather_object(every, CHECKS[name]())
            found[name] = every
        dist.destroy_process_group()
    if RANK == 0:
        print(json.dumps(found))


main()

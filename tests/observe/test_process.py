"""Ranks, the job's store, and autocast regions, apart from the rules' judgement."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import devguard
from devguard.observe.process_facts import ProcessFacts, Ranks


def test_ranks_as_torchrun_sets_them() -> None:
    told = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    assert Ranks.of(told) == Ranks(5, 1, 8, 4)


def test_ranks_as_slurm_sets_them() -> None:
    told = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}
    assert Ranks.of(told) == Ranks(3, 1, 4, None)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"LOCAL_RANK": "0"},
        {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "0", "LOCAL_RANK": "-1", "WORLD_SIZE": "2"},
        {"RANK": "x", "LOCAL_RANK": "y", "WORLD_SIZE": "z"},
    ],
)
def test_a_process_that_is_no_part_of_a_job(told: dict[str, str]) -> None:
    assert Ranks.of(told) is None


def join(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    """Let this process look like one of a process group."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)


def test_spawned_ranks_without_a_launcher_s_variables_compare_too(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = torch.distributed.HashStore()
    store.set("devguard/device/0", f"{socket.gethostname()}|0")
    join(monkeypatch, rank=1, world=2)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda"))
        messages = [f.message for f in watch.report.findings if f.rule == "DG109"]
    assert messages == ["rank 1 and rank 0 both use cuda:0 of this machine"]


@pytest.mark.parametrize(("place", "expected"), [(None, 1), ("cpu", 0), ("cuda:1", 0)])
def test_a_spawned_rank_loads_a_checkpoint(place: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = torch.distributed.HashStore()
    join(monkeypatch, rank=1, world=2)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    file = io.BytesIO()
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        torch.save({"weight": torch.ones(2, device="cuda:0")}, file)
        file.seek(0)
        model = nn.Linear(2, 2).to("cuda:1")
        torch.load(file, map_location=place)
        model(torch.ones(1, 2, device="cuda:1"))
        causes = [f.cause.text for f in watch.report.findings if f.rule == "DG109" and f.cause is not None]
    assert causes == ["torch.load(file, map_location=place)"] * expected


def test_ranks_compare_their_devices_through_the_job_s_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = torch.distributed.HashStore()
    store.set("devguard/device/0", f"{socket.gethostname()}|1")
    join(monkeypatch, rank=1, world=3)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "3"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    with devguard.simulate("cuda:4"), devguard.watch() as watch:
        torch.cuda.set_device(1)
        model = nn.Linear(2, 2).cuda()
        for _ in range(3):
            model(torch.ones(1, 2, device="cuda"))
        report = watch.report
    assert store.get("devguard/device/1").decode() == f"{socket.gethostname()}|1"
    found = [f for f in report.findings if f.rule == "DG109"]
    assert [f.message for f in found] == ["rank 1 and rank 0 both use cuda:1 of this machine"]
    assert found[0].cause is not None
    assert found[0].cause.text == "model = nn.Linear(2, 2).cuda()"


def test_a_store_that_is_gone_is_no_failure_of_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RuntimeError("connection reset by peer")

    join(monkeypatch, rank=1, world=3)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lost)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        torch.cuda.set_device(1)
        nn.Linear(2, 2).cuda()(torch.ones(1, 2, device="cuda"))
        assert watch.report.complete
        assert watch.report.findings == []


def test_autocast_is_looked_into_a_few_times_only() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        model = nn.Linear(2, 2).cuda()
        x = torch.ones(1, 2, device="cuda")
        for _ in range(10):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                model(x)
                assert watch._mode is not None
        (use,) = watch._recorder.facts.table(ProcessFacts).autocast.values()
        assert (use.entered, use.other) == (10, 3)
        assert watch._mode.handlers.every == ()


def test_autocast_left_by_an_exception_listens_no_longer() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        with pytest.raises(KeyError), torch.autocast("cuda"):
            raise KeyError("out")
        assert watch._mode is not None
        assert watch._mode.handlers.every == ()


def test_a_model_is_counted_by_its_outermost_calls(tmp_path: Path) -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        for _ in range(4):
            model(torch.ones(1, 2))
        (use,) = watch._recorder.facts.table(ProcessFacts).models.values()
        assert (use.kind, use.numel, use.calls, use.devices) == ("Sequential", 6, 4, {-1})

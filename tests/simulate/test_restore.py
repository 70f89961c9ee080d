"""Leaving a simulation gives back every name, and what ran in it can't be used by mistake afterwards."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.distributed
import torch.utils.data
from torch import nn

from devguard.simulate import active, simulate

OWNERS = """
torch torch.Tensor torch._C torch._C.TensorBase torch.cuda torch.cuda.streams torch.cuda.graphs torch.cuda.memory
torch.cuda.random torch.cuda.nvtx torch.cuda.nccl torch.cuda.amp.common torch.accelerator torch.accelerator.memory
torch.nn.Module torch.nn.Parameter torch.nn.functional torch.nn.parallel.comm torch.storage torch.UntypedStorage
torch.TypedStorage torch.serialization torch._utils torch.random torch.amp torch.autograd torch.autograd.graph
torch.autograd.function.BackwardCFunction torch.autograd.profiler.profile torch.autograd.profiler.emit_nvtx
torch.backends.cuda torch.backends.cudnn torch.backends.mps torch.backends.mkldnn torch.backends.cuda.cuFFTPlanCache
torch.version torch.optim.Optimizer torch.utils._foreach_utils torch.utils._device torch.utils.data torch.distributed
torch.distributed.distributed_c10d torch.multiprocessing.reductions torch.jit.annotations torch.compiler
""".split()


def namespaces() -> dict[str, dict[str, Any]]:
    found = {}
    for path in OWNERS:
        first, *rest = path.split(".")
        owner: Any = sys.modules[first]
        for name in rest:
            owner = getattr(owner, name, None)
        found[path] = dict(vars(owner)) if owner else {}  # older PyTorch lacks some
    return found


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{path}.{name}"
        for path in before
        for name in {**before[path], **after[path]}
        if before[path].get(name) is not after[path].get(name) and name not in ("_device_t", "__warningregistry__")
    ]


def work() -> None:
    """Touch as many parts as possible."""
    model = nn.Linear(2, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cuda"):
        model(torch.ones(2, 2, device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.manual_seed(1)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.ones(2, device="cuda:1").to("cpu", non_blocking=True)
    nn.DataParallel(model)(torch.ones(4, 2, device="cuda"))
    torch.cuda.set_sync_debug_mode(1)
    torch.set_default_device("cuda")


with simulate("cuda:2"):  # what PyTorch imports and keeps for good on first use is not the simulation's doing
    work()


def test_every_name_is_given_back() -> None:
    before = namespaces()
    with simulate("cuda:2", memory="1GiB"):
        assert differences(before, namespaces())
        work()
    assert differences(before, namespaces()) == []


def test_every_name_is_given_back_after_an_error() -> None:
    before = namespaces()
    with pytest.raises(RuntimeError, match="same device"), simulate("cuda:1"):
        torch.ones(1, device="cuda") + torch.ones(1)
    assert differences(before, namespaces()) == []
    assert active() is None


def test_a_start_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from devguard.simulate import autocast

    before = namespaces()
    monkeypatch.setattr(autocast, "install", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        simulate("cuda:1").start()
    assert differences(before, namespaces()) == []
    assert active() is None


def test_cuda_is_what_it_was() -> None:
    state = torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized()
    with simulate("cuda:3"):
        torch.ones(1, device="cuda:2")
    assert (torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized()) == state


def test_one_simulation_at_a_time() -> None:
    with simulate("cuda:1"), pytest.raises(RuntimeError, match="a simulation is running already"):
        simulate("cuda:1").start()


def test_simulations_follow_each_other() -> None:
    for count in (1, 2, 1):
        with simulate(f"cuda:{count}"):
            assert torch.ones(2, device=f"cuda:{count - 1}").sum().item() == 2


def test_a_function_runs_in_its_own_simulation() -> None:
    @simulate("cuda:2")
    def count() -> int:
        return torch.cuda.device_count()

    assert count() == 2
    assert active() is None


def test_a_tensor_that_outlives_its_simulation_says_so() -> None:
    with simulate("cuda:1"):
        tensor = torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="the simulation has ended"):
        tensor + 1


@pytest.mark.parametrize("spec", ["gpu", "cuda:0", "cuda:x", "cuda:65", "", "xpu:1"])
def test_a_spec_that_means_nothing_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(ValueError, match="can't simulate") as caught:
        simulate(spec)
    assert "\n" not in str(caught.value)

"""The simulated driver answers what PyTorch's own code asks of torch._C, on every kind of build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from devguard.simulate import simulate

# Asked by nobody but compiled graphs, custom allocators, kernels written as text, and ROCm.
UNANSWERED = frozenset({
    "_cuda_CUDAAllocator", "_cuda_allocationTraceback", "_cuda_beginAllocateCurrentStreamToPool",
    "_cuda_changeCurrentAllocator", "_cuda_checkPoolLiveAllocations", "_cuda_cudaHostAllocator", "_cuda_customAllocator",
    "_cuda_getAllocator", "_cuda_getCheckpointState", "_cuda_getHipblasltVersion",
    "_cuda_jiterator_compile_and_launch_kernel", "_cuda_setCheckpointPoolState",
})  # fmt: skip


def answered() -> set[str]:
    before = dict(vars(torch._C))
    with simulate("cuda:1"):
        return {name for name, value in vars(torch._C).items() if before.get(name) is not value}


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the list is that of PyTorch 2.13")
def test_whatever_pytorch_asks_is_answered() -> None:
    asked = set()
    for file in Path(torch.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8", errors="ignore")
        asked |= set(re.findall(r"torch\._C\.(_cuda_\w+|_nccl_\w+|_accelerator_\w+)", text))
    assert asked - answered() == UNANSWERED


def test_a_build_with_cuda_and_no_gpu_works_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a build has all functions, and each of them reaches a driver that is not there."""

    def no_driver(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Found no NVIDIA driver on your system")

    for name in answered():
        if name.startswith(("_cuda_", "_nccl_")):
            monkeypatch.setattr(torch._C, name, no_driver, raising=False)
    for name in ("_exchange_device", "_maybe_exchange_device"):
        monkeypatch.setattr(torch.cuda, name, no_driver)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    before = dict(vars(torch._C))
    with simulate("cuda:2"):
        assert (torch.cuda.is_available(), torch.cuda.device_count()) == (True, 2)
        with torch.cuda.device(1), torch.cuda.stream(torch.cuda.Stream()):
            tensor = torch.rand(3, device="cuda").requires_grad_()
        torch.nn.Linear(3, 1, device="cuda:1")(tensor).sum().backward()
        assert tensor.grad is not None
        assert tensor.grad.get_device() == 1
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated(1) > 0
        assert torch.version.cuda == "13.0"
    assert dict(vars(torch._C)) == before
    with pytest.raises(RuntimeError, match="no NVIDIA driver"):
        torch._C._cuda_getDeviceCount()

"""Which messages are about devices, in the wordings of several versions of PyTorch."""

from __future__ import annotations

import pytest

from devguard.knowledge.device_errors import generator_devices, host_argument, is_device_error, locations

ABOUT_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on cuda:0 "
    "(when checking argument in method wrapper_CUDA_addmm)",
    "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu",
    "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: cpu",
    "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
    "Expected a 'cuda' device type for generator but found 'cpu'",
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
    "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
    "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'cuda'.",
    "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on device: cpu",
)
ABOUT_OTHER_THINGS = (
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "CUDA error: device-side assert triggered",
    "mat1 and mat2 shapes cannot be multiplied (2x4 and 3x3)",
    "Expected object of scalar type Float but got scalar type Double",
    "Torch not compiled with CUDA enabled",
)


@pytest.mark.parametrize("text", ABOUT_DEVICES)
def test_device_errors_are_known(text: str) -> None:
    assert is_device_error(text)


@pytest.mark.parametrize("text", ABOUT_OTHER_THINGS)
def test_other_errors_are_left_alone(text: str) -> None:
    assert not is_device_error(text)


@pytest.mark.parametrize(
    ("text", "argument"), [(ABOUT_DEVICES[6], "lengths"), (ABOUT_DEVICES[8], "self"), (ABOUT_DEVICES[0], "")]
)
def test_argument_that_must_stay_on_the_host(text: str, argument: str) -> None:
    assert host_argument(text) == argument


def test_generator_is_named_with_both_devices() -> None:
    assert generator_devices(ABOUT_DEVICES[7]) == ("cuda", "cpu")
    assert generator_devices(ABOUT_DEVICES[0]) is None


def test_traceback_that_a_worker_sends_is_read() -> None:
    text = 'Caught RuntimeError in DataLoader worker process 0.\nTraceback:\n  File "a.py", line 3, in load\n    x.cuda()\n'
    assert locations(text) == [("a.py", 3, "load")]

"""Operands on several devices: accepted and refused as on CUDA, in PyTorch's own words.

Each row of cross_device.json is [expression, outcome, message, device of the result, certainty]: what PyTorch 2.13 does with a
CUDA device behind it ("sure"), or its source says it does ("likely"); "no cudnn" rows hold with cuDNN switched off.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion

from devguard.knowledge import placement
from devguard.simulate import simulate

F = nn.functional
ROWS = json.loads((Path(__file__).parent / "cross_device.json").read_text(encoding="utf-8"))
VERSION = TorchVersion(torch.__version__)
# Rows that are not true of every release: up to which ones PyTorch composed or worded them otherwise.
OTHERWISE_IN = {
    "F.cosine_similarity(x,c)": "2.8",
    "F.rms_norm(x,(2,),torch.ones(2))": "2.8",
    "torch.hypot(x,s)": "2.8",
    "torch.autograd.grad(D(2).requires_grad_().sum(),torch.ones(2).requires_grad_())": "2.11",
}
NEW_WORDS = placement._names_the_odd_one()


def on(*shape: int, i: int = 0, **kwargs: Any) -> torch.Tensor:
    return torch.ones(*shape, device=f"cuda:{i}", **kwargs)


def operands() -> dict[str, Any]:
    return {
        "torch": torch,
        "np": numpy,
        "F": F,
        "D": on,
        "x": on(2, 2),
        "y": on(2, 2, i=1),
        "c": torch.ones(2, 2),
        "s": torch.tensor(1.0),
        "g": on(2, 2).sum(),
        "g1": on(2, 2, i=1).sum(),
        "mb": on(2, 2) > 0,
        "li": on(2, dtype=torch.int64) * 0,
    }


def outcome(expression: str) -> tuple[str, str, str]:
    """(kind, message, device of the result) of running one expression."""
    try:
        result = eval(expression, operands())
    except Exception as error:
        kind = type(error).__name__
        return ("torch." if kind == "AcceleratorError" else "") + kind, str(error), ""
    return "ok", "", str(getattr(result, "device", ""))


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    with simulate("cuda:2"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.skipif(not NEW_WORDS, reason="the rows are in the words of 2.9 and later")
@pytest.mark.parametrize("certainty", sorted({row[-1] for row in ROWS}))
def test_mixed_operands_end_as_on_cuda(certainty: str) -> None:
    wrong = []
    for expression, expected, message, device, kind in ROWS:
        if kind != certainty or OTHERWISE_IN.get(expression, "0") + ".99" > VERSION:
            continue
        with torch.backends.cudnn.flags(enabled=certainty != "no cudnn"):
            found = outcome(expression)
        if found[0] != expected or message not in found[1] or (device and found[2] != device):
            wrong.append(f"{expression}: {found}, expected {expected} {message} {device}")
    assert wrong == []


CUDNN = "Input type ({0}) and {1} type ({2}) should be the same"
ONEDNN = CUDNN + " or input should be a MKLDNN tensor and {1} is a dense tensor"
GPU, HOST = "torch.cuda.FloatTensor", "torch.FloatTensor"


def kernel(argument: str, device: str, common: str, wrapper: str) -> str:
    return placement.kernel_check(f"wrapper_CUDA_{wrapper}", argument, device, common)


# Expression -> what the library says that CUDA would give it to.
SAID = {
    "F.conv2d(D(2, 1, 9, 9), torch.ones(1, 1, 3, 3))": CUDNN.format(GPU, "weight", HOST),
    "F.conv2d(D(2, 1, 9, 9), D(1, 1, 3, 3), torch.ones(1))": CUDNN.format(GPU, "bias", HOST),
    "F.conv2d(torch.ones(2, 1, 9, 9), D(1, 1, 3, 3))": ONEDNN.format(HOST, "weight", GPU),
    "F.conv2d(D(2, 1, 9, 9), D(1, 1, 3, 3), D(1, i=1))": placement.iterator_check("cuda:0", "cuda:1"),
    "F.conv2d(D(2, 1, 9, 9), D(1, 1, 3, 3, i=1))": kernel("weight", "cuda:1", "cuda:0", "_cudnn_convolution"),
    "torch.nn.Conv1d(1, 1, 2)(D(2, 1, 9))": CUDNN.format(GPU, "weight", HOST),
    "torch.nn.ConvTranspose2d(1, 1, 2)(D(2, 1, 9, 9))": CUDNN.format(GPU, "weight", HOST),
    "torch.nn.BatchNorm2d(2)(D(2, 2, 2, 2))": kernel("weight", "cpu", "cuda:0", "_cudnn_batch_norm"),
    "torch.nn.BatchNorm1d(2)(D(2, 2))": kernel("weight", "cpu", "cuda:0", "_native_batch_norm"),
    "torch.nn.Embedding(2, 2)(li)": kernel("index", "cuda:0", "cpu", "_index_select"),
    "torch.nn.LSTMCell(2, 2)(x)": kernel("mat2", "cpu", "cuda:0", "mm"),
    "torch.nn.Linear(2, 2)(x)": kernel("mat1", "cuda:0", "cpu", "addmm"),
    "x.clone().index_put_((li,), torch.ones(2, 2))": placement.iterator_check("cuda:0", "cpu"),
}


@pytest.mark.parametrize("expression", SAID)
def test_the_library_that_would_run_speaks(expression: str) -> None:
    assert outcome(expression)[1] == SAID[expression]


def test_shapes_are_looked_at_before_the_devices_of_an_element_wise_op() -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        on(3) + torch.ones(2)


def test_results_of_lists_stay_with_their_operands() -> None:
    sums = torch._foreach_add([on(1), on(1, i=1), torch.ones(1)], [on(1), on(1, i=1), torch.ones(1)])
    assert [str(t.device) for t in sums] == ["cuda:0", "cuda:1", "cpu"]


@pytest.mark.skipif(VERSION < "2.11", reason="a hook may not change a gradient's device in 2.8")
def test_the_gradient_of_a_cpu_scalar_comes_home() -> None:
    scale = torch.tensor(2.0, requires_grad=True)
    x = on(3).requires_grad_()
    for _ in range(2):
        (x * scale + scale * 3).sum().backward()
    assert scale.grad is not None
    assert x.grad is not None
    assert (scale.grad.device.type, scale.grad.item()) == ("cpu", 24)
    assert x.grad.is_cuda


class Returns(torch.autograd.Function):
    """Its backward gives what the test wants."""

    device = "cpu"

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        return a * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0].to(Returns.device)


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_a_function_must_return_gradients_where_its_input_is(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Returns, "device", device)
    x = on(2).requires_grad_()
    with pytest.raises(
        RuntimeError, match=f"returned an invalid gradient at index 0 - expected device cuda:0 but got {device}"
    ):
        Returns.apply(x).sum().backward()


def test_numpy_asks_for_a_copy_on_the_host() -> None:
    for read in (lambda t: t.numpy(), numpy.asarray, lambda t: numpy.add(t, 1)):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            read(on(2))


def test_a_loader_s_generator_must_be_on_the_cpu() -> None:
    loader = torch.utils.data.DataLoader([1, 2], shuffle=True, generator=torch.Generator("cuda"))
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        list(loader)


def test_a_random_split_s_generator_must_be_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.utils.data.random_split([1, 2], [1, 1], generator=torch.Generator("cuda"))  # type: ignore[arg-type]


def test_a_shuffled_loader_fails_under_a_default_device() -> None:
    with torch.device("cuda"), pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        list(torch.utils.data.DataLoader([1, 2], shuffle=True))


def test_lengths_of_packed_sequences_stay_on_the_cpu_in_inference_mode_too() -> None:
    with (
        torch.inference_mode(),
        pytest.raises(RuntimeError, match="should be a 1D CPU int64 tensor, but got 1D cuda:0"),
    ):
        nn.utils.rnn.pack_padded_sequence(on(2, 1, 3), torch.tensor([2], device="cuda"))


def test_a_tensor_learning_rate_may_be_on_the_cpu() -> None:
    parameter = nn.Parameter(on(2))
    parameter.grad = on(2)
    torch.optim.Adam([parameter], lr=torch.tensor(0.1), fused=True).step()
    assert parameter.is_cuda


def test_the_old_words_are_those_of_older_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_names_the_odd_one", lambda: False)
    with pytest.raises(RuntimeError) as caught:
        on(2, 2) @ torch.ones(2, 2)
    assert str(caught.value) == (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        "(when checking argument for argument mat2 in method wrapper_CUDA_mm)"
    )


# the table ------------------------------------------------------------------------------------------------------------


def test_the_shipped_table_is_what_torchgen_gives() -> None:
    pytest.importorskip("yaml", reason="torchgen needs PyYAML")
    from devguard.knowledge import build_placement

    built, table = build_placement.build(), placement.table()
    assert {name: tuple(row) for name, row in built["kernels"].items()} == table.kernels
    assert frozenset(built["cpu_only"]) == table.cpu_only


def test_a_version_without_a_table_gets_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    from devguard.knowledge import build_placement

    def fails() -> dict[str, Any]:
        raise ImportError

    monkeypatch.setattr(build_placement, "build", fails)
    monkeypatch.setattr(placement.metadata, "version", lambda name: "2.99.0+cu999")
    assert placement.table.__wrapped__().kernels["addmm"] == ("wrapper_CUDA_addmm", "self", "mat1", "mat2")


@pytest.mark.parametrize("version", ["2.8.0", "2.10.0+cpu", "2.13.0a0+git123"])
def test_versions_are_read(version: str) -> None:
    assert placement.release(version) == tuple(map(int, version.split("+")[0].split("a")[0].split(".")[:2]))


# what CUDA accepts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_ctc_takes_targets_and_lengths_from_the_host(mode: Any) -> None:
    with mode():
        logits = on(4, 1, 3).log_softmax(2)
        loss = F.ctc_loss(logits, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))
    assert loss.is_cuda


def test_half_precision_has_fourier_transforms() -> None:
    x = torch.arange(8.0, device="cuda").half().requires_grad_()
    spectrum = torch.fft.rfft(x)
    assert spectrum.dtype == torch.complex32
    back = torch.fft.irfft(spectrum)
    back.float().sum().backward()
    assert (back.dtype, x.grad is not None and x.grad.dtype) == (torch.float16, torch.float16)
    torch.testing.assert_close(back, x)

"""Modules, optimizers and the transforms around them on simulated devices."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from devguard.simulate import simulate


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    with simulate("cuda:2"):
        yield


def test_a_move_keeps_every_parameter_object() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = [id(p) for p in model.parameters()]
    for device in ("cuda", "cuda:1", "cpu", "cuda"):
        model.to(device)
        assert [id(p) for p in model.parameters()] == before
        assert {str(p.device) for p in model.parameters()} == {str(torch.empty(0, device=device).device)}
    assert all(isinstance(p, nn.Parameter) and p.is_leaf for p in model.parameters())


def test_a_number_is_a_device_to_move_to() -> None:
    model = nn.Linear(2, 2)
    assert model.to(1).weight.device == torch.device("cuda:1")
    assert model.to(device=0, dtype=torch.float64).weight.device == torch.device("cuda:0")
    rows = nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert rows.to(1).data.device == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        model.to(2)


def test_a_move_is_possible_while_a_graph_or_a_weakref_is_alive() -> None:
    model = nn.LSTM(3, 3).cuda()
    loss = model(torch.ones(2, 1, 3, device="cuda"))[0].sum()
    reference = weakref.ref(model.weight_ih_l0)
    model.cpu()
    assert loss.is_cuda
    assert reference() is model.weight_ih_l0
    assert model(torch.ones(2, 1, 3))[0].device.type == "cpu"


def test_gradients_move_with_their_parameters() -> None:
    layer = nn.Linear(2, 2).cuda()
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    layer.cpu()
    assert layer.weight.grad is not None
    assert layer.weight.grad.device.type == "cpu"


def test_hooks_survive_a_move() -> None:
    layer = nn.Linear(2, 2)
    seen: list[str] = []
    layer.weight.register_hook(lambda g: seen.append(g.device.type))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    layer.cuda()
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    assert seen == ["cuda", "after"]


def _train(device: str, optimizer: Callable[[Any], torch.optim.Optimizer]) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
    x, y = torch.randn(16, 4).to(device), torch.randint(0, 2, (16,)).to(device)
    stepper = optimizer(model.parameters())
    losses = []
    for _ in range(4):
        stepper.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad"])
def test_training_equals_the_cpu_s(name: str) -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, name)(parameters, lr=0.1, foreach=True)  # type: ignore[no-any-return]

    assert _train("cuda", make) == _train("cpu", make)


def test_optimizers_take_the_implementation_that_cuda_takes() -> None:
    calls: list[str] = []

    class Look(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    layer = nn.Linear(2, 2).cuda()
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer = torch.optim.AdamW(layer.parameters())
    with Look():
        optimizer.step()
    assert "aten::_foreach_addcdiv_" in calls


def test_lazy_modules_are_made_where_they_were_moved() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)).cuda()
    model(torch.ones(2, 3, 8, 8, device="cuda")).sum().backward()
    assert {p.device.type for p in model.parameters()} == {"cuda"}
    assert all(isinstance(p, nn.Parameter) for p in model.parameters())


@pytest.mark.parametrize(
    "wrap", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_parametrizations_move(wrap: Any) -> None:
    layer = wrap(nn.Linear(3, 3)).cuda()
    layer(torch.ones(1, 3, device="cuda")).sum().backward()
    assert {p.grad.device.type for p in layer.parameters() if p.grad is not None} == {"cuda"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_recomputes_with_the_same_random_numbers(reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).cuda()
    x = torch.randn(8, 4, device="cuda", requires_grad=True)
    torch.manual_seed(1)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    torch.manual_seed(1)
    checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, expected)


def test_functional_transforms() -> None:
    layer = nn.Linear(3, 2).cuda()
    parameters = {k: v.detach() for k, v in layer.named_parameters()}
    x = torch.randn(4, 3, device="cuda")

    def loss(p: Any, one: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, p, (one[None],)).sum()

    grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    assert grads["weight"].shape == (4, 2, 3)
    assert grads["weight"].is_cuda
    w = torch.randn(3, device="cuda")
    jacobian = torch.func.jacfwd(lambda v: x @ v)(w)
    assert torch.equal(jacobian, torch.func.jacrev(lambda v: x @ v)(w))
    assert torch.func.hessian(lambda v: ((x @ v) ** 2).sum())(w).shape == (3, 3)


def test_recurrent_layers_run_as_one_op_of_cuda() -> None:
    layer = nn.LSTM(3, 4, 2, batch_first=True).cuda()
    output, _ = layer(torch.randn(2, 5, 3, device="cuda"))
    assert type(output.grad_fn).__name__ in ("CudnnRnnBackward0", "TransposeBackward0")
    output.sum().backward()
    assert layer.weight_hh_l1.grad is not None
    layer.eval()
    with pytest.raises(RuntimeError, match="cudnn RNN backward can only be called in training mode"):
        layer(torch.randn(2, 5, 3, device="cuda"))[0].sum().backward()


def test_attention_runs_as_one_op_of_cuda() -> None:
    q = torch.randn(1, 2, 4, 8, device="cuda", requires_grad=True)
    result = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert type(result.grad_fn).__name__ == "ScaledDotProductEfficientAttentionBackward0"
    plain = q.detach().cpu()
    assert torch.equal(result.detach().cpu(), F.scaled_dot_product_attention(plain, plain, plain, is_causal=True))


def test_autocast_casts_as_cuda_does() -> None:
    layer, norm = nn.Linear(4, 4).cuda(), nn.LayerNorm(4).cuda()
    x = torch.randn(2, 4, device="cuda")
    with torch.autocast("cuda"):
        y = layer(x)
        dtypes = [y.dtype, (x @ x.t()).dtype, norm(y).dtype, y.softmax(-1).dtype, F.mse_loss(y, y).dtype, (y + x).dtype]
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(torch.sigmoid(y), torch.ones_like(y))
    assert dtypes == [torch.float16, torch.float16, *[torch.float32] * 4]
    y.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_autocast_of_the_cpu_leaves_other_devices_alone() -> None:
    x = torch.randn(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x.cuda() @ x.cuda()).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16


def test_scripted_and_traced_modules_run() -> None:
    scripted: Any = torch.jit.script(nn.Linear(2, 2)).cuda()
    assert scripted(torch.ones(1, 2, device="cuda")).is_cuda
    traced: Any = torch.jit.trace(nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda"))
    assert traced(torch.ones(1, 2, device="cuda")).is_cuda


def test_compiled_functions_run_as_written() -> None:
    calls: list[int] = []

    @torch.compile
    def double(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    x = torch.ones(2, device="cuda")
    assert double(double(x)).tolist() == [4, 4]
    assert len(calls) == 2

"""What transforms tensors, wraps them or distributes them computes the same under a watch."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.torch_version import TorchVersion

import devguard


@pytest.fixture
def watched():
    """Runs a function without and with a watch: the same results, and no part of devguard switched off."""

    def run(program):
        torch.manual_seed(0)
        plain = program()
        torch.manual_seed(0)
        with devguard.watch() as watch:
            seen = program()
        assert [entry.what for entry in watch.report.not_seen if "switched off" in entry.what] == []
        torch.testing.assert_close(seen, plain, rtol=0, atol=0)
        return watch.report

    return run


def not_seen(report):
    return {entry.what: entry.site.text for entry in report.not_seen}


def test_functional_calls_of_stacked_models(watched):
    from torch.func import functional_call, stack_module_state, vmap

    def program():
        models = [nn.Linear(3, 1) for _ in range(3)]
        parameters, buffers = stack_module_state(models)
        return vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), (0, 0, None))(
            parameters, buffers, torch.ones(2, 3)
        )

    assert watched(program).ops > 3


def test_forward_mode_and_second_order_gradients(watched):
    from torch.func import hessian, jvp, linearize, vjp

    def program():
        x = torch.arange(3.0)
        product, pull = vjp(torch.sin, x)
        value, push = linearize(torch.cos, x)
        return hessian(lambda t: (t**3).sum())(x), jvp(torch.exp, (x,), (x,)), product, pull(x), value, push(x)

    watched(program)


def test_attention_with_a_score_of_ones_own_is_told(watched):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def program():
        q = torch.randn(1, 2, 16, 8)
        mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 16, 16, device="cpu")
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * 2, block_mask=mask)

    told = not_seen(watched(program))
    assert "flex_attention(q, q, q" in told["higher-order op flex_attention"]


def test_conditions_and_loops_are_told_and_differentiated(watched):
    from torch._higher_order_ops.while_loop import while_loop

    def program():
        x = torch.ones(3, requires_grad=True)
        torch.cond(x.sum() > 2, lambda t: t * 2, lambda t: t - 1, (x,)).sum().backward()
        return x.grad, while_loop(lambda i: i.sum() < 3, lambda i: (i + 1,), (torch.zeros(1),))

    assert {"higher-order op cond", "higher-order op while_loop"} <= set(not_seen(watched(program)))


@pytest.fixture
def job():
    """A process group of two ranks, one of them imaginary."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    excepthook = sys.excepthook
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    dist.destroy_process_group()
    sys.excepthook = excepthook  # PyTorch's own stays otherwise


@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.13", reason="its fake group gathers what nobody wrote")
def test_distributed_tensors_and_sharded_modules_train(watched, job):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))

    def program():
        rows = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for _ in range(3):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return (rows * 2 + rows).redistribute(mesh, [Replicate()]).to_local(), losses

    assert watched(program).ops > 20


def test_subclasses_that_hold_tensors(watched):
    def program():
        pair = TwoTensor(torch.ones(2), torch.zeros(2))
        result = (pair * 2 + 1).sum()
        return result.a, result.b

    watched(program)


def test_subclasses_that_are_parameters_and_move(watched):
    class Named(torch.Tensor):
        pass

    def program():
        layer = nn.Linear(2, 2)
        layer.weight = nn.Parameter(torch.ones(2, 2).as_subclass(Named))
        layer.to(torch.float64)(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
        return layer.weight.grad.as_subclass(torch.Tensor)

    watched(program)


def test_ragged_tensors_keep_gradients(watched):
    def program():
        ragged = torch.nested.nested_tensor(
            [torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True
        )
        nn.functional.linear(ragged, torch.ones(3, 3)).values().sum().backward()
        old = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        return ragged.grad.values(), (old + old).to_padded_tensor(0.0)

    watched(program)


def test_inference_mode_and_no_grad(watched):
    def program():
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()).eval()
        with torch.inference_mode():
            first = model(torch.ones(1, 1, 5, 5))
            assert first.is_inference()
        with torch.no_grad():
            return first.clone(), model(torch.ones(1, 1, 5, 5))

    watched(program)


def test_a_default_device_of_another_kind(watched):
    def program():
        with torch.device("meta"):
            model = nn.Linear(2, 2)
        assert model.weight.device.type == "meta"
        model.to_empty(device="cpu")
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)
        return model(torch.ones(1, 2))

    watched(program)


def test_saved_tensors_that_are_kept_elsewhere(watched):
    from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

    def program():
        x = torch.ones(3, requires_grad=True)
        with save_on_cpu(), saved_tensors_hooks(lambda t: t.numpy(), torch.from_numpy):
            y = (x * x).exp()
        y.sum().backward()
        return x.grad

    watched(program)


def test_anomaly_detection_and_hooks_on_tensors(watched):
    seen = []

    def program():
        x = torch.ones(3, requires_grad=True)
        x.register_hook(lambda grad: grad * 2)
        x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        with torch.autograd.detect_anomaly(check_nan=True):
            (x * 3).sum().backward()
        return x.grad

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        watched(program)
    assert [grad.tolist() for grad in seen] == [[6.0] * 3] * 2


def test_models_that_are_compiled_train(watched):
    def program():
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.ones(3, 2)).sum().backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    assert "region compiled by torch.compile" in not_seen(watched(program))


def test_graphs_that_are_traced_hold_no_op_of_a_watch():
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(x):
        return (torch.tensor([1.0]) + x).to(torch.float64), torch.as_tensor(x).float() + torch.zeros(3)

    plain = make_fx(program)(torch.ones(3)).code
    with devguard.watch():
        assert make_fx(program)(torch.ones(3)).code == plain


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_are_the_same(strict):
    class Model(nn.Linear):
        def forward(self, x):
            return super().forward(x).to(torch.float64) + torch.tensor([1.0]) + torch.arange(3)

    def exported():
        size = torch.export.Dim("size")
        model, x = Model(3, 3), torch.ones(2, 3)
        return torch.export.export(model, (x,), dynamic_shapes=({0: size},), strict=strict).graph_module.code

    plain = exported()
    with devguard.watch():
        assert exported() == plain


def test_other_tools_count_what_they_count_without_a_watch():
    DebugMode = pytest.importorskip("torch.utils._debug_mode", reason="PyTorch 2.8 has none").DebugMode

    def counted(inside):
        with inside, DebugMode() as debug:
            nn.Linear(2, 2)(torch.ones(1, 2))
        with inside, torch.profiler.profile() as profile:
            nn.Linear(2, 2)(torch.ones(1, 2))
        return len(debug.operators), {event.key: event.count for event in profile.key_averages()}

    class Nothing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    operators, events = counted(devguard.watch())
    expected, plain = counted(Nothing())  # any mode below shows in the profile
    assert operators == expected
    assert {key: count for key, count in events.items() if key.startswith("aten::")} == {
        key: count for key, count in plain.items() if key.startswith("aten::")
    }

"""The watch gets along with everything else that hooks into PyTorch."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _len_torch_dispatch_stack

import devguard


def not_seen(watch: devguard.Watch) -> list[str]:
    return [entry.what for entry in watch.report.not_seen]


def no_failures(watch: devguard.Watch) -> bool:
    return not any("switched off" in what for what in not_seen(watch))


def test_cond_runs_and_is_told_in_not_seen():
    with devguard.watch() as watch:
        x = torch.ones(3)
        result = torch.cond(x.sum() > 2, lambda t: t + 1, lambda t: t - 1, (x,))
    assert result.tolist() == [2.0, 2.0, 2.0]
    assert no_failures(watch)


def test_torch_compile_stays_on():
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    torch._dynamo.reset()
    function = torch.compile(lambda x: (x * 2).relu(), backend=backend)
    with devguard.watch():
        assert function(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert len(calls) == 1


def test_a_compiled_module_compiles_and_gives_the_same():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4)
    plain = model(x)
    compiled = torch.compile(model, backend="eager")
    with devguard.watch(model) as watch:
        assert torch.equal(compiled(x), plain)
    assert no_failures(watch)


def test_compiled_regions_are_told_in_not_seen():
    torch._dynamo.reset()
    before = torch.compile(nn.Linear(2, 2), backend="eager")
    with devguard.watch() as watch:
        before(torch.ones(1, 2))
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    told = [entry for entry in watch.report.not_seen if "torch.compile" in entry.what]
    assert [entry.site.text.split("(")[0] for entry in told if entry.site] == ["before", "torch.compile"]


def test_a_graph_break_does_not_make_dynamo_trace_the_watch():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def function(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.relu() + 1

    with devguard.watch() as watch:
        assert function(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert len(graphs) == 2
    assert no_failures(watch)


def test_watching_does_not_import_dynamo():
    code = "import sys, torch, devguard\nwith devguard.watch(): torch.ones(2) + 1\nsys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_vmap_grad_and_jacrev_work():
    with devguard.watch() as watch:
        squares = torch.vmap(lambda row: (row * row).sum())(torch.arange(6.0).view(2, 3))
        slope = torch.func.grad(lambda x: (x**3).sum())(torch.tensor([2.0]))
        jacobian = torch.func.jacrev(lambda x: x * 2)(torch.ones(2))
    assert squares.tolist() == [5.0, 50.0]
    assert slope.tolist() == [12.0]
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert no_failures(watch)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_recomputes_under_the_watch(reentrant):
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(3, 3)
    x = torch.ones(2, 3, requires_grad=True)
    with devguard.watch() as watch:
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert no_failures(watch)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_modules_run():
    traced = torch.jit.trace(nn.Linear(3, 3), torch.ones(1, 3))
    with devguard.watch() as watch:
        assert traced(torch.ones(1, 3)).shape == (1, 3)
        assert torch.jit.script(nn.ReLU())(torch.ones(1)).item() == 1.0
    assert no_failures(watch)


def test_export_under_a_watch():
    with devguard.watch() as watch:
        program = torch.export.export(nn.Linear(3, 3), (torch.ones(1, 3),))
    assert program.module()(torch.ones(1, 3)).shape == (1, 3)
    assert no_failures(watch)


def test_nested_sparse_and_quantized_tensors():
    with devguard.watch() as watch:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
        (nested * 2).to_padded_tensor(0.0)
        sparse = torch.eye(3).to_sparse()
        torch.sparse.mm(sparse, torch.ones(3, 2))
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).dequantize()
    assert no_failures(watch)


def test_a_data_less_subclass_is_left_alone():
    class Handle(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (2,))

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return torch.full((2,), 7.0)

    with devguard.watch() as watch:
        assert torch.sin(Handle()).tolist() == [7.0, 7.0]
    assert no_failures(watch)


def test_a_subclass_that_calls_its_base_constructor_without_data_can_be_made():
    class Stage(torch.Tensor):
        def __new__(cls):
            return super().__new__(cls)

    with devguard.watch() as watch:
        stage = Stage()
    assert type(stage) is Stage
    assert stage.shape == (0,)
    assert no_failures(watch)


def test_other_modes_above_and_below():
    from torch.utils.flop_counter import FlopCounterMode

    class Counter(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counter.seen += 1
            return func(*args, **(kwargs or {}))

    with Counter(), devguard.watch() as watch, FlopCounterMode(display=False) as flops, torch.device("cpu"):
        nn.Linear(4, 4)(torch.ones(2, 4))
    assert Counter.seen > 0
    assert flops.get_total_flops() == 2 * 2 * 4 * 4
    assert watch.report.ops > 0


def test_fake_tensors_under_a_watch():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with devguard.watch() as watch, FakeTensorMode():
        assert nn.Linear(4, 4)(torch.empty(2, 4)).shape == (2, 4)
    assert no_failures(watch)


def test_the_profiler_sees_the_ops():
    with devguard.watch(), torch.profiler.profile() as profile:
        torch.ones(3) + 1
    assert any(event.key == "aten::add" for event in profile.key_averages())


def test_threads_started_under_the_watch_are_watched():
    def work():
        torch.ones(3) + 1

    with devguard.watch() as watch:
        before = watch.report.ops
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert watch.report.ops == before + 2


def test_sixteen_threads_at_once():
    layer = nn.Linear(8, 8)

    def work(index):
        for _ in range(20):
            layer(torch.full((2, 8), float(index))).sum().backward()
        return index

    with devguard.watch() as watch, ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(work, range(16))) == list(range(16))
    assert no_failures(watch)


def test_nested_watches_both_see_the_ops():
    with devguard.watch() as outer, devguard.watch() as inner:
        torch.ones(3) + 1
    assert outer.report.ops >= 2
    assert inner.report.ops >= 2


def test_watches_that_end_in_the_wrong_order_leave_nothing():
    to = torch.Tensor.__dict__.get("to")
    first, second = devguard.watch(), devguard.watch()
    first.start()
    second.start()
    first.stop()
    torch.ones(3) + 1
    second.stop()
    assert _len_torch_dispatch_stack() == 0
    assert torch.Tensor.__dict__.get("to") is to


def test_an_exception_leaves_nothing():
    with pytest.raises(ZeroDivisionError), devguard.watch():
        1 / 0
    assert _len_torch_dispatch_stack() == 0


def test_a_generator_that_is_never_finished():
    def batches():
        with devguard.watch():
            for _ in range(3):
                yield torch.ones(1)

    next(batches())
    assert _len_torch_dispatch_stack() == 0


def test_inference_mode_composites_are_looked_through():
    layer = nn.Linear(4, 4)
    with torch.inference_mode(), devguard.watch() as watch:
        first = layer(torch.ones(2, 4))
    assert torch.equal(first, layer(torch.ones(2, 4)))
    assert no_failures(watch)

"""A watch gives everything back, keeps nothing alive, and leaves no garbage."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from torch import nn

import devguard
from tests.robustness.program import run


def attributes() -> dict[str, int]:
    """The identity of every attribute of PyTorch's modules and their classes, and of what else devguard could patch."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("torch", "threading", "builtins") and module is not None:
            for key, value in list(vars(module).items()):
                found[f"{name}.{key}"] = id(value)
                if issubclass(type(value), type) and value.__module__.split(".")[0] in ("torch", "threading"):
                    found |= {f"{name}.{key}.{inner}": id(one) for inner, one in list(vars(value).items())}
    return found


_COUNTERS = (
    "__annotations__",
    "__doc__",
    "_counter",
    "__warningregistry__",
    "_next_id",
    "next_id",
    "_active",
    "__abstractmethods__",
)


def differences(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What is another object now, or new; what PyTorch itself caches in its modules is left out by a run before."""
    changed = [name for name, value in after.items() if before.get(name) != value]
    return [name for name in changed if not name.rpartition(".")[2].startswith(_COUNTERS)]


@pytest.fixture
def warm():
    """What PyTorch makes at its first use is made."""
    for _ in range(2):
        run(steps=2)
        with devguard.simulate("cuda:1"), devguard.watch():
            run("cuda", steps=2)


def test_every_name_of_pytorch_means_what_it_meant_before(warm):
    before = attributes()
    assert len(before) > 10_000
    with devguard.watch():
        during = attributes()
        run()
    assert differences(before, during) != []
    assert differences(before, attributes()) == []


def test_every_name_is_given_back_after_an_exception(warm):
    before = attributes()
    with pytest.raises(ZeroDivisionError), devguard.watch(every=2):
        1 / 0
    assert differences(before, attributes()) == []


def test_modules_and_optimizers_carry_no_hook_afterwards():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {key: type(value) for key, value in vars(model).items()}, list(vars(optimizer))
    for every in (1, 3):
        with devguard.watch(model, every=every):
            for _ in range(5):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    assert ({key: type(value) for key, value in vars(model).items()}, list(vars(optimizer))) == before
    hooks = [value for key, value in vars(model).items() if "hooks" in key]
    assert hooks
    assert not any(hooks)
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def garbage(device: str) -> list[str]:
    """The types of the tensors that only the garbage collector found after a run under a watch."""
    with devguard.simulate("cuda:1"):
        gc.collect()
        gc.disable()
        others = {id(one) for one in gc.get_objects() if issubclass(type(one), (torch.Tensor, nn.Module))}
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            watch = devguard.watch().start()
            run(device)
            watch.stop()
            gc.collect()
            left = [one for one in gc.garbage if id(one) not in others]  # others: of tests that ran before this one
            return [type(one).__name__ for one in left if issubclass(type(one), (torch.Tensor, nn.Module))]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_tensor_is_left_to_the_garbage_collector(device, warm):
    assert garbage(device) == []


def test_a_watch_that_has_ended_is_freed_without_the_garbage_collector_having_to_look_for_tensors():
    def used():
        watch = devguard.watch(nn.Linear(2, 2))
        with watch:
            watch.model(torch.ones(1, 2))
        return weakref.ref(watch.model), watch

    model, watch = used()
    assert model() is not None
    del watch
    gc.collect()
    assert model() is None


def test_a_report_keeps_neither_model_nor_data():
    def used():
        with devguard.simulate("cuda:1"), devguard.watch() as watch:
            model = nn.Linear(2, 2).to("cuda")
            optimizer = torch.optim.Adam(model.parameters())
            for _ in range(4):
                model(torch.ones(1, 2).to("cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return weakref.ref(model), weakref.ref(optimizer), watch

    model, optimizer, watch = used()
    report = watch.report
    gc.collect()
    assert report.findings
    assert (model(), optimizer()) == (None, None)


def test_a_failed_op_keeps_no_frame_of_the_program():
    class Probe:
        pass

    def program():
        probe = Probe()
        gone.append(weakref.ref(probe))
        x = torch.ones(2, device="cuda")
        x + torch.ones(2)

    gone = []
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        try:
            program()
        except RuntimeError:
            pass
        gc.collect()
        assert gone[0]() is None
        assert watch.report.findings


def graph(tensor) -> list[tuple[str, int]]:
    """The nodes of a tensor's autograd graph in the order of a walk, each with the inputs of its successors."""
    found, todo, seen = [], [tensor.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:  # the nodes themselves: the number of one that went may come again
            continue
        seen.add(node)
        found.append((type(node).__name__, len(node.next_functions), len(node.metadata)))
        todo.extend(following for following, _ in node.next_functions)
    return found


def forward():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.LazyLinear(8))
    inner = nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.1)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    hidden = model[:3](x)
    return nn.functional.cross_entropy(inner(model[3:](hidden)[:, None])[:, 0], torch.tensor([1, 2])), hidden


def test_the_autograd_graph_and_the_memory_formats_are_the_same():
    plain, plain_hidden = forward()
    with devguard.watch():
        watched, hidden = forward()
    assert graph(watched) == graph(plain)
    assert len(graph(plain)) > 30
    assert hidden.stride() == plain_hidden.stride()
    assert hidden.is_contiguous(memory_format=torch.channels_last)
    assert watched.item() == plain.item()

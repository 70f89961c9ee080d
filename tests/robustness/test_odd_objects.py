"""Whatever a program's objects are like, a watch breaks nothing and calls nothing of theirs."""

from __future__ import annotations

import os
import sys
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import devguard


@pytest.fixture
def watched():
    """A watch under the simulator that must end with no part switched off."""
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        yield watch
    assert [entry.what for entry in watch.report.not_seen if "switched off" in entry.what] == []


def rules(watch):
    return {found.rule for found in watch.report.findings}


def meet(model):
    """Move a model, run it, and run it into a tensor that is elsewhere: the scan, the names and the rules look at it."""
    model.to("cuda")
    x = torch.ones(2, 2, device="cuda")
    model(x).sum().item()
    with pytest.raises(RuntimeError, match="same device"):
        model(x) + torch.ones(2, 2)


def test_tensors_whose_repr_fails(watched):
    class Silent(torch.Tensor):
        def __repr__(self, **kwargs):
            raise ValueError("no repr")

        __str__ = __format__ = __repr__

    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.table = torch.ones(2, 2).as_subclass(Silent)

        def forward(self, x):
            silent = self.table
            return super().forward(x) + silent

    model = Model().to("cuda")
    x = torch.ones(2, 2, device="cuda")
    with pytest.raises(RuntimeError, match="same device"):
        model(x)
    assert "DG103" in rules(watched)


def test_modules_whose_getattr_fails(watched):
    class Model(nn.Linear):
        def __getattr__(self, name):
            if name in ("weight", "bias"):
                return super().__getattr__(name)
            raise RuntimeError(f"no {name} here")

    meet(Model(2, 2))
    assert "DG108" in rules(watched)


def test_modules_whose_attributes_are_computed(watched):
    called = []

    class Trap:
        @property
        def table(self):
            called.append("property")
            return torch.ones(2)

        def __getattr__(self, name):
            called.append(name)
            raise AttributeError(name)

        def __eq__(self, other):
            called.append("__eq__")
            return True

        def __len__(self):
            called.append("__len__")
            return 1

        def __iter__(self):
            called.append("__iter__")
            return iter(())

        __hash__ = None

    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.trap = Trap()
            self.traps = [self.trap, {"trap": Trap()}]

        @property
        def cache(self):
            called.append("cache")
            return torch.ones(2)

        @cache.setter
        def cache(self, value):
            called.append("cache set")

    meet(Model())
    assert "DG108" in rules(watched)
    assert called == []


def test_stand_ins_for_other_objects_are_asked_nothing(watched, asked):
    """Lazy proxies load what they stand for when somebody asks for their class or an attribute."""
    odd = [Lazy(), Slotted(), Silent()]

    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            vars(self).update(lazy=odd[0], slotted=odd[1], silent=odd[2], odd=odd)

    def train():
        _lazy, _slotted, _silent = odd
        model = Model().to("cuda")
        optimizer = torch.optim.Adam(model.parameters())
        for x in DataLoader([torch.ones(2)] * 8, batch_size=2, collate_fn=lambda rows: [torch.stack(rows), odd]):
            loss = model(x[0].to("cuda")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loss > 0:
                float(loss.detach())
        Model()(torch.ones(1, 2))
        model(torch.ones(1, 2))

    with pytest.raises(RuntimeError, match="same device"):
        train()
    assert rules(watched) >= {"DG101", "DG201", "DG302"}
    assert asked == []


ASKED = []


@pytest.fixture
def asked():
    """What devguard asked odd objects for."""
    ASKED.clear()
    return ASKED


def note(name):
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    if frame is not None and f"{os.sep}devguard{os.sep}observe" in frame.f_code.co_filename:
        ASKED.append(f"{name} by {frame.f_code.co_filename}:{frame.f_lineno}")


class Lazy:
    @property
    def __class__(self):
        note("__class__")
        return nn.Module

    def __getattr__(self, name):
        note(name)
        raise RuntimeError(name)

    def __bool__(self):
        note("__bool__")
        raise RuntimeError


class Slotted(Lazy):
    __slots__ = ("inner",)


class Silent:
    __slots__ = ("inner",)

    def __getattr__(self, name):
        note(name)
        raise RuntimeError(name)


def test_attributes_in_a_circle(watched):
    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.ring = [{}]
            self.ring[0]["again"] = self.ring
            self.ring.append(self.__dict__)
            self.owner = (self, self.ring)

    meet(Model())
    assert "DG108" in rules(watched)


def test_huge_lists(watched):
    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.rows = list(range(500_000))
            self.names = {str(number): [number] for number in range(50_000)}

    model = Model()
    began = time.process_time()
    meet(model)
    assert "DG108" in rules(watched)
    assert time.process_time() - began < 10


def test_a_thousand_tensors_in_a_list(watched):
    class Model(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.kept = [torch.ones(1) for _ in range(1_000)]

    meet(Model())
    assert len([found for found in watched.report.findings if found.rule == "DG103"]) < 300


def nested(depth):
    class Shell(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return x  # the inner ones are not called: Python itself can't nest so many calls

    model = nn.Linear(2, 2)
    for _ in range(depth):
        model = Shell(model)
    return model


def test_modules_nested_deeper_than_python_recurses(watched):
    model = nested(2 * sys.getrecursionlimit())
    model(torch.ones(2, 2))
    held = nn.Linear(2, 2)
    held.extra = [model]  # the move itself recurses over what is registered: this one is not
    meet(held)
    assert "DG108" in rules(watched)


def test_a_program_that_comes_near_the_recursion_limit_gets_as_far_as_without():
    def down(left):
        return torch.ones(1) if left == 0 else down(left - 1)

    limit = sys.getrecursionlimit()
    used = 0
    frame = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    with devguard.watch() as watch:
        assert down(limit - used - 40).tolist() == [1.0]
        with pytest.raises(RecursionError):
            down(limit)
        assert torch.ones(1).tolist() == [1.0]
    assert watch.report.ops >= 2


def test_a_finding_in_a_deep_stack_is_named(watched):
    def down(left, x):
        return x.item() if left == 0 else down(left - 1, x)

    down(sys.getrecursionlimit() - 300, torch.ones((), device="cuda"))
    (found,) = watched.report.findings
    assert found.where.text == "return x.item() if left == 0 else down(left - 1, x)"


def test_a_model_of_ten_thousand_modules_is_moved_and_run(watched):
    model = nn.ModuleList(nn.Linear(1, 1) if number % 50 == 49 else nn.Identity() for number in range(10_000))
    began = time.process_time()
    model.to("cuda")
    x = torch.ones(1, 1, device="cuda")
    for layer in model[40:60]:
        layer(x)
    with pytest.raises(RuntimeError, match="same device"):
        model[9_999](torch.ones(1, 1))
    (found,) = [found for found in watched.report.findings if found.level == "error"]
    assert found.rule == "DG101"
    assert time.process_time() - began < 40


def test_an_exception_that_cannot_be_told_is_passed_on():
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no text")

    with pytest.raises(Mute), devguard.watch() as watch:
        raise Mute
    assert watch.report is not None


def test_exceptions_with_no_room_for_a_note_are_passed_on():
    class Fixed(RuntimeError):
        __slots__ = ()

        def add_note(self, note):
            raise TypeError("no notes")

    with pytest.raises(Fixed), devguard.simulate("cuda:1"), devguard.watch():
        raise Fixed("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exits_pass_through(kind):
    def program():
        nn.Linear(1, 1)(torch.ones(1))
        raise kind

    with pytest.raises(kind), devguard.watch():
        program()

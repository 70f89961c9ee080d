"""Moves of modules: what is remembered of them, what they leave behind, which ties they break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

import devguard
from devguard.observe.consistency_facts import ConsistencyFacts
from devguard.observe.moves import target_of
from devguard.observe.scan import slots, tied_slots, unregistered


@dataclass
class Helper:
    table: Any = field(default_factory=lambda: torch.ones(3))


class Holder(nn.Module):
    limits = torch.ones(2)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("kept", torch.zeros(1))
        self.plain = torch.ones(4)
        self.listed = [torch.ones(5), {"deep": torch.ones(6)}]
        self.hidden = {"head": nn.Linear(2, 2)}
        self.helper = Helper()
        self.same = self.kept
        scale = torch.ones(7)
        self.apply_scale = lambda x: x * scale


@pytest.fixture
def holder() -> Holder:
    return Holder()


def test_registered_tensors_have_paths(holder: Holder) -> None:
    assert [slot.path for slot in slots(holder)] == ["kept", "layer.weight", "layer.bias"]


def test_unregistered_tensors_and_modules_are_found(holder: Holder) -> None:
    found = {held.path: held for held in unregistered(holder)}
    expected = {
        "plain", "listed[0]", "listed[1]['deep']", "hidden['head']", "helper.table", "apply_scale.scale", "limits",
    }  # fmt: skip
    assert set(found) == expected
    assert found["helper.table"].through_helper
    assert not found["listed[0]"].through_helper


def test_object_that_refers_to_its_owner_ends_the_scan() -> None:
    module = nn.Linear(2, 2)
    module.__dict__["trainer"] = {"model": module, "self": None}
    module.__dict__["trainer"]["self"] = module.__dict__["trainer"]
    assert unregistered(module) == []


def test_ties_by_identity_and_by_storage() -> None:
    one, two, three = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    two.weight = one.weight
    three.weight = nn.Parameter(one.weight.data)
    pairs = tied_slots(nn.Sequential(one, two, three))
    assert [(first.path, second.path) for first, second in pairs] == [
        ("0.weight", "1.weight"),
        ("0.weight", "2.weight"),
    ]


@pytest.mark.parametrize(
    ("call", "args", "kwargs", "expected"),
    [
        ("to", ("cuda",), {}, "cuda:1"),
        ("to", (torch.float16,), {}, None),
        ("to", (), {"device": torch.device("cuda:0")}, "cuda:0"),
        ("to", (torch.ones(1),), {}, "cpu"),
        ("cuda", (), {}, "cuda:1"),
        ("cuda", (0,), {}, "cuda:0"),
        ("cpu", (), {}, "cpu"),
        ("to_empty", (), {"device": "cpu"}, "cpu"),
    ],
)
def test_target_of_a_move(call: str, args: Any, kwargs: Any, expected: str | None) -> None:
    assert target_of(call, args, kwargs, {"cuda:1": 3}) == expected


def test_move_is_remembered_for_all_it_reached() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        moves = watch._recorder.observers["consistency"].moves
        model.to("cuda")
        model[1] = nn.Linear(2, 2)
        assert [move.target for move in moves.of(model[0])] == ["cuda:0"]
        assert moves.of(model[1]) == []
        model.half()
        assert len(moves.of(model)) == 1


def test_what_stays_behind_is_a_note(holder: Holder) -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        holder.to("cuda")
        found = {
            (f.rule, f.level, f.tensor.name.split(".", 1)[1]) for f in watch.report.findings if f.tensor is not None
        }
    assert ("DG103", "note", "plain") in found
    assert ("DG103", "note", "same") in found
    assert ("DG104", "note", "hidden['head'].weight") in found


def test_note_goes_when_the_tensor_is_moved_by_hand(holder: Holder) -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        holder.to("cuda")
        holder.plain = holder.plain.to("cuda")
        names = [f.tensor.name for f in watch.report.findings if f.rule == "DG103" and f.tensor is not None]
    assert not [name for name in names if name.endswith("plain")]


def test_broken_tie_is_told_and_a_mended_one_is_not() -> None:
    with devguard.watch() as watch:
        with torch.device("meta"):
            model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 3, bias=False))
            model[1].weight = model[0].weight
        model.to_empty(device="cpu")
        assert [f.rule for f in watch.report.findings if f.rule == "DG113"] == ["DG113"]
        model[1].weight = model[0].weight
        assert [f.rule for f in watch.report.findings if f.rule == "DG113"] == []


def test_moves_of_a_module_are_bounded() -> None:
    model = nn.Linear(1, 1)
    with devguard.watch() as watch:
        for _ in range(50):
            model.to("cpu")
        moves = watch._recorder.observers["consistency"].moves
        assert len(moves.of(model)) <= 8
        assert len(watch._recorder.facts.table(ConsistencyFacts).strays) == 0


def test_watch_keeps_no_moved_module_alive() -> None:
    import gc
    import weakref

    with devguard.watch() as watch:
        model = nn.Linear(1, 1)
        gone = weakref.ref(model)
        model.to("cpu")
        del model
        gc.collect()
        assert gone() is None
        assert watch._recorder.observers["consistency"].moves.moved() == []

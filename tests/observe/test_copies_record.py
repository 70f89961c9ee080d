"""What is recorded of each copy: its devices, size, kind and who asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import devguard
from devguard.observe.copies_facts import BACKWARD, OFFLOAD, SET_UP, CopyFact, CopyFacts


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    with devguard.simulate("cuda:2"):
        yield


def recorded(act: Callable[[], Any]) -> list[CopyFact]:
    """The copies that `act` makes."""
    with devguard.watch() as watch:
        act()
    assert watch.report.complete
    return list(watch._recorder.facts.table(CopyFacts).copies.values())  # type: ignore[union-attr]


def only(act: Callable[[], Any]) -> CopyFact:
    (fact,) = recorded(act)
    return fact


@pytest.mark.parametrize(
    ("act", "how"),
    [
        (lambda x: x.to("cuda"), "to"),
        (lambda x: x.to(torch.device("cuda", 1)), "to"),
        (lambda x: x.to("cuda", torch.float16), "to"),
        (lambda x: x.cuda(), "cuda"),
        (lambda x: x.to(torch.empty(0, device="cuda")), "to"),
        (lambda x: torch.as_tensor(x, device="cuda"), "as_tensor"),
    ],
)
def test_a_move_is_explicit(act: Callable[[torch.Tensor], Any], how: str) -> None:
    x = torch.ones(3, 2)
    fact = only(lambda: act(x))
    assert (fact.direction, fact.how, fact.implicit, fact.purpose) == ("h2d", how, False, "")
    assert (fact.tally.count, fact.tally.bytes) == (1, 24)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x[torch.tensor([0, 1])],
        lambda x: x.copy_(torch.ones(3, 2)),
        lambda x: x.__setitem__(0, torch.ones(2)),
        lambda x: x.index_put_((torch.tensor([0]),), torch.ones(2, device="cuda")),
        lambda x: torch.where(x > 0, x, torch.tensor(1.0)),
        lambda x: torch.tensor([1, 2], device="cuda"),
        lambda x: x.new_tensor([1.0]),
        lambda x: torch.ones(2).type_as(x),
        lambda x: torch._foreach_copy_([x], [torch.ones(3, 2)]),
        lambda x: x.bernoulli_(torch.full((3, 2), 0.5)),
    ],
)
def test_an_op_that_copies_is_implicit(act: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(3, 2, device="cuda")
    fact = only(lambda: act(x))
    assert (fact.direction, fact.implicit, fact.purpose, fact.tally.count) == ("h2d", True, "", 1)


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x.to("cuda"),
        lambda x: x * torch.tensor(2.0),
        lambda x: x.to(torch.float16),
        lambda x: x[0],
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: torch.full((2,), 1.0, device="cuda"),
        lambda x: torch.empty(0).to("cuda"),
        lambda x: torch.ones(2).to("cpu"),
        lambda x: torch.ones(2, device="meta"),
    ],
)
def test_what_copies_nothing_is_not_recorded(act: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(3, 2, device="cuda")
    assert recorded(lambda: act(x)) == []


def test_a_module_is_moved_as_set_up() -> None:
    facts = recorded(lambda: nn.Linear(2, 2).cuda().to("cuda:1").cpu())
    assert {fact.purpose for fact in facts} == {SET_UP}
    assert [(fact.direction, fact.tally.count) for fact in facts] == [("h2d", 2), ("d2d", 2), ("d2h", 2)]


def test_loading_state_is_set_up() -> None:
    net = nn.Linear(2, 2).cuda()
    state = nn.Linear(2, 2).state_dict()
    assert [fact.purpose for fact in recorded(lambda: net.load_state_dict(state))] == [SET_UP]


def test_a_forward_inside_a_library_loop_is_not_mistaken_for_set_up() -> None:
    class Moves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to("cuda")

    x = torch.ones(2)
    assert only(lambda: nn.Sequential(Moves())(x)).purpose == ""


def test_gradients_between_devices_are_autograds() -> None:
    x = torch.ones(3, requires_grad=True)
    there, back = recorded(lambda: x.to("cuda").sum().backward())
    assert (there.direction, there.purpose) == ("h2d", "")
    assert (back.direction, back.purpose) == ("d2h", BACKWARD)


def test_a_users_hook_in_backward_is_the_users() -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    kept: list[torch.Tensor] = []

    def act() -> None:
        y = x * 2
        y.register_hook(lambda grad: kept.append(grad.cpu()))
        y.sum().backward()

    assert (only(act).direction, only(act).purpose) == ("d2h", "")


def test_saved_tensors_fetched_in_backward_are_offloading() -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)

    def act() -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()):
            y = x.exp()
        y.sum().backward()

    assert [(fact.direction, fact.purpose) for fact in recorded(act)] == [("d2h", ""), ("h2d", OFFLOAD)]


def test_each_kind_of_copy_at_one_line_is_kept_apart() -> None:
    pinned, pageable = torch.ones(2).pin_memory(), torch.ones(2)

    def act() -> None:
        for x in (pinned, pageable):
            x.to("cuda", non_blocking=True)

    facts = recorded(act)
    assert [(fact.pinned, fact.blocking) for fact in facts] == [(True, False), (False, True)]


def test_copies_are_counted_by_step() -> None:
    x = torch.ones(2)
    with devguard.watch() as watch:
        for _ in range(4):
            for _ in range(3):
                x.to("cuda")
            watch.step()
    (fact,) = watch._recorder.facts.table(CopyFacts).copies.values()  # type: ignore[union-attr]
    assert (fact.tally.count, fact.tally.steps_hit, fact.tally.rate(4, 2)) == (12, 4, 3.0)


def test_a_run_of_copies_is_one_burst() -> None:
    batch = {"a": torch.ones(2), "b": torch.ones(2)}

    def act() -> None:
        for _ in range(3):
            moved = {key: value.to("cuda") for key, value in batch.items()}
            total = moved["a"] + moved["b"]
            for _ in range(5):
                total = total + 1

    fact = only(act)
    assert (fact.tally.count, fact.bursts) == (6, 3)


def test_transfers_list_every_copy_with_the_largest_first() -> None:
    with devguard.watch() as watch:
        x = torch.ones(100).to("cuda")
        x[torch.tensor([1])]
        x.cpu()
        nn.Linear(2, 2).cuda()
    rows = [(t.source, t.target, t.count, t.bytes, t.implicit) for t in watch.report.transfers]
    assert rows[:2] == [("cpu", "cuda:0", 1, 400, False), ("cuda:0", "cpu", 1, 400, False)]
    assert set(rows[2:]) == {("cpu", "cuda:0", 2, 24, False), ("cpu", "cuda:0", 1, 8, True)}
    assert all(row.site is not None and row.site.line for row in watch.report.transfers)


def test_nothing_is_left_when_the_watch_ends() -> None:
    with devguard.watch() as watch:
        torch.ones(3, device="cuda").to("cpu", non_blocking=True)
        copies = watch._recorder.observers["copies"]  # type: ignore[union-attr]
        assert copies.inflight.handlers.every
    assert not copies.inflight.handlers.every
    assert not copies.inflight.landing


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_moved_like_any_other() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert only(lambda: nested.to("cuda")).tensor.shape == ()

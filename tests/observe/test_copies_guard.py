"""devguard.guard() and allow() at event time: a forbidden copy raises at the line that makes it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import devguard
from devguard.rules.finding import Finding

Act = Callable[[], Any]


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    with devguard.simulate("cuda:2"):
        yield


def copies(watch: Any) -> list[Finding]:
    return [found for found in watch.report.findings if found.rule.startswith("DG3")]


def implicit_acts() -> dict[str, Act]:
    """Copies from the host that nobody asked for."""
    x = torch.zeros(4, 3, device="cuda")
    index, mask = torch.tensor([0, 2]), torch.tensor([True, False, True, False])

    def assign() -> None:
        x[1] = torch.ones(3)

    return {
        "index": lambda: x[index],
        "mask": lambda: x[mask],
        "assign": assign,
        "copy_": lambda: x.copy_(torch.ones(4, 3)),
        "tensor": lambda: torch.tensor([1.0, 2.0], device="cuda"),
        "as_tensor": lambda: torch.as_tensor([1.0, 2.0], device="cuda"),
        "where": lambda: torch.where(x > 0, x, torch.tensor(1.0)),
        "type_as": lambda: torch.ones(3).type_as(x),
    }


@pytest.mark.parametrize("name", ["index", "mask", "assign", "copy_", "tensor", "as_tensor", "where", "type_as"])
def test_implicit_copy_from_the_host_is_refused(name: str) -> None:
    act = implicit_acts()[name]
    with devguard.watch(), devguard.guard(h2d="error"), pytest.raises(devguard.DeviceGuardError, match="h2d='error'"):
        act()


def test_the_error_names_the_tensor_and_both_devices() -> None:
    x = torch.zeros(4, 3, device="cuda")
    pick = torch.tensor([0, 2])
    with devguard.watch(), devguard.guard(h2d="error"), pytest.raises(devguard.DeviceGuardError) as caught:
        x[pick]
    text = str(caught.value)
    assert text.startswith("pick (2) torch.int64 is copied from cpu to cuda:0, unasked by index")


def test_the_error_is_raised_at_the_guilty_line() -> None:
    x = torch.zeros(4, 3, device="cuda")

    def guilty() -> None:
        x[torch.tensor([0, 2])]

    with devguard.watch(), devguard.guard(h2d="error"), pytest.raises(devguard.DeviceGuardError) as caught:
        guilty()
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    assert ours[-1].name == "guilty"


def test_the_copy_is_not_made_when_it_is_refused() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with devguard.watch(), devguard.guard(h2d="error"), pytest.raises(devguard.DeviceGuardError):
        x.copy_(torch.ones(2, 3))
    assert x.sum().item() == 0


def test_explicit_moves_pass_a_guard_on_implicit_copies() -> None:
    with devguard.watch(), devguard.guard(h2d="error", d2h="error", d2d="error", implicit_only=True):
        x = torch.ones(3).to("cuda")
        x.to("cuda:1").cpu()
        torch.nn.Linear(2, 2).cuda()


@pytest.mark.parametrize("direction", ["h2d", "d2h", "d2d"])
def test_every_copy_of_a_direction_can_be_forbidden(direction: str) -> None:
    there = torch.ones(3, device="cuda")
    acts: dict[str, Act] = {
        "h2d": lambda: torch.ones(3).to("cuda"),
        "d2h": lambda: there.cpu(),
        "d2d": lambda: there.to("cuda:1"),
    }
    with devguard.watch(), devguard.guard(implicit_only=False, **{direction: "error"}):  # type: ignore[arg-type]
        for name, act in acts.items():
            if name == direction:
                with pytest.raises(devguard.DeviceGuardError, match=f"{direction}='error'"):
                    act()
            else:
                act()


def test_gradients_that_go_back_between_stages_are_nobodys_fault() -> None:
    x = torch.ones(3, device="cuda:0", requires_grad=True)
    with devguard.watch(), devguard.guard(d2d="error"):
        x.to("cuda:1").sum().backward()
    assert x.grad is not None


def test_an_inner_guard_allows_again() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with devguard.watch(), devguard.guard(h2d="error"), devguard.guard(h2d="allow"):
        x[0] = torch.ones(3)


def test_a_guard_ends_with_its_scope() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with devguard.watch():
        with devguard.guard(h2d="error"):
            pass
        x[0] = torch.ones(3)


def test_a_guard_works_as_a_decorator() -> None:
    x = torch.zeros(2, 3, device="cuda")

    @devguard.guard(h2d="error")
    def step() -> None:
        x[0] = torch.ones(3)

    with devguard.watch(), pytest.raises(devguard.DeviceGuardError):
        step()


def test_a_logged_copy_is_reported_though_it_happens_once() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with devguard.watch() as watch:
        x[0] = torch.ones(3)
        with devguard.guard(h2d="log"):
            x[1] = torch.ones(3)
    assert [(found.rule, found.count, found.level) for found in copies(watch)] == [("DG301", 1, "note")]


def test_an_allowed_copy_is_not_counted() -> None:
    x = torch.zeros(5, 3, device="cuda")
    with devguard.watch() as watch:
        for row in range(5):
            with devguard.allow("DG301", reason="the rows come from the host"):
                x[row] = torch.ones(3)
            x = x + 1
            x = x + 1
            x = x + 1
    assert copies(watch) == []
    assert sum(transfer.count for transfer in watch.report.transfers) == 0


def test_a_refused_copy_leaves_the_watch_whole() -> None:
    x = torch.zeros(2, 3, device="cuda")
    with devguard.watch() as watch:
        with devguard.guard(h2d="error"), pytest.raises(devguard.DeviceGuardError):
            x[0] = torch.ones(3)
        x[1] = torch.ones(3)
    assert watch.report.complete
    assert sum(transfer.count for transfer in watch.report.transfers) == 1

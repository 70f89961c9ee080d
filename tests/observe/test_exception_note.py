"""The finding that an exception carries is about this exception."""

from __future__ import annotations

import pytest
import torch

import devguard


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def test_a_device_error_carries_its_finding() -> None:
    with devguard.simulate("cuda:1"), pytest.raises(RuntimeError) as caught, devguard.watch():
        torch.ones(2, device="cuda") + torch.ones(2)
    assert "DG108" in notes(caught.value)


def test_an_error_that_has_nothing_to_do_with_devices_carries_none() -> None:
    def program() -> None:
        torch.ones(2).to("cuda")
        raise ZeroDivisionError("division by zero")

    with devguard.simulate("cuda:1"), pytest.raises(ZeroDivisionError) as caught, devguard.watch() as watch:
        program()
    assert any(found.rule == "DG305" for found in watch.report.findings)
    assert notes(caught.value) == ""


def test_of_several_errors_the_one_at_the_failing_line_is_told() -> None:
    def program() -> None:
        torch.ones(2).to("cuda")
        torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2))

    with devguard.simulate("cuda:1"), pytest.raises(RuntimeError) as caught, devguard.watch():
        program()
    assert "DG101" in notes(caught.value)
    assert "DG305" not in notes(caught.value)

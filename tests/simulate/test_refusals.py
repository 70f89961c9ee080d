"""Operands on several devices: accepted and refused as on CUDA, in PyTorch's own words.

Each row of cross_device.json is [expression, outcome, message, device of the result, certainty]: what PyTorch 2.13 does with a
CUDA device behind it ("sure"), or its source says it does ("likely"); "no cudnn" rows hold with cuDNN switched off.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from devguard.knowledge import placement
from devguard.simulate import simulate

ROWS = json.loads((Path(__file__).parent / "cross_device.json").read_text(encoding="utf-8"))
NEW_WORDS = placement._names_the_odd_one()


def on(*shape: int, i: int = 0, **kwargs: Any) -> torch.Tensor:
    return torch.ones(*shape, device=f"cuda:{i}", **kwargs)


def operands() -> dict[str, Any]:
    return {
        "torch": torch,
        "np": numpy,
        "F": torch.nn.functional,
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


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, str, str]]:
    found = {}
    with simulate("cuda:2"):
        for expression, *_, certainty in ROWS:
            with torch.backends.cudnn.flags(enabled=certainty != "no cudnn"):
                found[expression] = outcome(expression)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not NEW_WORDS, reason="the rows are in the words of 2.9 and later")
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_mixed_operands_end_as_on_cuda(row: list[str], outcomes: dict[str, tuple[str, str, str]]) -> None:
    expression, expected, message, device, _ = row
    kind, text, where = outcomes[expression]
    assert (kind, message in text) == (expected, True), text
    if device:
        assert where == device

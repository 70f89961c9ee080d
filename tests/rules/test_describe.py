"""Repairs are valid Python, whatever the tensor is called."""

from __future__ import annotations

import pytest

from devguard.rules.describe import moving


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x", "x = x.cuda()"),
        ("self.pos", "self.pos = self.pos.cuda()"),
        ("batch['labels'][0]", "batch['labels'][0] = batch['labels'][0].cuda()"),
        ("torch.zeros(1)", "torch.zeros(1).cuda()"),
        ("labels * CLASSES", "(labels * CLASSES).cuda()"),
        ("-x", "(-x).cuda()"),
        ("a tensor", "a tensor.cuda()"),
    ],
)
def test_the_code_that_moves_a_tensor(name: str, expected: str) -> None:
    assert moving(name, "cuda()") == expected

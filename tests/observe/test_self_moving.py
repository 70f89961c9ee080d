"""Modules that move their plain tensors themselves, as the metrics of libraries do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import devguard
from devguard.rules.finding import Finding

METRIC = """
import torch
from torch import nn


class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.defaults = {"total": torch.zeros(3)}
        self.total = torch.zeros(3)

    def _apply(self, fn):
        super()._apply(fn)
        self.total = fn(self.total)
        self.defaults = {key: fn(value) for key, value in self.defaults.items()}
        return self

    def update(self, value):
        try:
            self.total = self.total + value
        except RuntimeError as error:
            raise RuntimeError("Encountered different devices: the metric may not be on the same device as input") from error
        return self.total

    forward = update


"""


def errors_of(folder: Path, source: str) -> list[Finding]:
    path = folder / "program.py"
    path.write_text(METRIC + source)
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        with pytest.raises(RuntimeError) as caught:
            exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        watch.note_exception(caught.value)
        return [f for f in watch.report.findings if f.level == "error"]


@pytest.mark.parametrize(("call", "rule"), [("metric", "DG101"), ("metric.update", "DG108")])
def test_metric_that_was_never_moved_is_to_be_moved_itself(tmp_path: Path, call: str, rule: str) -> None:
    found = errors_of(tmp_path, f"metric = Metric()\n{call}(torch.ones(3, device='cuda'))\n")
    assert [f.rule for f in found] == [rule]
    assert found[0].tensor is not None
    assert found[0].tensor.name == "metric.total"
    assert found[0].cause is not None
    assert found[0].cause.text == "metric = Metric()"
    assert found[0].fix is not None
    assert "metric" in found[0].fix.text
    assert "register_buffer" not in found[0].fix.text


@pytest.mark.parametrize("target", ["cuda", "cuda:0"])
def test_metric_that_moves_its_tensors_itself_leaves_nothing_behind(target: str) -> None:
    namespace: dict[str, Any] = {}
    exec(METRIC, namespace)
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        metric = namespace["Metric"]().to(target)
        metric(torch.ones(3, device="cuda"))
        metric(torch.ones(3, device="cuda"))
    assert not watch.report.findings

"""What no dispatch mode looks into is told: compiled regions and CUDA graphs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import devguard


def test_replays_of_a_cuda_graph_are_not_seen() -> None:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        x = torch.ones(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x * 2
        for _ in range(3):
            graph.replay()
    (entry,) = watch.report.not_seen
    assert (entry.what, entry.count) == ("replay of a CUDA graph", 3)
    assert entry.site is not None
    assert entry.site.text.endswith("graph.replay()")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_inputs_and_parameters_of_a_compiled_module_are_checked_at_its_entry(backend):
    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Linear(2, 2, device="meta")), backend=backend)
    images = torch.ones(1, 2)
    watch = devguard.watch(model)
    with pytest.raises(Exception, match="device"), watch:
        model(images)
    (found,) = watch.report.findings
    assert found.rule == "DG101"
    assert found.message == "model (OptimizedModule) got images on cpu, but works with tensors on meta"
    assert found.where.text == "model(images)"


def test_a_compiled_module_that_fails_for_another_reason_is_no_finding():
    torch._dynamo.reset()
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    watch = devguard.watch()
    with pytest.raises(Exception, match=r"[Ss]hape|size"), watch:
        model(torch.ones(1, 3))
    assert watch.report.findings == []

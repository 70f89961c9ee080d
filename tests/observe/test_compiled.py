"""What no dispatch mode looks into is told: compiled regions and CUDA graphs."""

from __future__ import annotations

import torch

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

"""CUDA graphs: what runs while a graph captures is written down, op by op, and run again on the same memory by replay()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devguard.simulate import state
from devguard.simulate.patches import Patches

Step = Callable[[], None]


class Recorder:
    """The base class of torch.cuda.CUDAGraph."""

    _steps: list[Step]
    _pool: tuple[int, int]

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = super().__new__(cls)
        made._steps, made._pool = [], torch.cuda.graph_pool_handle()
        return made

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **kwargs: Any) -> None:
        timeline = state.current().timeline
        if timeline.capturing is not None:
            raise RuntimeError("CUDA graphs must be captured one at a time: another capture is underway")
        if pool is not None:
            self._pool = pool
        self._steps.clear()
        timeline.capturing = self

    def capture_end(self) -> None:
        state.current().timeline.capturing = None

    def record(self, step: Step) -> None:
        """One op that was just run, as a function that runs it again."""
        self._steps.append(step)

    def instantiate(self) -> None: ...

    def replay(self) -> None:
        for step in self._steps:
            step()

    def reset(self) -> None:
        self._steps.clear()

    def pool(self) -> tuple[int, int]:
        return self._pool

    def enable_debug_mode(self) -> None: ...

    def debug_dump(self, debug_path: str) -> None: ...

    def raw_cuda_graph(self) -> int:
        return id(self)

    def raw_cuda_graph_exec(self) -> int:
        return id(self)

    def register_generator_state(self, generator: Any) -> None: ...


def install(patches: Patches) -> None:
    """Replace CUDAGraph and the functions that ask for a capture."""
    graph = type("CUDAGraph", (Recorder,), {"__module__": "torch.cuda.graphs"})
    for where in (torch.cuda, torch.cuda.graphs):
        patches.set(where, "CUDAGraph", graph)
    patches.set(torch._C, "_CUDAGraph", Recorder)
    for name in ("_cuda_isCurrentStreamCapturing", "_graph_pool_handle"):
        patches.set(torch.cuda.graphs, name, getattr(torch._C, name))
    patches.set(torch.cuda.graphs.graph, "default_capture_stream", None)

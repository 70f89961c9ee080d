"""CUDA graphs: what runs while a graph captures is written down, op by op, and run again on the same memory by replay()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from devguard.knowledge import syncs
from devguard.simulate import state
from devguard.simulate.devices import driver_error
from devguard.simulate.patches import Patches
from devguard.simulate.refusals import flat
from devguard.simulate.tensor import SimTensor

Step = tuple[Any, Any, Any, Any]  # an op, its arguments, and its result, which stays its memory


class Recorder:
    """The base class of torch.cuda.CUDAGraph."""

    _steps: list[Step]
    _pool: tuple[int, int]
    _depth: int

    def __new__(cls, keep_graph: bool = False) -> Any:
        made = super().__new__(cls)
        made._steps, made._pool, made._depth = [], torch.cuda.graph_pool_handle(), 0
        return made

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **kwargs: Any) -> None:
        timeline = state.current().timeline
        if timeline.capturing is not None:
            raise RuntimeError("CUDA graphs must be captured one at a time: another capture is underway")
        if pool is not None:
            self._pool = pool
        self._steps.clear()
        self._depth = 0
        timeline.capturing = self
        state.current().intercepts.look("graph", before=self._enter, after=self._leave)

    def capture_end(self) -> None:
        state.current().timeline.capturing = None
        state.current().intercepts.leave("graph")

    def _enter(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if self._depth == 0 and syncs.waits(func, tuple(args), dict(kwargs)):
            raise driver_error("operation not permitted when stream is capturing")
        self._depth += 1

    def _leave(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        self._depth -= 1
        if self._depth == 0:  # else a part of an op, which runs again when that one does
            self._steps.append((func, args, kwargs, result))

    def instantiate(self) -> None: ...

    def replay(self) -> None:
        for func, args, kwargs, result in self._steps:
            again = SimTensor.__torch_dispatch__(func, (), args, kwargs)
            for kept, fresh in zip(flat(result), flat(again), strict=True):
                if isinstance(kept, SimTensor) and isinstance(fresh, SimTensor) and kept._host is not fresh._host:
                    kept._host.copy_(fresh._host)

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
    for where in (torch.cuda, torch.cuda.memory):
        patches.set(where, "MemPool", MemPool)
    for name in ("beginAllocateToPool", "beginAllocateCurrentThreadToPool", "endAllocateToPool", "releasePool"):
        for owner in (torch._C, torch.cuda.memory):
            patches.set(owner, f"_cuda_{name}", lambda *args: None)


class MemPool:
    """torch.cuda.MemPool: a name for memory that is all one."""

    def __init__(self, allocator: Any = None, *args: Any, **kwargs: Any) -> None:
        self.allocator = allocator
        self.id = torch.cuda.graph_pool_handle()

    def use_count(self) -> int:
        return 1

    def snapshot(self, *args: Any) -> list[Any]:
        return []

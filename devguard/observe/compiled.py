"""Regions under torch.compile, and CUDA graphs: what runs inside is not seen, so the report says where and how often it ran."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.frames import raw_site
from devguard.observe.namespaces import instance_dict
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder
from devguard.observe.scan import slots

_WHAT = "region compiled by torch.compile"
_REPLAY = "replay of a CUDA graph"


class Compiled:
    """Observer: counts calls of what torch.compile made, from now on or before the watch began."""

    name = "compiled regions"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.patches = Patches()

    def start(self) -> None:
        """Wrap torch.compile, and the calls of modules that were compiled earlier."""
        self.patches.wrap(torch, "compile", self._compile)
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        if eval_frame is not None:
            self.patches.wrap(eval_frame.OptimizedModule, "__call__", self._called)
        self.patches.wrap(torch.cuda.CUDAGraph, "replay", self._replayed)

    def stop(self) -> None:
        """Give them back; functions compiled meanwhile keep their site and count nothing any more."""
        self.patches.restore()

    def _note(self, what: str = _WHAT) -> None:
        recorder = self.recorder
        try:
            recorder.facts.not_seen(what, raw_site(sys._getframe(2)), recorder.steps.now)
        except Exception as problem:
            recorder.fail(self.name, problem)

    def _compile(self, wrapped: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note()
        return wrapped(*args, **kwargs)

    def _called(self, wrapped: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note()
        return wrapped(*args, **kwargs)

    def _replayed(self, wrapped: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note(_REPLAY)
        return wrapped(*args, **kwargs)


def compiled_operands(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """(name, tensor) of what a module that torch.compile made was called with and of what it holds; nothing for another module."""
    inner = (instance_dict(module).get("_modules") or {}).get("_orig_mod")
    if inner is None or type(module).__name__ != "OptimizedModule":
        return []
    given = [*((f"input[{index}]", value) for index, value in enumerate(args)), *kwargs.items()]
    found = [(name, value) for name, value in given if issubclass(type(value), torch.Tensor)]
    return [*found, *((slot.path, slot.tensor) for slot in slots(inner))]

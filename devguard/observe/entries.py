"""Entry points that the dispatcher does not show, or that alone know what the user meant.

`.tolist()`, `print(t)`, `torch.cuda.synchronize()` reach no dispatch mode; a `_to_copy` does not tell whether somebody wrote `.to()`.
While a wrapped entry runs it lies on `recorder.thread.intents`, so that an op below it knows under which call it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devguard.observe import constructors
from devguard.observe.dispatch import Handlers
from devguard.observe.frames import Located
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder


class Entry(Located):
    """One call of an entry point. `owner` is the object of a method; `result`, `error` are set when the call has ended.

    `outer` is the entry that this one runs inside (``__repr__`` inside ``__format__``), None for the user's own call."""

    __slots__ = ("args", "error", "kwargs", "name", "notes", "outer", "owner", "result")

    def __init__(
        self,
        name: str,
        owner: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
        outer: Entry | None,
    ) -> None:
        self.name = name
        self.owner = owner
        self.args = args
        self.kwargs = kwargs
        super().__init__(frame)
        self.outer = outer
        self.result: Any = None
        self.error: BaseException | None = None
        self.notes: dict[str, Any] = {}


def _targets() -> dict[str, list[tuple[Any, str]]]:
    """Entry name -> the names that lead to it. Methods of torch.Tensor are named `Tensor.x`."""
    tensor = torch.Tensor
    methods = (
        "to cuda cpu numpy tolist pin_memory type data_ptr share_memory_ __repr__ __format__ __array__ __iter__ __len__ "
        "__contains__ __reduce_ex__ __deepcopy__ __dlpack__ backward float half double int long bfloat16 bool item copy_ "
        "new_tensor"
    ).split()
    table: dict[str, list[tuple[Any, str]]] = {f"Tensor.{name}": [(tensor, name)] for name in methods}
    functions = "tensor as_tensor asarray from_numpy full zeros ones arange linspace autocast load save equal".split()
    table |= {f"torch.{name}": [(torch, name)] for name in functions}
    cuda = torch.cuda
    table |= {f"cuda.{name}": [(cuda, name)] for name in ("synchronize", "empty_cache", "set_device", "mem_get_info")}
    table["accelerator.synchronize"] = [(torch.accelerator, "synchronize")]
    table["Stream.synchronize"] = [(torch.cuda.Stream, "synchronize")]
    table["Event.synchronize"] = [(torch.cuda.Event, "synchronize")]
    table["Stream.wait_event"] = [(torch.cuda.Stream, "wait_event")]
    table["Stream.wait_stream"] = [(torch.cuda.Stream, "wait_stream")]
    table["Event.query"] = [(torch.cuda.Event, "query")]
    table["Event.record"] = [(torch.cuda.Event, "record")]
    table["Event.wait"] = [(torch.cuda.Event, "wait")]
    table["autograd.backward"] = [(torch.autograd, "backward")]
    table["autograd.grad"] = [(torch.autograd, "grad")]
    return table


class Entries:
    """Observer: wraps the entry points that somebody listens to, and no others."""

    name = "entry points"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.handlers = handlers
        self.patches = Patches()

    def start(self) -> None:
        """Wrap every entry point with a listener."""
        handlers = self.handlers
        for name, places in _targets().items():
            if name in handlers.entries or name in handlers.entries_before:
                wrapper = self._wrapper(
                    name, tuple(handlers.entries_before.get(name, ())), tuple(handlers.entries.get(name, ()))
                )
                for owner, attribute in places:
                    self.patches.wrap(owner, attribute, wrapper)
        constructors.install(self.patches)

    def stop(self) -> None:
        """Give them back."""
        self.patches.restore()

    def _wrapper(
        self, name: str, before: tuple[Callable[[Entry], None], ...], after: tuple[Callable[[Entry], None], ...]
    ) -> Any:
        recorder = self.recorder

        def call(wrapped: Callable[..., Any], owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not recorder.active:
                return wrapped(*args, **kwargs)
            intents = recorder.thread.intents
            entry = Entry(name, owner, args, kwargs, sys._getframe(1), intents[-1] if intents else None)
            intents.append(entry)
            try:
                for listener in before:
                    listener(entry)
                entry.result = result = wrapped(*args, **kwargs)
            except BaseException as error:
                entry.error = error
                raise
            finally:
                intents.pop()
                try:
                    for listener in after:
                        listener(entry)
                finally:
                    entry.frame = None
                    entry.result = None
            return result

        return call

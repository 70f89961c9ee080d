"""Which models ran, how often and on what: enough to say that an accelerator is idle."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from devguard.observe.construction import construction_site
from devguard.observe.frames import raw_site
from devguard.observe.names import name_of_object
from devguard.observe.namespaces import instance_dict, namespaces
from devguard.observe.process_facts import ModelUse, ProcessFacts
from devguard.observe.recorder import Recorder

_MODELS = 200
# What puts data on an accelerator without computing there.
_FILLS = frozenset(
    "_to_copy empty empty_strided empty_like zeros zeros_like ones ones_like full full_like rand randn randint randperm arange "
    "linspace eye scalar_tensor lift_fresh lift_fresh_copy clone detach rand_like randn_like copy new_empty new_zeros new_ones "
    "new_full _pin_memory normal set_".split()
)


class Models:
    """Part of the Process observer."""

    def __init__(self, recorder: Recorder, facts: ProcessFacts) -> None:
        self.recorder = recorder
        self.facts = facts
        kinds = {device.partition(":")[0] for device in recorder.facts.devices}
        self.named = re.compile(rf"({'|'.join(sorted(kinds))})(:\d+)?") if kinds else None

    def called(self, module: Any) -> None:
        """An outermost module is called."""
        if self.named is None:
            return  # there is no accelerator that could be idle
        use = self.facts.models.get(id(module))
        if use is None or use.kind != type(module).__name__:
            use = self._first_call(module)
        if use is None:
            return
        if use.calls == 1:
            use.numel = size_of(module)  # a lazy module has its parameters only after the first call
        use.calls += 1
        use.tally.hit(self.recorder.steps.now, self.recorder.facts.warmup)
        parameter = next(parameters_of(module), None)
        if parameter is not None:
            use.devices.add(parameter.get_device())

    def _first_call(self, module: Any) -> ModelUse | None:
        if len(self.facts.models) >= _MODELS:
            return None
        frame = sys._getframe(3)
        parameters = list(parameters_of(module))
        use = ModelUse(
            name=name_of_object(module, frame) if parameters else "",
            kind=type(module).__name__,
            numel=size_of(module),
            made=construction_site(self.recorder, module),
            site=raw_site(frame),
            devices={p.get_device() for p in parameters},
        )
        if parameters and use.devices == {-1}:
            use.asked = self._accelerator_named(frame)
            use.to_cpu = self._moved_to_host(module)
        self.facts.models[id(module)] = use
        return use

    def _moved_to_host(self, module: Any) -> Any:
        moves = getattr(self.recorder.observers.get("consistency"), "moves", None)
        told = moves.of(module) if moves is not None else []
        return told[-1].site if told and told[-1].target == "cpu" else None

    def _accelerator_named(self, frame: FrameType) -> str:
        """A variable of the program that names an accelerator (`device`, `args.device`, `self.device`): what it is, or empty."""
        for space in namespaces(frame):
            for name, value in space:
                for path, found in _near(name, value):
                    text = str(found) if issubclass(type(found), torch.device) else found
                    if issubclass(type(text), str) and self.named is not None and self.named.fullmatch(text):
                        return f"{path} is {text}"
        return ""

    def collect(self) -> None:
        """Before a report: does an accelerator compute after all? Only asked where a model ran on the host."""
        facts = self.facts
        if facts.busy or not any(use.devices == {-1} and use.numel for use in facts.models.values()):
            return
        for origin in list(self.recorder.origins.table.values()):
            if origin.device >= 0 and origin.op.split(".")[1] not in _FILLS:
                facts.busy = origin.op
                return


def _near(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A variable and what it holds at one remove under a name that speaks of a device."""
    yield name, value
    inner = value if type(value) is dict else None if issubclass(type(value), type) else instance_dict(value)
    if type(inner) is dict and len(inner) < 200:
        for key, held in list(inner.items()):
            if isinstance(key, str) and "device" in key:
                yield (f"{name}[{key!r}]" if inner is value else f"{name}.{key}"), held


def size_of(module: Any) -> int:
    """How many numbers the parameters of a module hold, as far as they have a shape yet."""
    return sum(p.numel() for p in parameters_of(module) if not is_lazy(p))


def parameters_of(module: Any) -> Iterator[Any]:
    """The parameters of a module, depth first; no method of its own is called."""
    todo = [module]  # no recursion: a chain of modules may be deeper than Python recurses
    while todo:
        own = todo.pop().__dict__
        yield from (parameter for parameter in list((own.get("_parameters") or {}).values()) if parameter is not None)
        todo.extend(inner for inner in reversed(list((own.get("_modules") or {}).values())) if inner is not None)

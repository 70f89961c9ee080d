"""The program's optimizers: when they were made, loaded and stepped. They tell what a step of the program is."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from devguard.observe.construction import caller_of_init
from devguard.observe.dispatch import Handlers, Op
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.optimizers_facts import OptimizerFacts
from devguard.observe.optimizers_holders import Holders
from devguard.observe.optimizers_known import Known
from devguard.observe.optimizers_state import StateCheck, state_keys, states
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder

_Optimizer = torch.optim.Optimizer
_MANY = 256  # optimizers, before those that are gone are forgotten


class Optimizers:
    """Observer: hooks every optimizer's step, construction and load_state_dict."""

    stays = True  # between watched steps too: a step hook can't be taken off while PyTorch goes through the step hooks

    name = "optimizers"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.facts = recorder.facts.table(OptimizerFacts)
        self.known: dict[int, Known] = {}
        self.open: list[weakref.ref[Any]] = []  # optimizers whose step has begun and not ended
        self.refused: list[Callable[[Any, FrameType], None]] = []  # told of parameters that an optimizer did not take
        self.patches = Patches()
        self.early: list[Known] = []  # optimizers whose state was looked at because something else had failed
        self._hooks: list[Any] = []
        self.state = StateCheck(recorder, self.facts)
        self.holders = Holders(recorder, self.facts, self.known)
        shielded = recorder.shielded
        self._pre = shielded("optimizer state", self.before_step)
        self._post = shielded("optimizer steps", self.after_step)
        self._note_made = shielded("optimizer construction", self.made)
        self._note_copied = shielded("optimizer construction", self.copied)
        self._note_loaded = shielded("optimizer loading", self.loaded)
        handlers.failed.append(shielded("failed optimizer steps", self.op_failed))

    def start(self) -> None:
        """Install the hooks."""
        self.patches.wrap(_Optimizer, "__init__", self._init)
        self.patches.wrap(_Optimizer, "__setstate__", self._copied)
        self.patches.wrap(_Optimizer, "load_state_dict", self._load)
        self._hooks += [
            register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: self._pre(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._post(optimizer)),
        ]
        self.holders.start()

    def stop(self) -> None:
        """Give everything back."""
        self.patches.restore()
        while self._hooks:
            self._hooks.pop().remove()
        self.holders.stop()

    def collect(self) -> None:
        """Before a report: look once more at what the last steps left behind."""
        for known in self.early:  # told before a step could tell: is it still so?
            self.state.look_again(known)
        for optimizer in self.running():
            self.state.check(self.known[id(optimizer)], optimizer, None)
        self.holders.collect()

    # -- events -------------------------------------------------------------------------------------------------------

    def _init(self, wrapped: Callable[..., Any], optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            wrapped(*args, **kwargs)
        except ValueError:
            if self.recorder.active:
                for listener in self.refused:
                    listener(kwargs.get("params", args[0] if args else None), sys._getframe(1))
            raise
        if self.recorder.active:
            self._note_made(optimizer, sys._getframe(1))

    def _copied(
        self, wrapped: Callable[..., Any], optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        result = wrapped(*args, **kwargs)
        if self.recorder.active:
            self._note_copied(optimizer, sys._getframe(1))
        return result

    def _load(self, wrapped: Callable[..., Any], optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = wrapped(*args, **kwargs)
        if self.recorder.active:
            self._note_loaded(optimizer, sys._getframe(1))
        return result

    def made(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer was constructed."""
        self.recorder.steps.optimizer_made()
        known = self._remember(optimizer, raw_site(caller_of_init(type(optimizer), frame)))
        self.holders.optimizer_made(known, optimizer, frame)

    def copied(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer came to be by a copy or from a file; load_state_dict of one that exists passes here too."""
        known = self.known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            self._remember(optimizer, raw_site(frame))

    def _remember(self, optimizer: Any, site: RawSite | None) -> Known:
        if len(self.known) >= _MANY:
            for key in [key for key, known in self.known.items() if known.ref() is None]:
                del self.known[key]
        known = self.known[id(optimizer)] = Known(optimizer, site, next(self.recorder.clock))
        return known

    def loaded(self, optimizer: Any, frame: FrameType) -> None:
        """State was loaded into an optimizer."""
        known = self.of(optimizer)
        known.loaded_at = raw_site(frame)
        known.loaded = state_keys(optimizer)
        known.signature = None

    def of(self, optimizer: Any) -> Known:
        """The record of an optimizer, made now where it is older than the watch."""
        known = self.known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            known = self.known[id(optimizer)] = Known(optimizer, None, 0)
        return known

    def running(self) -> list[Any]:
        """The optimizers in whose step the program is, or was when an exception ended it; innermost last."""
        alive = [reference() for reference in self.open]
        return [optimizer for optimizer in alive if optimizer is not None]

    def before_step(self, optimizer: Any) -> None:
        """A step begins: where something has changed since the last look, compare state and parameters."""
        if not self.recorder.active:
            return
        known = self.of(optimizer)
        self.open = [ref for ref in self.open if ref() is not optimizer]  # an earlier step that never ended
        self.open.append(known.ref)
        frame = sys._getframe(3)
        if not known.stepped:
            known.eager = state_keys(optimizer) - known.loaded
            known.called(optimizer, frame)
            site = raw_site(frame)
            if site is not None:
                known.sites.add(site)
        signature = signature_of(optimizer)
        if signature != known.signature:
            known.signature = signature
            self.state.check(known, optimizer, frame)

    def after_step(self, optimizer: Any) -> None:
        """A step is complete: what it began with was good enough."""
        recorder = self.recorder
        if not recorder.active:
            return
        known = self.of(optimizer)
        known.stepped += 1
        self.open = [ref for ref in self.open if ref() is not optimizer]
        self.state.completed(known, optimizer)
        self.holders.stepped(known, optimizer, sys._getframe(3))
        recorder.steps.optimizer_stepped(optimizer)
        self.facts.steps += 1

    def op_failed(self, op: Op) -> None:
        """An op raised: was it an optimizer's, and does its state explain it?"""
        # a step that raised earlier never ended: its optimizer has nothing to do with this op
        running = [optimizer for optimizer in self.running() if _on_stack(optimizer, sys._getframe())]
        explained = bool(running) and self.state.check(self.of(running[-1]), running[-1], op.frame)
        if (explained or self.state.check_holder(op, self.known)) and op.site is not None:
            self.facts.blamed.add(op.site)

    def program_failed(self, frame: FrameType | None) -> None:
        """Something else was refused because of devices: what would the next step of each optimizer have met?"""
        for known in list(self.known.values()):
            optimizer = known.ref()
            # One that has stepped with this state, and one with a step of its own, may move the state when it needs it.
            if optimizer is None or known.signature == signature_of(optimizer) or not _steps_as_torch(optimizer):
                continue
            if not known.stepped:
                known.eager = state_keys(optimizer) - known.loaded
            if self.state.check(known, optimizer, frame):
                self.early.append(known)

    def state_name(self, tensor: Any) -> str:
        """What a tensor of optimizer state is called (``optimizer.state[...]['step']``); empty where it is none."""
        for known in self.known.values():
            optimizer = known.ref()
            if optimizer is not None:
                for state in states(optimizer):
                    for key, value in list(state.items()):
                        if value is tensor:
                            return f"{known.called(optimizer, sys._getframe(1))}.state[...][{key!r}]"
        return ""


def _steps_as_torch(optimizer: Any) -> bool:
    """Is its step one of PyTorch's? Another may move the state when it needs it."""
    return str(getattr(type(optimizer).step, "__module__", "")).startswith("torch.optim.")


def _on_stack(owner: Any, frame: FrameType | None) -> bool:
    """Does a method of `owner` run in `frame` or around it?"""
    while frame is not None:
        if frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self") is owner:
            return True
        frame = frame.f_back
    return False


def signature_of(optimizer: Any) -> Any:
    """Changes when parameters, their devices or the layout of the state change; cheap, and it holds no tensor."""
    ends: list[Any] = []
    count = 0
    state = optimizer.state
    for group in optimizer.param_groups:
        params = group["params"]
        count += len(params)
        for param in params[:1] + params[-1:]:
            ends.append(param.get_device())
            entry = state.get(param) if isinstance(state, dict) else None
            if isinstance(entry, dict):
                ends.extend(id(value) for value in entry.values() if isinstance(value, torch.Tensor))
    return count, len(state), tuple(ends)

"""Which optimizer holds which parameter, and which parameters came into a model too late for any to hold them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.modules import module as nn_module
from torch.nn.parameter import is_lazy

from devguard.observe.construction import Construction
from devguard.observe.frames import PROJECT, RawSite, kind_of, own_site, raw_site
from devguard.observe.module_stack import ModuleStack, registered
from devguard.observe.namespaces import instance_dict, is_value, namespaces
from devguard.observe.optimizers_facts import HolderFact, HolderStory, OptimizerFacts
from devguard.observe.optimizers_known import Known
from devguard.observe.optimizers_state import tensor_fact
from devguard.observe.recorder import Recorder

_CHAIN = 8  # project frames kept of a registration
_LIMIT = 20_000  # registrations remembered
_LOOKS = 4  # every step is looked at up to this one, then only steps whose number is a power of two
_MODELS = 64
_ATTRIBUTES = 200


class Registered(NamedTuple):
    """A parameter or module came into a module: when, where, and the identities of the parameters that it replaced."""

    tick: int
    chain: tuple[RawSite, ...]
    replaced: frozenset[int]

    @property
    def place(self) -> RawSite | None:
        """The innermost of the project's positions."""
        return self.chain[0] if self.chain else None


class Missing(NamedTuple):
    """A parameter of a model that has a gradient and no holder."""

    path: str
    param: Any
    owner: Any


class Holders:
    """Part of the Optimizers observer: compares the parameters of models that were called with those that optimizers hold.

    Only at step time, while both sides are alive: an address says nothing about an object that is gone."""

    def __init__(self, recorder: Recorder, facts: OptimizerFacts, known: dict[int, Known]) -> None:
        self.recorder = recorder
        self.facts = facts
        self.known = known
        self.events: dict[tuple[int, str], Registered] = {}  # by module and the name in it
        self.models: dict[int, weakref.ref[Any]] = {}
        self.changed = True
        self.last: tuple[weakref.ref[Any], RawSite | None] | None = None
        self._hooks: list[Any] = []
        self._note = recorder.shielded("parameter registration", self.registered)
        stack = recorder.observers.get(ModuleStack.name)
        if isinstance(stack, ModuleStack):
            stack.called.append(recorder.shielded("called models", self.called))
        if recorder.root is not None:
            self.models[id(recorder.root)] = weakref.ref(recorder.root)

    def start(self) -> None:
        """Hear of registrations."""
        self._hooks += [
            nn_module.register_module_parameter_registration_hook(self._hook),
            nn_module.register_module_module_registration_hook(self._hook),
        ]

    def stop(self) -> None:
        """Give the hooks back."""
        while self._hooks:
            self._hooks.pop().remove()

    # -- events -------------------------------------------------------------------------------------------------------

    def _hook(self, module: Any, name: str, value: Any) -> None:
        if self.known and self.recorder.active:
            self._note(module, name, value)

    def registered(self, module: Any, name: str, value: Any) -> None:
        """Something came into a module after the first optimizer was made."""
        inner = module.__dict__
        if isinstance(value, torch.nn.Module):
            old = (inner.get("_modules") or {}).get(name)
            replaced = (
                frozenset(id(p) for _, p, _ in parameters(old)) if old is not None and old is not value else frozenset()
            )
        else:
            old = (inner.get("_parameters") or {}).get(name)
            replaced = frozenset((id(old),)) if old is not None and old is not value else frozenset()
        if len(self.events) >= _LIMIT:
            self.events.clear()
        self.events[id(module), name] = Registered(next(self.recorder.clock), _chain(), replaced)
        self.changed = True

    def called(self, module: Any) -> None:
        """An outermost module is called: it is one of the program's models."""
        key = id(module)
        reference = self.models.get(key)
        if reference is None or reference() is not module:
            if len(self.models) >= _MODELS:
                self.models = {k: r for k, r in self.models.items() if r() is not None}
            if len(self.models) < _MODELS:
                self.models[key] = weakref.ref(module)
                self.changed = True

    def optimizer_made(self, known: Known, optimizer: Any, frame: FrameType) -> None:
        """A new holder: which parameters of the models in sight did it leave out because they were frozen?"""
        self.changed = True
        frozen: set[int] = set()
        for module in _modules_in_sight(frame):
            frozen.update(id(p) for _, p, _ in parameters(module) if not p.requires_grad)
        known.frozen = frozenset(frozen)

    def stepped(self, known: Known, optimizer: Any, frame: FrameType) -> None:
        """A step is complete, gradients are still there."""
        steps = known.stepped
        if self.changed or steps <= _LOOKS or not steps & (steps - 1):
            self.changed = False
            site = raw_site(frame)
            self.last = (known.ref, site)
            self.look(known, optimizer, site)

    def collect(self) -> None:
        """Before a report: whoever has found a holder meanwhile is no longer missing."""
        held = self.held()
        for key in [key for key, fact in self.facts.holders.items() if not fact.open - held]:
            del self.facts.holders[key]

    # -- the look -----------------------------------------------------------------------------------------------------

    def held(self) -> set[int]:
        """The identities of all parameters that a living optimizer holds."""
        found: set[int] = set()
        for known in self.known.values():
            optimizer = known.ref()
            if optimizer is not None:
                found.update(id(p) for group in optimizer.param_groups for p in group["params"])
        return found

    def look(self, known: Known, optimizer: Any, site: RawSite | None) -> None:
        """Compare this optimizer with every model that was called."""
        held = self.held()
        own = [p for group in optimizer.param_groups for p in group["params"]]
        mine = {id(p) for p in own}
        models = self.outermost()
        in_models = {id(p) for _, model in models for _, p, _ in parameters(model)}
        orphans = [p for p in own if id(p) not in in_models]
        for name, model in models:
            everything = [Missing(path, p, owner) for path, p, owner in parameters(model)]
            missing = [m for m in everything if _trained(m.param) and id(m.param) not in held]
            if missing:
                self._judge(known, site, name, model, everything, missing, mine, orphans)

    def outermost(self) -> list[tuple[str, Any]]:
        """(name, model) of the models that are alive and not part of another one."""
        alive = [model for model in (reference() for reference in self.models.values()) if model is not None]
        inside = {id(m) for model in alive for path, m in registered(model) if path}
        return [(type(model).__name__, model) for model in alive if id(model) not in inside]

    def _judge(
        self,
        known: Known,
        site: RawSite | None,
        name: str,
        model: Any,
        everything: list[Missing],
        missing: list[Missing],
        mine: set[int],
        orphans: list[Any],
    ) -> None:
        dead = [p for p in orphans if p.grad is None]
        holds_some = any(id(m.param) in mine for m in everything)
        late: dict[tuple[RawSite | None, HolderStory], list[tuple[Missing, Registered]]] = {}
        rest: list[Missing] = []
        thawed: list[Missing] = []
        gone = {id(p) for p in orphans}
        for m in missing:
            event = self.event_of(model, m.path, known.tick, mine)
            if event is not None and event.replaced & gone:
                late.setdefault((event.place, "replaced"), []).append((m, event))
            elif event is not None and holds_some and m.owner.training:
                late.setdefault((event.place, "added"), []).append((m, event))
            elif event is None and holds_some and id(m.param) in known.frozen:
                thawed.append(m)
            else:
                rest.append(m)
        for (_, story), group in late.items():
            stale = next((tuple(p.shape) for p in orphans if id(p) in group[0][1].replaced and not is_lazy(p)), None)
            self._add(story, known, site, model, [m for m, _ in group], group[0][1].chain, stale, bool(dead))
        if thawed:
            self._add("unfrozen", known, site, model, thawed, (), None, False)
        if not rest:
            return
        # Gradients that the program itself puts on what the optimizer holds (master weights, meta-learning) are a plan.
        if not holds_some and len(dead) == len(mine) and _twins(everything, orphans):
            self._add("another model", known, site, model, rest, self._parted(known, model), None, True)
        elif holds_some:
            self._add("not held", known, site, model, rest, (), None, bool(dead))

    def event_of(self, model: Any, path: str, since: int, mine: set[int]) -> Registered | None:
        """The first registration on the way from a model to one of its parameters that is younger than an optimizer.

        A wrapper around what the optimizer holds already (DistributedDataParallel, a trainer) adds nothing to the model."""
        at = model
        for name in path.split("."):
            event = self.events.get((id(at), name))
            at = (at.__dict__.get("_modules") or {}).get(name)
            if event is not None and event.tick > since:
                wraps = at is not None and any(id(p) in mine for _, p, _ in parameters(at))
                if event.replaced or not wraps:
                    return event
            if at is None:
                break
        return None

    def _parted(self, known: Known, model: Any) -> tuple[RawSite, ...]:
        """Where a model and the parameters that its optimizer holds parted: the model was made or copied later, or its
        parameters were replaced by moved ones; else the optimizer was made from others."""
        construction = self.recorder.observers.get(Construction.name)
        made = construction.of(model) if isinstance(construction, Construction) else None
        if made is not None and made.tick > known.tick and made.site is not None:
            return (made.site,)
        moves: Any = getattr(self.recorder.observers.get("consistency"), "moves", None)
        last = moves.of(model)[-1:] if moves is not None else []
        if last and last[0].tick > known.tick and last[0].site is not None:
            return (last[0].site,)
        return (known.made,) if known.made is not None else ()

    def _add(
        self,
        story: HolderStory,
        known: Known,
        site: RawSite | None,
        model: Any,
        missing: list[Missing],
        chain: tuple[RawSite, ...],
        stale: tuple[int, ...] | None,
        dead: bool,
    ) -> None:
        first = missing[0]
        key = (id(known), f"{story} {first.path}")
        if key not in self.facts.holders:
            module, kind = self.recorder.module_path(first.owner)
            self.facts.holders[key] = HolderFact(
                optimizer=known.name or "optimizer",
                kind=known.kind,
                story=story,
                tensor=tensor_fact(first.path, "parameter", first.param, self.recorder),
                module=module,
                module_type=kind,
                made=known.made,
                site=site,
                chain=chain,
                stale=stale,
                dead=dead,
            )
        fact = self.facts.holders[key]
        fact.names = [m.path for m in missing]
        fact.open = {id(m.param) for m in missing}
        fact.tally.hit(max(self.recorder.steps.now, 0), self.recorder.facts.warmup)


def parameters(root: Any) -> Iterator[tuple[str, Any, Any]]:
    """(dotted path, parameter, module that holds it) of a module's parameters; no method of theirs is called."""
    for path, module in registered(root):
        for name, param in list((module.__dict__.get("_parameters") or {}).items()):
            if param is not None:
                yield f"{path}.{name}" if path else name, param, module


def _modules_in_sight(frame: FrameType) -> list[Any]:
    """The modules that the variables around a frame hold, themselves or as an attribute (`self.model`)."""
    found: dict[int, Any] = {}
    for space in namespaces(frame):
        for _, value in space:
            held = [value, *_attributes(value)]
            found.update((id(item), item) for item in held if issubclass(type(item), torch.nn.Module))
    return list(found.values())


def _attributes(value: Any) -> list[Any]:
    if is_value(value) or type(value).__module__ == "builtins":
        return []
    return list(instance_dict(value).values())[:_ATTRIBUTES]


def _trained(param: Any) -> bool:
    return param.requires_grad and param.is_leaf and param.grad is not None


def _twins(model: list[Missing], orphans: list[Any]) -> bool:
    """Do these parameters look like those of another copy of the model?"""
    if any(is_lazy(p) for p in [*orphans, *(m.param for m in model)]):
        return False
    shapes = sorted(tuple(p.shape) for p in orphans)
    trained = [m for m in model if m.param.requires_grad]
    return any(sorted(tuple(m.param.shape) for m in part) == shapes for part in (trained, model))


def _chain() -> tuple[RawSite, ...]:
    """The project's positions on the stack, innermost first."""
    frame: FrameType | None = sys._getframe(3)
    found: list[RawSite] = []
    while frame is not None and len(found) < _CHAIN:
        if kind_of(frame.f_code) == PROJECT:
            found.append(own_site(frame))
        frame = frame.f_back
    return tuple(found)

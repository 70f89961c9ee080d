"""Optimizer state against the parameters it belongs to: which tensor is on which device, and how it came there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from devguard.observe.dispatch import Op
from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.namespaces import instance_dict, search
from devguard.observe.optimizers_facts import OptimizerFacts, StateFact, StateStory
from devguard.observe.optimizers_known import Known
from devguard.observe.origins import Origin, stations, storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.symbolize import name_of_code

_Tensor = torch.Tensor
_ITEMS = 8  # entries looked at in a list of tensors (LBFGS's history)
_FRAMES = 12


class StateCheck:
    """Compares state and parameters. A fact stays only where the step did not end: optimizers that keep their state elsewhere
    on purpose, and move it when they need it, are right."""

    def __init__(self, recorder: Recorder, facts: OptimizerFacts) -> None:
        self.recorder = recorder
        self.facts = facts

    def check(self, known: Known, optimizer: Any, frame: FrameType | None) -> bool:
        """Record every tensor on a wrong device, one fact for each entry of the state; True where there is one."""
        wrong: dict[str, StateFact] = {}
        for group in optimizer.param_groups:
            on_device = bool(group.get("capturable") or group.get("fused"))
            for param in group["params"]:
                entry = optimizer.state.get(param) if isinstance(optimizer.state, dict) else None
                if isinstance(entry, dict):
                    for key, value in tensors_of(entry):
                        if misplaced(key, value, param, on_device):
                            self._add(wrong, known, optimizer, f"state[...][{key!r}]", key, value, param, frame)
                            wrong[key].certain = key == "step" and on_device
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, _Tensor) and group["params"] and _wrong_number(value, group["params"]):
                    path = f"param_groups[{index}][{key!r}]"
                    self._add(wrong, known, optimizer, path, key, value, group["params"][0], frame)
                    origin = wrong[key].tensor.origin
                    if origin is not None and wrong[key].tensor.name.endswith(path):
                        wrong[key].story, wrong[key].cause = "made", origin.site
        names = list(wrong)
        if names == ["step"] and wrong["step"].story in ("moved parameters", "made"):
            # The rest of the state is where it belongs: the flag was set, or loaded, when this was there already.
            wrong["step"].story, wrong["step"].cause = "flags", known.made or wrong["step"].cause
        for key, fact in sorted(wrong.items(), key=lambda item: item[0] == "step"):
            fact.others = [name for name in names if name != key]
            if (id(known), key) not in self.facts.state:
                self.facts.state[id(known), key] = fact
                fact.tally.hit(self.recorder.steps.now, 0)
        return bool(wrong)

    def completed(self, known: Known, optimizer: Any) -> None:
        """The step that these facts were about has ended well."""
        state = self.facts.state
        for key in [key for key in state if key[0] == id(known)]:
            if not state[key].certain:
                del state[key]

    def look_again(self, known: Known) -> None:
        """Forget what was said of an optimizer that is gone, or whose state has been moved to its parameters since."""
        optimizer = known.ref()
        said = {key: fact for key, fact in self.facts.state.items() if key[0] == id(known)}
        if optimizer is None or not said:
            return
        for key in said:
            del self.facts.state[key]
        if self.check(known, optimizer, None):
            self.facts.state.update(said)

    def _add(
        self,
        wrong: dict[str, StateFact],
        known: Known,
        optimizer: Any,
        path: str,
        key: str,
        value: Any,
        param: Any,
        frame: FrameType | None,
    ) -> None:
        fact = wrong.get(key)
        if fact is None:
            made_now = self._made_now(optimizer, value, frame)
            story, cause, moved = self._history(known, value, param, made_now)
            name = known.called(optimizer, frame or sys._getframe(1))
            fact = wrong[key] = StateFact(
                optimizer=name,
                kind=known.kind,
                key=key,
                tensor=tensor_fact(f"{name}.{path}", "optimizer state", value, self.recorder),
                expected=str(param.device),
                story=story,
                cause=cause,
                site=raw_site(frame) or next(iter(known.sites), None),
                moved=moved,
            )
        fact.count += 1

    def _history(
        self, known: Known, value: Any, param: Any, made_now: bool
    ) -> tuple[StateStory, RawSite | None, RawSite | None]:
        """How a state tensor came to be elsewhere than its parameter: (story, the line to change, where the parameter moved)."""
        origins = self.recorder.origins
        origin, home = origins.of(value), origins.of(param)
        moved = home.site if home is not None and home.op.startswith("aten._to_copy") else None
        key = storage_key(value)
        if key in known.loaded:
            return "loaded", known.loaded_at, moved
        taken = next((s for s in stations(origin) if s.parent is not None and s.parent.device != s.device), None)
        if taken is not None and taken.op.startswith("aten._to_copy") and taken.site not in known.sites:
            return "moved state", taken.site, moved
        if key in known.eager and known.made is not None:
            if origin is None or origin.site == known.made or _in_constructor(origin):
                return "eager", known.made, moved
            return "made", origin.site, moved  # somebody has put it into the state: `optimizer.state[p] = saved`
        if moved is not None and not made_now:
            return "moved parameters", moved, moved
        return "made", origin.site if origin is not None else known.made, None

    def _made_now(self, optimizer: Any, value: Any, frame: FrameType | None) -> bool:
        """Was a tensor made in this step, by a method of the optimizer that runs now?"""
        origin = self.recorder.origins.of(value)
        if origin is None or origin.site is None or origin.step != self.recorder.steps.now:
            return False
        while frame is not None:
            if origin.site[0] is frame.f_code and frame.f_locals.get("self") is optimizer:
                return True
            frame = frame.f_back
        return False

    # -- tensors that an optimizer, or something around one, keeps elsewhere than in its state --------------------------

    def check_holder(self, op: Op, known: dict[int, Known]) -> bool:
        """An op failed in a method of an optimizer (SAM's ``first_step``) or of a wrapper around one (Lookahead): does that
        object hold the operand that is on another device than the rest?"""
        operands = op.operands()
        if len({value.device for _, value in operands}) < 2:
            return False
        frame = op.frame
        for _ in range(_FRAMES):
            if frame is None:
                break
            owner = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames[:1] else None
            if owner is not None and is_optimizer_like(owner):
                return self._blame_holder(owner, operands, known.get(id(owner)), frame)
            frame = frame.f_back
        return False

    def _blame_holder(self, owner: Any, operands: list[tuple[str, Any]], known: Known | None, frame: FrameType) -> bool:
        params = {storage_key(p): p for group in _groups_of(owner) for p in group["params"]}
        known = known or Known(owner, None, 0)
        for _, value in operands:
            key = storage_key(value)
            other = next((o for _, o in operands if o.device != value.device), None)
            if key is None or key in params or other is None:
                continue
            inside = [(n, v) for n, v in vars(owner).items() if n != "param_groups"]
            path = search(inside, _holds(key), 4)
            if path is None:
                continue
            wrong: dict[str, StateFact] = {}
            self._add(wrong, known, owner, path, path, value, other, frame)
            for name, fact in wrong.items():
                fact.held = True
                fact.site, fact.caller = raw_site(frame), raw_site(frame.f_back)
                if fact.story == "moved parameters" and _in_constructor(fact.tensor.origin):
                    fact.story, fact.cause = "eager", known.made
                self.facts.state[id(owner), name] = fact
                fact.tally.hit(self.recorder.steps.now, 0)
            return True
        return False


def _holds(key: int) -> Callable[[Any], bool]:
    return lambda found: isinstance(found, _Tensor) and storage_key(found) == key


def _in_constructor(origin: Origin | None) -> bool:
    """Was a tensor made while its holder was constructed?"""
    code = origin.site[0] if origin is not None and origin.site is not None else None
    return code is not None and ".__init__" in name_of_code(code)


def is_optimizer_like(owner: Any) -> bool:
    """An optimizer, or an object that dresses up as one."""
    if isinstance(owner, torch.optim.Optimizer):
        return True
    kind = type(owner)
    if not (callable(getattr(kind, "step", None)) and callable(getattr(kind, "zero_grad", None))):
        return False
    return bool(_groups_of(owner))


def _groups_of(owner: Any) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer, or of the one that a wrapper holds."""
    groups: Any = getattr(owner, "param_groups", None)
    if groups is None:
        held = list(instance_dict(owner).values())
        groups = next((value.param_groups for value in held if issubclass(type(value), torch.optim.Optimizer)), None)
    if not isinstance(groups, list) or not all(isinstance(group, dict) and "params" in group for group in groups):
        return []
    return groups


def misplaced(key: str, value: Any, param: Any, on_device: bool) -> bool:
    """Is a state tensor where its optimizer can't use it? A 0-dim one on the host is right, except as `step` of a capturable
    or fused optimizer; a `step` on the accelerator costs a wait, no error (DG201)."""
    index: int = value.get_device()
    home: int = param.get_device()
    if index == home:
        return False
    if value.dim() == 0:
        if key == "step":
            return on_device or (index >= 0 and home >= 0)
        return index >= 0
    return True


def _wrong_number(value: Any, params: list[Any]) -> bool:
    """Is a hyperparameter (a tensor as `lr`) on a device where none of the group's parameters is?"""
    index = value.get_device()
    return not (index < 0 and value.dim() == 0) and all(index != param.get_device() for param in params)


def tensors_of(entry: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    """(key, tensor) of one parameter's state; the tensors of a list carry the list's key."""
    for key, value in list(entry.items()):
        if isinstance(value, _Tensor):
            yield str(key), value
        elif isinstance(value, (list, tuple)):
            for item in value[:_ITEMS]:
                if isinstance(item, _Tensor):
                    yield str(key), item


def states(optimizer: Any) -> list[dict[Any, Any]]:
    """The state of each parameter."""
    state = getattr(optimizer, "state", None)
    return [entry for entry in state.values() if isinstance(entry, dict)] if isinstance(state, dict) else []


def state_keys(optimizer: Any) -> frozenset[int]:
    """The storages of all state tensors, as numbers."""
    found = (storage_key(value) for entry in states(optimizer) for _, value in tensors_of(entry))
    return frozenset(key for key in found if key is not None)


def tensor_fact(name: str, role: str, tensor: Any, recorder: Recorder) -> TensorFact:
    """A tensor as it is now, without the tensor."""
    return TensorFact(
        name=name,
        role=role,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        origin=recorder.origins.of(tensor),
        is_leaf=tensor.is_leaf,
    )

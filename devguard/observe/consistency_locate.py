"""Where the operands of a failed operation belong: which module holds them, under which name, and what happened to that module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from devguard.observe.consistency_facts import Kind, ModuleFact, Move, OperandFact
from devguard.observe.construction import Construction
from devguard.observe.frames import LIBRARY, PROJECT, RawSite, kind_of, kind_of_file
from devguard.observe.module_stack import registered
from devguard.observe.moves import Moves
from devguard.observe.names import name_and_base, name_of_object
from devguard.observe.namespaces import children, is_value, scope_of, search
from devguard.observe.origins import Origin, shape_of, stations, storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.scan import Held, devices_of, joined, own_slots, slots, unregistered
from devguard.observe.source_search import assignment_site, class_place

_Tensor = torch.Tensor
_MODULES = 60
_CALL_FILE = registered.__code__.co_filename


class Place:
    """One tensor that a module holds, registered or not."""

    __slots__ = ("attribute", "helper", "holder", "holder_path", "kind", "path", "root", "tensor")

    def __init__(
        self, kind: Kind, path: str, tensor: Any, holder: Any, holder_path: str, root: Any, attribute: str, helper: bool
    ) -> None:
        self.kind: Kind = kind
        self.path = path
        self.tensor = tensor
        self.holder = holder
        self.holder_path = holder_path
        self.root = root
        self.attribute = attribute
        self.helper = helper


class Call:
    """One module call that is running: the module and what it was given."""

    __slots__ = ("args", "kwargs", "module")

    def __init__(self, module: Any, args: Any, kwargs: Any) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs


def modules_in_frames(frame: FrameType | None) -> list[Any]:
    """The modules in the variables of the project's frames, and one attribute or entry deep in what these hold."""
    found: list[Any] = []
    while frame is not None and len(found) < _MODULES:
        if kind_of(frame.f_code) == PROJECT:
            for value in scope_of(frame).values():
                if is_value(value) or issubclass(type(value), _Tensor):
                    continue
                near = [value]
                if not issubclass(type(value), torch.nn.Module):
                    near.extend(child for _, child in itertools.islice(children(value), 50))
                found.extend(m for m in near if issubclass(type(m), torch.nn.Module) and not any(m is f for f in found))
        frame = frame.f_back
    return found


def running_calls(frame: FrameType | None, stack: list[Any]) -> list[Call]:
    """The running module calls, innermost first, read from the frames of the module stack's own function."""
    found: list[Call] = []
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_call_impl" and code.co_filename == _CALL_FILE:
            variables = frame.f_locals
            if any(module is variables.get("self") for module in stack):
                found.append(Call(variables["self"], variables["args"], variables["kwargs"]))
        frame = frame.f_back
    return found


def station_chain(origin: Origin | None, limit: int = 24) -> Iterator[Origin]:
    """From a station back over copies and the host's calculations."""
    while origin is not None and limit:
        yield origin
        origin = origin.parent or origin.source
        limit -= 1


def places_in(root: Any) -> list[Place]:
    """Every tensor that a module holds."""
    found = [
        Place(
            "parameter" if s.is_parameter else "buffer", s.path, s.tensor, s.module, s.module_path, root, s.name, False
        )
        for s in slots(root)
    ]
    for held in unregistered(root):
        found.extend(_of_held(held, root))
    return found


def _of_held(held: Held, root: Any) -> Iterator[Place]:
    if isinstance(held.obj, _Tensor):
        yield Place(
            "attribute", held.path, held.obj, held.holder, held.holder_path, root, held.attribute, held.through_helper
        )
        return
    for slot in slots(held.obj):
        path = joined(held.path, slot.path)
        yield Place(
            "hidden", path, slot.tensor, held.holder, held.holder_path, root, held.attribute, held.through_helper
        )


class Locator:
    """Everything the running modules, the root and the modules that were moved hold, at the moment of one failure."""

    def __init__(self, recorder: Recorder, moves: Moves, frame: FrameType | None) -> None:
        self.recorder = recorder
        self.moves = moves
        self.frame = frame
        self.calls = running_calls(frame, recorder.thread.modules)
        observer: Any = recorder.observers.get("module stack")
        self.root: Any = observer.root if observer is not None else None
        self.places: list[Place] = []
        self.by_id: dict[int, Place] = {}
        self.by_key: dict[int, Place] = {}
        self.by_origin: dict[int, Place] = {}
        self._registered: set[int] = set()  # stations of what is registered now, or was before it was moved
        self._facts: dict[int, ModuleFact] = {}
        self._prefixes: dict[int, str] = {}
        self._inside: set[int] = set()
        self.homes: dict[str, int] = {}
        self.late: dict[int, tuple[int, RawSite | None]] = {}  # by storage key: parameters that came after a move
        for module in self._roots():
            self._add(module)

    def _roots(self) -> Iterator[Any]:
        outermost = self.calls[-1].module if self.calls else None
        nearby = modules_in_frames(self.frame)
        for module in (self.root, outermost, *self.moves.moved(), *(call.module for call in self.calls), *nearby):
            if module is not None and id(module) not in self._inside:
                yield module

    def _add(self, root: Any) -> None:
        self._inside.update(id(module) for _, module in registered(root))
        origins = self.recorder.origins
        for place in places_in(root):
            if place.kind == "attribute" and not place.helper and self._moves_itself(place.holder):
                place.kind = "buffer"
            self.places.append(place)
            key = storage_key(place.tensor)
            known = self.by_id.setdefault(id(place.tensor), place)
            if place.kind == "hidden" and known.kind in ("parameter", "buffer") and not self.moves.of(known.root):
                self.by_id[id(place.tensor)] = (
                    place  # a module that runs by itself, and that another one should have moved
                )
                if key is not None:
                    self.by_key[key] = place
            if key is not None:
                self.by_key.setdefault(key, place)
            origin = origins.of(place.tensor)
            if place.kind in ("parameter", "buffer") and not is_loss(place.holder):
                device = str(place.tensor.device)
                self.homes[device] = self.homes.get(device, 0) + 1
            if origin is not None:
                self.by_origin.setdefault(id(origin), place)
                if place.kind != "attribute":
                    self._registered.update(id(station) for station in stations(origin))

    def _moves_itself(self, module: Any) -> bool:
        """Does a module take its plain attributes along by an `_apply` of its own, as metrics do, and was it never moved? Then
        nothing was left behind, and it is the module that has to be moved."""
        own = type(module)._apply is not torch.nn.Module._apply
        return own and not self.moves.of(module) and next(iter(slots(module)), None) is None

    def place_of(self, tensor: Any) -> tuple[Place | None, str]:
        """Who holds a tensor, and how that is known: `identity`, `storage`, `origin` (it was calculated from what is held), or nobody."""
        place = self.by_id.get(id(tensor))
        if place is not None:
            return place, "identity"
        key = storage_key(tensor)
        place = self.by_key.get(key) if key is not None else None
        if place is not None:
            return place, "storage"
        for station in station_chain(self.recorder.origins.of(tensor)):
            place = self.by_origin.get(id(station))
            if place is not None and place.tensor.get_device() == tensor.get_device():
                if place.kind in ("parameter", "buffer") and not self._runs(place.root):
                    break  # the result of another model, which may well be where it belongs
                return place, "origin"
        return None, ""

    def _runs(self, module: Any) -> bool:
        return any(call.module is module for call in self.calls)

    # -- modules ------------------------------------------------------------------------------------------------------

    def prefix(self, root: Any) -> str:
        """What names of tensors inside a module begin with: the user's name for the module, if there is one."""
        found = self._prefixes.get(id(root))
        if found is None:
            found = self._name(root) or self.recorder.module_path(root)[0]
            self._prefixes[id(root)] = found
        return found

    def _name(self, module: Any) -> str:
        """The user's name for a module; `self` is none."""
        name = name_of_object(module, self.frame)
        return "" if name == "self" else name.removeprefix("self.")

    def module_fact(self, module: Any) -> ModuleFact:
        """What is known about a module, worked out once per failure."""
        fact = self._facts.get(id(module))
        if fact is None:
            fact = self._facts[id(module)] = self._module_fact(module)
        return fact

    def _module_fact(self, module: Any) -> ModuleFact:
        path, kind = self.recorder.module_path(module)
        variable = self._name(module) if not path else ""
        if not path and module is not self.root:
            path = variable
        cls = type(module)
        classes = tuple(class_place(c) for c in cls.__mro__)
        places = tuple(place for place in classes if place is not None and kind_of_file(place[0]) in (PROJECT, LIBRARY))
        construction: Any = self.recorder.observers.get(Construction.name)
        made = construction.of(module) if construction is not None else None
        own = module.__dict__
        return ModuleFact(
            path=path,
            type=kind,
            variable=variable,
            qualified=f"{cls.__module__}.{cls.__qualname__}",
            library=bool(places) and kind_of_file(places[0][0]) == LIBRARY,
            loss=is_loss(module),
            devices=devices_of([slot.tensor for slot in own_slots(module)]),
            tree_devices=devices_of([slot.tensor for slot in slots(module)]),
            built=made.site if made is not None else None,
            called=construction.call_of_shared(made) if made is not None else None,
            moves=tuple(self.moves.of(module)),
            inner_moves=tuple(self._inner_moves(module)),
            hooked=bool(own.get("_forward_pre_hooks")) or "_hf_hook" in own,
            classes=places,
        )

    def _inner_moves(self, module: Any) -> list[Move]:
        own = {id(move) for move in self.moves.of(module)}
        found = {
            id(move): move for _, inner in registered(module) for move in self.moves.of(inner) if id(move) not in own
        }
        return sorted(found.values(), key=lambda move: move.tick)

    def _newest(self, place: Place) -> Any:
        """The outermost module on the way from a root to a holder that the root's last move has not covered; where the root was
        never moved, the outermost that is on the host as a whole."""
        on_the_way = [place.root]
        for name in place.holder_path.split(".") if place.holder_path else []:
            inner = (on_the_way[-1].__dict__.get("_modules") or {}).get(name)
            if inner is None:
                break
            on_the_way.append(inner)
        moves = self.moves.of(place.root)
        if moves:
            return next((m for m in on_the_way if not any(move is moves[-1] for move in self.moves.of(m))), None)
        return next((m for m in on_the_way if set(self.module_fact(m).tree_devices) <= {"cpu"}), None)

    # -- operands -----------------------------------------------------------------------------------------------------

    def input_of(self, tensor: Any) -> Any:
        """The innermost running module that got a tensor as an argument, or data that it is a view or a copy of."""
        key = storage_key(tensor)
        origins = self.recorder.origins
        device = tensor.get_device()
        copied = {id(station) for station in stations(origins.of(tensor)) if station.device == device}

        def same(other: Any) -> bool:
            if other is tensor or not issubclass(type(other), _Tensor):
                return other is tensor
            return (key is not None and storage_key(other) == key) or id(origins.of(other)) in copied

        for call in self.calls:
            if search([("args", call.args), ("kwargs", call.kwargs)], same, 5) is not None:
                return call.module
        return None

    def operand(self, argument: str, tensor: Any, place: Place | None = None, how: str = "identity") -> OperandFact:
        """The facts of one tensor."""
        if place is None:
            place, how = self.place_of(tensor)
        named, base = (
            ("", tensor) if place is not None else name_and_base(tensor, self.frame, self.recorder.origins.of(tensor))
        )
        if (
            base is not tensor
        ):  # calculated in the failing statement itself: what it was calculated from is what is out of place
            return self.operand(argument, base)
        origin = self.recorder.origins.of(place.tensor if place is not None and how == "origin" else tensor)
        fact = OperandFact(
            name="", kind="value", argument=argument, device=str(tensor.device), shape=shape_of(tensor),
            dtype=str(tensor.dtype).removeprefix("torch."), origin=origin,
            nbytes=tensor.numel() * tensor.element_size() if tensor.layout is torch.strided else 0,
            grad=tensor.grad_fn is not None,
        )  # fmt: skip
        if place is not None:
            self._held(fact, place, tensor, how)
        fact.name = fact.name or named
        if place is None or how != "identity" or place.kind == "attribute":
            receiver = self.input_of(tensor)
            fact.input_of = self.module_fact(receiver) if receiver is not None else None
            fact.copy_of = next((s for s in list(stations(origin))[1:] if id(s) in self._registered), None)
            fact.fed_by = next((s for s in station_chain(origin) if id(s) in self._registered), None)
        if place is None and origin is None:
            fact.assigned = assignment_site(fact.name, self.frame)
        return fact

    def _held(self, fact: OperandFact, place: Place, tensor: Any, how: str) -> None:
        detached = how == "storage" and place.kind in ("parameter", "buffer")
        fact.kind = place.kind
        fact.name = name_of_object(tensor, self.frame) if detached else ""
        fact.name = fact.name or joined(self.prefix(place.root), place.path)
        fact.holder = self.module_fact(place.holder)
        fact.outermost = self.module_fact(place.root)
        newest = self._newest(place)
        fact.newest = self.module_fact(newest) if newest is not None else None
        fact.attribute = place.attribute
        fact.through_helper = place.helper
        key = storage_key(place.tensor)
        if key is not None:
            tick, site = self.late.get(key, (0, None))
            if place.kind == "parameter" and all(move.tick < tick for move in self.moves.of(place.holder)):
                fact.registered = site
            fact.left_behind = self.moves.left.get(key)


def is_loss(module: Any) -> bool:
    """Is this a loss: one of PyTorch's, or one that calls itself so?"""
    name = type(module).__name__.lower()
    return isinstance(module, torch.nn.modules.loss._Loss) or "loss" in name or "criterion" in name

"""The moves of modules: where, what, to which device, what stayed behind, and which ties came apart."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from devguard.observe.consistency_facts import BrokenTie, ConsistencyFacts, Move
from devguard.observe.frames import raw_site
from devguard.observe.module_stack import registered
from devguard.observe.names import name_of_object
from devguard.observe.origins import storage_key
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder
from devguard.observe.scan import Held, Slot, devices_of, joined, slots, tied_slots, unregistered

_CALLS = ("to", "cuda", "cpu", "to_empty", "xpu", "ipu", "mtia", "hpu")
_KEPT = 8  # moves of one module: the first and the latest
_SCANS = 4  # of one module: a program that moves its model on every step is not scanned on every step
_MODULES = 10_000  # before those that are gone are looked for
_TIES = 100
_LEFT = 10_000  # tensors that are remembered as left behind

_Weak = weakref.ref


class Moves:
    """Wraps the module methods that move, and remembers per module which of them have reached it."""

    def __init__(self, recorder: Recorder, facts: ConsistencyFacts) -> None:
        self.recorder = recorder
        self.facts = facts
        self.patches = Patches()
        self.table: dict[int, tuple[_Weak[Any], list[Move]]] = {}
        self.roots: dict[int, _Weak[Any]] = {}  # the modules that were moved themselves
        self.left: dict[int, Move] = {}  # storage key -> the move that passed it by
        self.scans: dict[int, int] = {}
        self.ties: list[tuple[BrokenTie, _Weak[Any], str, _Weak[Any], str]] = []
        self.listeners: list[Callable[[Any, Move, list[Held]], None]] = []
        self._depth = 0
        self._limit = _MODULES
        self._before = recorder.shielded("moves of modules", self.before)
        self._after = recorder.shielded("moves of modules", self.after)

    def start(self) -> None:
        """Wrap the methods."""
        for name in _CALLS:
            self.patches.wrap(torch.nn.Module, name, self._wrapper(name))

    def stop(self) -> None:
        """Give them back."""
        self.patches.restore()

    def _wrapper(self, name: str) -> Callable[..., Any]:
        recorder = self.recorder

        def call(wrapped: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if not recorder.active or module is None or self._depth:
                return wrapped(*args, **kwargs)
            notes: dict[str, Any] = {}
            self._before(module, notes)
            self._depth += 1
            try:
                result = wrapped(*args, **kwargs)
            finally:
                self._depth -= 1
            self._after(module, name, args, kwargs, notes, sys._getframe(1))
            return result

        return call

    # -- one move -----------------------------------------------------------------------------------------------------

    def before(self, module: Any, notes: dict[str, Any]) -> None:
        """What the move may change."""
        held = slots(module)
        notes["slots"] = held
        notes["devices"] = devices_of([slot.tensor for slot in held])
        notes["ties"] = tied_slots(module)

    def after(self, module: Any, name: str, args: Any, kwargs: Any, notes: dict[str, Any], frame: FrameType) -> None:
        """Remember the move, if it was one, and look at what it left behind."""
        held = slots(module)
        devices = devices_of([slot.tensor for slot in held])
        target = target_of(name, args, kwargs, devices)
        if target is None:  # only a dtype or a memory format
            return
        recorder = self.recorder
        move = Move(
            raw_site(frame), name, target, next(recorder.clock), recorder.steps.now, type(module).__name__,
            tuple(sorted(notes.get("devices", ()))),
        )  # fmt: skip
        self.roots[id(module)] = weakref.ref(module)
        for _, inner in registered(module):
            self._add(inner, move)
        if devices != notes.get("devices"):
            self._ties(module, notes.get("ties", []), move, frame)
        scans = self.scans.get(id(module), 0)
        if scans < _SCANS and not target.startswith("meta"):
            self.scans[id(module)] = scans + 1
            self._left_behind(module, move)

    def _add(self, module: Any, move: Move) -> None:
        entry = self.table.get(id(module))
        if len(self.table) >= self._limit:
            self._forget_dead()
        if entry is None or entry[0]() is not module:
            entry = self.table[id(module)] = (weakref.ref(module), [])
        moves = entry[1]
        moves.append(move)
        if len(moves) > _KEPT:
            del moves[1]

    def _forget_dead(self) -> None:
        """Modules that are gone need no history; a program may make and move new ones on every step."""
        self.table = {key: entry for key, entry in self.table.items() if entry[0]() is not None}
        self.roots = {key: reference for key, reference in self.roots.items() if reference() is not None}
        self.scans = {key: count for key, count in self.scans.items() if key in self.roots}
        self._limit = max(_MODULES, 2 * len(self.table))

    def _left_behind(self, module: Any, move: Move) -> None:
        found = unregistered(module)
        for held in found:
            tensors = [held.obj] if isinstance(held.obj, torch.Tensor) else [slot.tensor for slot in slots(held.obj)]
            for tensor in tensors:
                key = storage_key(tensor)
                if key is not None and not is_at(tensor, move.target):
                    if len(self.left) >= _LEFT:
                        self.left.clear()
                    self.left[key] = move
        for listener in self.listeners:
            listener(module, move, found)

    # -- ties ---------------------------------------------------------------------------------------------------------

    def _ties(self, module: Any, pairs: list[tuple[Slot, Slot]], move: Move, frame: FrameType) -> None:
        for first, second in pairs:
            if len(self.ties) >= _TIES or _tied(first.module, first.name, second.module, second.name):
                continue
            path, kind = self.recorder.module_path(module)
            tensor = first.module.__dict__["_parameters" if first.is_parameter else "_buffers"].get(first.name)
            if tensor is None:
                continue
            prefix = path or ("" if self.is_root(module) else name_of_object(module, frame))
            fact = BrokenTie(
                joined(prefix, first.path), joined(prefix, second.path), move, path, kind or type(module).__name__,
                tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device),
            )  # fmt: skip
            self.facts.ties.append(fact)
            self.ties.append((fact, weakref.ref(first.module), first.name, weakref.ref(second.module), second.name))

    def is_root(self, module: Any) -> bool:
        """Is this the module that paths start from?"""
        observer: Any = self.recorder.observers.get("module stack")
        return observer is not None and observer.root is module

    def collect(self) -> None:
        """A tie that the program has made again is no mistake."""
        for fact, one, first, other, second in self.ties:
            a, b = one(), other()
            fact.mended = a is not None and b is not None and _tied(a, first, b, second)

    # -- questions ----------------------------------------------------------------------------------------------------

    def of(self, module: Any) -> list[Move]:
        """The moves that have reached a module, oldest first."""
        entry = self.table.get(id(module))
        return entry[1] if entry is not None and entry[0]() is module else []

    def moved(self) -> list[Any]:
        """The modules that were moved themselves and are still alive."""
        alive = [(key, reference()) for key, reference in self.roots.items()]
        self.roots = {key: self.roots[key] for key, module in alive if module is not None}
        return [module for _, module in alive if module is not None]


def _tied(one: Any, first: str, other: Any, second: str) -> bool:
    tensors = []
    for module, name in ((one, first), (other, second)):
        tensor = (module.__dict__.get("_parameters") or {}).get(name)
        tensors.append(tensor if tensor is not None else (module.__dict__.get("_buffers") or {}).get(name))
    a, b = tensors
    return a is None or b is None or a is b or storage_key(a) == storage_key(b)


def is_at(tensor: Any, target: str) -> bool:
    """Is a tensor where a move went? The target of a module without tensors of its own may lack the index: `cuda`."""
    device = str(tensor.device)
    return target in (device, device.split(":")[0])


def target_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], devices: dict[str, int]) -> str | None:
    """The device that a call moves to; None where it names none."""
    if name == "to":
        target = kwargs.get("device", args[0] if args else None)
        if isinstance(target, torch.Tensor):
            return str(target.device)
        if target is None or isinstance(target, torch.dtype):
            tensor = kwargs.get("tensor")
            return str(tensor.device) if isinstance(tensor, torch.Tensor) else None
    elif name == "to_empty":
        target = kwargs.get("device", args[0] if args else None)
    elif name == "cpu":
        return "cpu"
    else:
        target = kwargs.get("device", args[0] if args else None)
        target = name if target is None else f"{name}:{target}" if isinstance(target, int) else target
    # The devices of the tensors know the index that `cuda` leaves out.
    text = f"cuda:{target}" if isinstance(target, int) else str(target)
    for device in devices:
        if device == text or device.split(":")[0] == text:
            return device
    return text

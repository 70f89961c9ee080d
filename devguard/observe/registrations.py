"""Parameters that come into a module after it was moved, or in the place of others: where that is written."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from torch.nn.modules import module as module_py

from devguard.observe.consistency_facts import BrokenTie, ConsistencyFacts, Move
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.moves import Moves
from devguard.observe.origins import storage_key
from devguard.observe.recorder import Recorder
from devguard.observe.scan import joined

_MOST = 10_000

_Weak = weakref.ref


class Registrations:
    """Listens to PyTorch's own hook for `module.name = nn.Parameter(...)`. What a constructor registers passes at once."""

    def __init__(self, recorder: Recorder, facts: ConsistencyFacts, moves: Moves) -> None:
        self.recorder = recorder
        self.facts = facts
        self.moves = moves
        self.late: dict[
            int, tuple[int, RawSite | None]
        ] = {}  # storage key -> tick and statement of a late registration
        self._replaced: dict[int, tuple[_Weak[Any], str, int | None]] = {}  # id of a parameter -> who gave it up
        self._apart: list[tuple[BrokenTie, _Weak[Any], str, _Weak[Any], str]] = []
        self._handle: Any = None
        self._note = recorder.shielded("late parameters", self.note)

    def start(self) -> None:
        """Hang up the hook."""
        self._handle = module_py.register_module_parameter_registration_hook(self._registered)

    def stop(self) -> None:
        """Take it down."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _registered(self, module: Any, name: str, parameter: Any) -> None:
        old = module.__dict__["_parameters"].get(name)
        if self.recorder.active and (old is not None or self.moves.of(module)):
            self._note(module, name, parameter, old)

    def note(self, module: Any, name: str, parameter: Any, old: Any) -> None:
        """Remember where a parameter took its place, and what it replaced."""
        site = raw_site(sys._getframe(2))
        if self.moves.of(module):
            key = storage_key(parameter)
            if key is not None:
                if len(self.late) >= _MOST:
                    self.late.clear()
                self.late[key] = (next(self.recorder.clock), site)
        if old is not None and old is not parameter:
            self._replace(module, name, parameter, old, site)

    def _replace(self, module: Any, name: str, parameter: Any, old: Any, site: RawSite | None) -> None:
        """Two modules that shared a parameter, and now get one each on another device, are no longer tied."""
        key = storage_key(old)
        first = self._replaced.get(id(old))
        if first is None or first[2] != key or key is None:
            if len(self._replaced) >= _MOST:
                self._replaced.clear()
            self._replaced[id(old)] = (weakref.ref(module), name, key)
            return
        other = first[0]()
        if other is None or (other is module and first[1] == name) or parameter.device == old.device:
            return
        move = Move(site, "", str(parameter.device), next(self.recorder.clock), self.recorder.steps.now, "")
        fact = BrokenTie(
            first[1], name, move, "", "", tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."), move.target,
        )  # fmt: skip
        if len(self._apart) < 100:
            self._apart.append((fact, first[0], first[1], weakref.ref(module), name))
            self.facts.ties.append(fact)

    def collect(self) -> None:
        """Before a report: what is tied again is no mistake; modules have their paths now."""
        for fact, one, first, two, second in self._apart:
            a, b = one(), two()
            if a is None or b is None:
                fact.mended = True
                continue
            keys = [storage_key((m.__dict__.get("_parameters") or {}).get(n)) for m, n in ((a, first), (b, second))]
            fact.mended = keys[0] == keys[1]
            fact.first = joined(self.recorder.module_path(a)[0], first)
            fact.second = joined(self.recorder.module_path(b)[0], second)
            fact.module, fact.module_type = self.recorder.module_path(b)

"""Which allow() and guard() scopes are in force, and the check that observers call at event time. Imports no torch.

Scopes belong to the code that opened them: they follow a context (a thread, an asyncio task). A thread that Python did
not start (PyTorch's backward threads) has no context of its own: there every open scope of the process counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["h2d", "d2h", "d2d"]
GuardLevel = Literal["allow", "log", "error"]
GUARD_LEVELS: tuple[GuardLevel, ...] = ("allow", "log", "error")


class DeviceGuardError(RuntimeError):
    """Raised at the line that waits or copies inside a `devguard.guard(...)` scope that forbids it."""


@dataclass(eq=False, slots=True)
class AllowScope:
    """Events of these rules (or beginnings of codes) are wanted here, for a reason. One object per place in the source.

    `used` counts the events it took, `opened` is when it was last entered, `first` and `last` the lines that it spans.
    """

    codes: tuple[str, ...]
    reason: str
    first_only: bool = False
    used: int = 0
    opened: float = 0.0
    file: str = ""
    first: int = 0
    last: int = 0


@dataclass(eq=False, slots=True)
class GuardScope:
    """What each kind of event does here: None leaves it to the scope around."""

    levels: dict[str, GuardLevel] = field(default_factory=dict)
    implicit_only: bool = True


Scope = AllowScope | GuardScope


class _Open:
    """The open scopes, innermost last: of each context, and of the whole process for threads without one."""

    def __init__(self) -> None:
        self.mine: ContextVar[tuple[Scope, ...]] = ContextVar("devguard_scopes", default=())
        self.all: tuple[Scope, ...] = ()
        self.places: dict[tuple[str, int, tuple[str, ...]], AllowScope] = {}
        self.lock = threading.Lock()

    def push(self, scope: Scope) -> None:
        self.mine.set((*self.mine.get(), scope))
        with self.lock:
            self.all = (*self.all, scope)

    def pop(self, scope: Scope) -> None:
        # By identity and not by token: a generator's scope may end in another context than it began in.
        self.mine.set(_without(self.mine.get(), scope))
        with self.lock:
            self.all = _without(self.all, scope)


def _without(scopes: tuple[Scope, ...], scope: Scope) -> tuple[Scope, ...]:
    last = max((index for index, other in enumerate(scopes) if other is scope), default=-1)
    return scopes if last < 0 else scopes[:last] + scopes[last + 1 :]


_open = _Open()  # allow() and guard() are global names, like warnings.catch_warnings: their scopes have no other home


def push(scope: Scope) -> None:
    """Open a scope for the running context."""
    _open.push(scope)


def pop(scope: Scope) -> None:
    """Close the innermost opening of a scope."""
    _open.pop(scope)


def allow_at(codes: tuple[str, ...], reason: str, first_only: bool, file: str, first: int, last: int) -> AllowScope:
    """The scope of one allow() in the source: the same object each time, so that its uses add up."""
    with _open.lock:
        scope = _open.places.setdefault((file, first, codes), AllowScope(codes, reason, file=file, first=first))
    scope.reason, scope.first_only, scope.last, scope.opened = reason, first_only, last, time.time()
    return scope


def allows_since(when: float) -> list[AllowScope]:
    """Every allow() that was entered since a moment, for the report of what was not needed."""
    with _open.lock:
        return [scope for scope in _open.places.values() if scope.opened >= when]


def active() -> tuple[Scope, ...]:
    """The scopes in force for the code that runs now, innermost last; an empty tuple costs one lookup."""
    if not _open.all:
        return ()
    mine = _open.mine.get()
    return mine or (_open.all if _foreign_thread() else ())


def _foreign_thread() -> bool:
    # threading.current_thread() would register the thread; this only looks.
    known = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return known is None or isinstance(known, threading._DummyThread)


def allowed(code: str) -> AllowScope | None:
    """The innermost allow() in force for a rule, one more use counted, or None. Call it once per event."""
    for scope in reversed(active()):
        if isinstance(scope, AllowScope) and code.startswith(scope.codes) and not (scope.first_only and scope.used):
            scope.used += 1
            return scope
    return None


def level_of(kind: str, implicit: bool = True) -> GuardLevel | None:
    """What guard() scopes say of an event: kind is sync, h2d, d2h or d2d; None where none speaks of it."""
    for scope in reversed(active()):
        if isinstance(scope, GuardScope):
            level = scope.levels.get(kind)
            if level is not None:
                return level if implicit or kind == "sync" or not scope.implicit_only else None
    return None


def check(kind: str, direction: Direction | None, implicit: bool, describe: Callable[[], str]) -> GuardLevel | None:
    """Raise DeviceGuardError where a guard() scope forbids this event, else say the level in force, if any.

    `kind` is "sync" or "copy"; a copy has a `direction`, a sync may have one. `implicit` says that no call asked for it.
    `describe` builds the text, one line, only when it is needed.
    """
    if not _open.all:
        return None
    found: GuardLevel | None = None
    for name in (direction if kind == "copy" else "sync", direction if kind == "sync" else None):
        level = level_of(name, implicit) if name else None
        if level == "error":
            raise DeviceGuardError(f"{describe()}: forbidden here by devguard.guard({name}='error')")
        found = found or level
    return found

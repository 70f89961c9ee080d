"""Where each module was constructed: taken when its `__init__` runs, asked for only when a finding is about it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from devguard.observe.dispatch import Handlers
from devguard.observe.frames import RawSite, raw_site, user_frame
from devguard.observe.patching import Patches
from devguard.observe.recorder import Recorder

LIMIT = 100_000  # modules; the oldest half goes when it is reached
_MOST_CONSTRUCTORS = 30  # constructors of one class and its bases, one inside the other
_BASE = torch.nn.Module.__init__.__code__


class Made(NamedTuple):
    """One construction: where, at which tick of `recorder.clock`, of which class (the address is used again), and where the
    function that did it was called."""

    site: RawSite | None
    tick: int
    kind: str
    called: RawSite | None = None


class Construction:
    """Observer: wraps nn.Module's `__init__` and `__setstate__` (copies and loaded modules have no other constructor)."""

    name = "construction"

    def __init__(self, recorder: Recorder, handlers: Handlers) -> None:
        self.recorder = recorder
        self.table: dict[int, Made] = {}
        self.patches = Patches()
        self._note = recorder.shielded(self.name, self.note)

    def start(self) -> None:
        """Wrap the two methods."""
        self.patches.wrap(torch.nn.Module, "__init__", self._made)
        self.patches.wrap(torch.nn.Module, "__setstate__", self._copied)

    def stop(self) -> None:
        """Give them back."""
        self.patches.restore()

    def _made(self, wrapped: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note(module, sys._getframe(1))
        return wrapped(*args, **kwargs)

    def _copied(self, wrapped: Callable[..., Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.recorder.active:
            self._note(module, sys._getframe(1), copied=True)
        return wrapped(*args, **kwargs)

    def note(self, module: Any, frame: FrameType, copied: bool = False) -> None:
        """Remember the frame that constructs `module`, which is the first one outside its own constructors."""
        table = self.table
        if len(table) >= LIMIT:
            for old in list(table)[: LIMIT // 2]:
                del table[old]
        kind = type(module)
        maker = user_frame(frame if copied else caller_of_init(kind, frame))
        called = raw_site(maker.f_back) if maker is not None else None
        table[id(module)] = Made(raw_site(maker), next(self.recorder.clock), kind.__qualname__, called)

    def of(self, module: Any) -> Made | None:
        """How a module came to be; None where it is older than the watch."""
        made = self.table.get(id(module))
        return made if made is not None and made.kind == type(module).__qualname__ else None

    def call_of_shared(self, made: Made) -> RawSite | None:
        """Where the function was called that constructed a module, if other calls of it have constructed such modules too."""
        shared = any(
            other.site == made.site and other.called != made.called and other.kind == made.kind
            for other in list(self.table.values())
        )
        return made.called if shared else None


def construction_site(recorder: Recorder, module: Any) -> RawSite | None:
    """The raw site of the statement that constructed (or copied, or loaded) a module; None where it is older than the watch."""
    observer = recorder.observers.get(Construction.name)
    made = observer.of(module) if isinstance(observer, Construction) else None
    return None if made is None else made.site


def caller_of_init(kind: type, frame: FrameType) -> FrameType | None:
    """From the frame that called nn.Module.__init__ outwards past the constructors of `kind`'s own classes."""
    outermost = _constructor(kind)
    at: FrameType | None = frame
    for _ in range(_MOST_CONSTRUCTORS):
        if at is None:
            break
        if at.f_code is outermost:
            return at.f_back
        at = at.f_back
    at = frame  # built without the class's own __init__, or by one that hides its code
    while at is not None and outermost is not _BASE and at.f_code.co_name == "__init__":
        at = at.f_back
    return at


def _constructor(kind: type) -> CodeType | None:
    """The code of the `__init__` that a class runs."""
    for cls in kind.__mro__:
        function = cls.__dict__.get("__init__")
        while function is not None:
            code = getattr(function, "__code__", None)
            inner = getattr(function, "__wrapped__", None)
            if inner is None or inner is function:
                return code
            function = inner
    return None

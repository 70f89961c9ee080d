"""What all observers of one watch share: the step, the origins, the facts, and the register of devguard's own failures."""

from __future__ import annotations

import itertools
import multiprocessing.util
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from devguard.observe.facts import Facts
from devguard.observe.frames import RawSite, raw_site
from devguard.observe.origins import Origins
from devguard.observe.scopes import DeviceGuardError
from devguard.observe.steps import Steps


class Observer(Protocol):
    """A part of the watch. `start` installs its hooks and patches, `stop` gives every one of them back."""

    name: str

    def start(self) -> None: ...

    def stop(self) -> None: ...


class _PerThread(threading.local):
    """What belongs to the thread that runs: the stack of entry points it is in (see `entries.py`) and of modules."""

    def __init__(self) -> None:
        self.intents: list[Any] = []
        self.modules: list[Any] = []


_ROOM = 200  # frames: more than a part needs


def _at_the_end_of_the_stack() -> bool:
    """Is the caller so deep that Python has no room left for a part of devguard?"""
    room, frame = sys.getrecursionlimit() - _ROOM, sys._getframe(1)
    while room > 0 and frame.f_back is not None:
        room, frame = room - 1, frame.f_back
    return room <= 0


class Recorder:
    """The shared state of one watch. Observers write facts here; rules read `facts` later."""

    def __init__(self, *, root: Any = None, warmup: int = 2) -> None:
        self.root = root
        self.every = 1  # one step in so many is watched
        self.active = True
        self.pid = os.getpid()
        self.origins = Origins()
        self.steps = Steps()
        self.facts = Facts(warmup=warmup)
        self.thread = _PerThread()
        self.started = time.time()
        self.clock = itertools.count(1)  # next(clock) tells which of two events came first, across observers
        self.own_ns = 0
        self.broken: set[str] = set()
        self.observers: dict[str, Observer] = {}
        # (path, type name) of the module that runs, or of the one given; the module stack puts itself here.
        self.module_path: Callable[..., tuple[str, str]] = lambda module=None: ("", "")
        multiprocessing.util.register_after_fork(self, Recorder.forked)

    def forked(self) -> None:
        """In a forked child (a DataLoader worker): what it does is not this process's run."""
        self.active = False

    def site(self, depth: int = 1) -> RawSite | None:
        """The raw site of the user's frame, seen from the caller."""
        return raw_site(sys._getframe(depth + 1))

    def fail(self, part: str, problem: BaseException) -> None:
        """A part of devguard failed: remember it once. The program goes on, the part stays off."""
        if isinstance(problem, RecursionError) and _at_the_end_of_the_stack():
            return  # the program's own recursion, which ends in a moment: this one event is not seen
        if part not in self.broken:
            self.broken.add(part)
            self.facts.fail(part, problem)

    def shielded(self, part: str, function: Callable[..., None]) -> Callable[..., None]:
        """`function`, unable to break the program: its first exception switches `part` off and is told in the report."""

        def call(*args: Any, **kwargs: Any) -> None:
            if part in self.broken:
                return
            try:
                function(*args, **kwargs)
            except DeviceGuardError:  # the user asked for it: devguard.guard(...)
                raise
            except Exception as problem:  # the user's program must go on, whatever is wrong with us
                self.fail(part, problem)

        return call

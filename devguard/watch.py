"""watch(): puts the parts together and gives everything back on exit."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from devguard.autostart import switched_off
from devguard.decorating import around
from devguard.knowledge.device_errors import is_device_error
from devguard.observe.compiled import Compiled
from devguard.observe.consistency import Consistency
from devguard.observe.construction import Construction
from devguard.observe.copies import Copies
from devguard.observe.dispatch import DispatchMode, Handlers, leave
from devguard.observe.entries import Entries
from devguard.observe.facts import ExceptionFact
from devguard.observe.frames import raw_site
from devguard.observe.leaves import Leaves
from devguard.observe.module_stack import ModuleStack
from devguard.observe.optimizers import Optimizers
from devguard.observe.process import Process
from devguard.observe.recorder import Observer, Recorder
from devguard.observe.sampling import Sampling
from devguard.observe.site import Site
from devguard.observe.syncs import Syncs
from devguard.observe.threads import Threads
from devguard.options import Options, OptionsError
from devguard.report._layout import clean, clean_source
from devguard.report.build import build_report, incomplete_report
from devguard.report.model import Report

F = TypeVar("F", bound=Callable[..., Any])

# Order matters: Entries comes last, when all others have said which entry points they listen to.
_OBSERVERS: tuple[Callable[[Recorder, Handlers], Observer], ...] = (
    Construction,
    ModuleStack,
    Consistency,
    Optimizers,
    Leaves,
    Process,
    Syncs,
    Copies,
    Threads,
    Compiled,
    Entries,
)


# Options of a whole run, which a part of a program can't follow.
_OF_A_RUN = frozenset({"simulate", "memory", "report", "fail_on", "color", "quiet", "help"})
_INSTEAD = {
    "simulate": "put the watch inside `with devguard.simulate(...)`, which starts simulated devices",
    "memory": "give it to `devguard.simulate(...)`, which starts simulated devices",
    "report": "write `str(watch.report)` or `watch.report.to_json()` where you want it",
}

# The watches in force in this process, so that devguard.step() reaches one that sleeps too.
_RUNNING: list[Watch] = []

# Patches are chains of what stood there before: two threads that begin or end a watch at once would tear them.
_PATCHING = threading.RLock()


def watch(model: torch.nn.Module | None = None, *, options: Options | None = None, **overrides: Any) -> Watch:
    """Watch what runs inside ``with devguard.watch(model):``; also a decorator, and start()/stop().

    `model` is the root that module paths start from; without it the first module called is. Keyword arguments are the options of
    :class:`devguard.options.Options`. Raises OptionsError for an unknown or bad option.
    """
    return Watch(model, options=options, **overrides)


class Watch:
    """One watch: its hooks, modes and patches are its own, and all are given back by :meth:`stop`."""

    def __init__(
        self, model: torch.nn.Module | None = None, *, options: Options | None = None, **overrides: Any
    ) -> None:
        self.model = model
        for name in _OF_A_RUN & overrides.keys():
            raise OptionsError(
                f"watch({name}=...): {_INSTEAD.get(name, 'this is an option of `devguard run` and of pytest')}"
            )
        if options is None:
            options = Options.load(**overrides)
        elif overrides:
            options = options.replace(**overrides)
        self.options = options
        self._recorder: Recorder | None = None
        self._mode: DispatchMode | None = None
        self._sampling: Sampling | None = None
        self._observers: list[Observer] = []
        self._staying: list[Observer] = []  # those that every=N leaves in place: their hooks run as PyTorch calls ours
        self._seconds = 0.0
        self._final: Report | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Watch:
        """Begin to watch this thread, and the threads it starts from now on. Raises RuntimeError when it is running already."""
        if self._mode is not None:
            raise RuntimeError("this watch is running already: make another with devguard.watch()")
        recorder = Recorder(root=self.model, warmup=self.options.warmup)
        recorder.every = self.options.every
        _describe_machine(recorder)
        handlers = Handlers()
        self._recorder, self._final = recorder, None
        self._observers = []
        if switched_off():  # DEVGUARD=0: nothing is hooked, and the report is empty
            return self
        for make in _OBSERVERS:
            try:
                observer = make(recorder, handlers)
            except Exception as problem:  # a part that can't start is told in the report; the program must run
                recorder.fail(getattr(make, "name", make.__name__), problem)
                continue
            recorder.observers[observer.name] = observer
            self._observers.append(observer)
        self._mode = DispatchMode(recorder, handlers)
        self._attach(self._mode)
        _RUNNING.append(self)
        if self.options.every > 1:
            self._sampling = Sampling(recorder, self.options.every, self._wake, self._sleep)
            self._sampling.start()
        return self

    def _attach(self, mode: DispatchMode) -> None:
        """Put every hook, patch and the mode in place."""
        recorder = mode.recorder
        recorder.active = True
        with _PATCHING:
            for observer in self._observers:
                mode.handlers.keep_first()
                if observer in self._staying:
                    continue
                if getattr(observer, "stays", False):
                    self._staying.append(observer)
                try:
                    observer.start()
                except Exception as problem:
                    recorder.fail(observer.name, problem)
        mode.__enter__()  # type: ignore[no-untyped-call]

    def _detach(self, mode: DispatchMode) -> None:
        """Give every hook, patch and the mode back."""
        recorder = mode.recorder
        recorder.active = False
        leave(mode)
        for observer in reversed(self._observers):
            if observer not in self._staying:
                self._stop(observer)

    def _stop(self, observer: Observer) -> None:
        try:
            with _PATCHING:
                observer.stop()
        except Exception as problem:
            if self._recorder is not None:
                self._recorder.fail(observer.name, problem)

    def _wake(self) -> None:
        """every=N: the next step is to be watched."""
        if self._mode is not None:
            self._attach(self._mode)

    def _sleep(self) -> None:
        """every=N: nobody watches until :meth:`_wake`."""
        if self._mode is not None:
            self._mode.handlers.remember_first()
            self._detach(self._mode)

    def stop(self) -> Report:
        """End the watch, give back every hook, mode and patch, and return the final report."""
        recorder, mode = self._recorder, self._mode
        if recorder is None:
            raise RuntimeError("this watch was never started")
        if mode is not None:
            self._mode = None
            _RUNNING.remove(self)
            self._seconds = time.time() - recorder.started
            if self._sampling is not None:
                self._sampling.stop()
            if recorder.active:
                self._detach(mode)
            while self._staying:
                self._stop(self._staying.pop())
        return self.report

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.note_exception(error)
        self.stop()

    def __call__(self, function: F) -> F:
        """As a decorator: every call of the function is watched anew, its report is this watch's `report`.

        A call inside another one (recursion, a second thread) is part of that one's run. Generators and coroutines are watched while
        they run to their end, not only while they are made."""
        return around(function, self._for_one_call)

    def _for_one_call(self) -> AbstractContextManager[object]:
        return self if self._mode is None else nullcontext()

    @property
    def sleeping(self) -> bool:
        """Is this watch between two steps that it watches (every=N)?"""
        return self._sampling is not None and self._sampling.asleep

    # -- during the run -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Tell that one step of the program's main loop is complete (needed only where no optimizer tells it)."""
        if self._recorder is not None:
            self._recorder.steps.explicit()
            if self._sampling is not None:
                self._sampling.step_ended()

    def note_exception(self, error: BaseException) -> None:
        """Remember the exception that ends the program and attach devguard's finding to it; type and traceback stay."""
        recorder = self._recorder
        if recorder is None or isinstance(error, (SystemExit, GeneratorExit)):
            return
        try:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            site = raw_site(frames[-1]) if frames else None
            recorder.facts.exception = ExceptionFact(type(error).__name__, str(error), site)
            for observer in self._observers:
                ended_by = getattr(observer, "ended_by", None)
                if ended_by is not None:
                    recorder.shielded(observer.name, ended_by)(error)
            self._final = None
            note = _note_for(self.report, error)
            if note:
                add_note(error, note)
        except Exception as problem:
            recorder.fail("exception note", problem)

    @property
    def report(self) -> Report:
        """What was found so far; final once the watch has ended."""
        recorder = self._recorder
        if recorder is None:
            raise RuntimeError("this watch has not been started: use it as `with devguard.watch():` or call start()")
        if self._mode is None and self._final is not None:
            return self._final
        seconds = self._seconds if self._mode is None else time.time() - recorder.started
        for observer in self._observers:
            collect = getattr(observer, "collect", None)
            if collect is not None:
                recorder.shielded(f"{observer.name}: collect", collect)()
        recorder.facts.steps = recorder.steps.total
        recorder.facts.skipped_steps = recorder.steps.skipped
        try:
            report = build_report(
                recorder.facts,
                self.options,
                started=recorder.started,
                seconds=seconds,
                own_seconds=recorder.own_ns / 1e9,
            )
        except Exception as problem:  # the program's own result matters more than its report
            recorder.fail("report", problem)
            report = incomplete_report(recorder.facts)
        if self._mode is None:
            self._final = report
        return report


def running() -> bool:
    """Is this thread being watched?"""
    return bool(_recorders()) or any(watch.sleeping for watch in _RUNNING)


def step() -> None:
    """Tell every running watch that one step of the program's main loop is complete; nothing without a watch."""
    for watch in list(_RUNNING):
        watch.step()


def _recorders() -> list[Recorder]:
    modes = _get_current_dispatch_mode_stack()
    return [mode.recorder for mode in modes if isinstance(mode, DispatchMode) and mode.recorder.active]


def add_note(error: BaseException, note: str) -> None:
    """BaseException.add_note, also on Python 3.10 (where tracebacks do not show notes, but readers find `__notes__`)."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        notes = [*getattr(error, "__notes__", ()), note]
        error.__notes__ = notes  # type: ignore[attr-defined]


def _note_for(report: Report, error: BaseException) -> str:
    """The finding to show under an exception, in two or three lines: an error-level one at a line of its traceback; without such a
    one the first, but only where the message says that devices are the reason."""
    errors = [found for found in report.findings if found.level == "error"]
    lines_of = {(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)}
    about = [found for found in errors if any(_at(site, lines_of) for site in (found.where, found.called_from))]
    for found in about or (errors if is_device_error(str(error)) else ()):
        lines = [f"devguard: {found.rule} {found.name}: {clean(found.message)}"]
        if found.cause is not None:
            text = found.cause.text.splitlines()[0] if found.cause.text else ""
            lines.append(clean(f"  change {found.cause.file}:{found.cause.line}: {text}"))
        if found.fix is not None:
            lines += [clean_source(line) for line in f"  fix: {found.fix.text}".split("\n")]
        return "\n".join(lines)
    return ""


def _at(site: Site | None, lines: set[tuple[str, int]]) -> bool:
    return site is not None and any((site.file, line) in lines for line in range(site.line, site.end_line + 1))


def _describe_machine(recorder: Recorder) -> None:
    """Devices, whether they are simulated, and the job's environment, as facts."""
    facts = recorder.facts
    simulate = sys.modules.get("devguard.simulate")
    facts.simulated = simulate is not None and simulate.active() is not None
    if torch.cuda.is_available():
        facts.devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    else:
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is not None:
            facts.devices = [f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count())]
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
    facts.environment = {name: os.environ[name] for name in names if name in os.environ}

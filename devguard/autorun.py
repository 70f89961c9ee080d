"""What DEVGUARD=1 does once torch is imported: simulate if asked, watch until the interpreter exits, write reports."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from devguard.autostart import tell
from devguard.options import ENVIRONMENT, Options, OptionsError, help_text, parse_text
from devguard.report.model import Report
from devguard.report.write import emit, reason
from devguard.rules.finding import LEVELS
from devguard.simulate import simulate
from devguard.watch import Watch

_PARENT = "DEVGUARD_PARENT_PID"  # tells the programs that this one starts that they are not the first


def begin() -> None:
    """Start watching this process. Where the options are wrong it tells so in one line and does nothing."""
    try:
        options = Options.load()
        asked = parse_text(os.environ.get(ENVIRONMENT, ""))
    except OptionsError as problem:
        tell(f"{problem}; the program runs unwatched")
        return
    if options.help:
        sys.stderr.write(help_text() + "\n")
    Autorun(options, gate="fail_on" in asked).start()


class Autorun:
    """One watched process: from the end of `import torch` to the exit of the interpreter."""

    def __init__(self, options: Options, gate: bool) -> None:
        self.options = options
        self.gate = gate  # may findings change the exit status?
        self.pid = os.getpid()
        self.first = os.environ.setdefault(_PARENT, str(self.pid)) == str(self.pid)
        self.watch = Watch(options=options)
        self.simulation: Any = None
        self.failed = False  # did the program end by an exception or with a status of its own?
        self.noted: BaseException | None = None
        self._earlier: list[object] = []
        self._excepthook = sys.excepthook
        self._exit = sys.exit

    def start(self) -> None:
        """Begin; raises what the simulation or the watch raises."""
        if self.options.simulate is not None:
            self.simulation = simulate(self.options.simulate, memory=self.options.memory)
            self.simulation.start()
        try:
            self.watch.start()
        except BaseException:
            if self.simulation is not None:
                self.simulation.stop()
            raise
        self._excepthook, sys.excepthook = sys.excepthook, self._on_exception
        if self.gate:
            self._exit, sys.exit = sys.exit, self._on_exit  # type: ignore[assignment]
            self._earlier = _exit_functions()
        atexit.register(self.finish)

    # -- how the program ends -----------------------------------------------------------------------------------------

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._note(error)
        self._excepthook(kind, error, trace)

    def _on_exit(self, status: object = None) -> None:
        self.failed = status not in (None, 0, False)
        self._exit(status)  # type: ignore[arg-type]

    def _note(self, error: BaseException | None) -> None:
        if error is not None and error is not self.noted:
            self.noted, self.failed = error, True
            self.watch.note_exception(error)

    def finish(self) -> None:
        """At exit: stop, write the reports, and set the exit status if DEVGUARD_OPTIONS asked for it."""
        if os.getpid() != self.pid:
            return  # a forked child: what it saw is its parent's
        try:
            # a hook that was set after ours may not have called it
            self._note(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
            report = self.watch.stop()  # a simulation stays: exit functions and finalizers may still use its tensors
            self._write(report)
            reached = reaches(report, self.options.fail_on)
        except Exception as problem:
            tell(f"could not write its report: {reason(problem)}")
            return
        finally:
            if sys.excepthook == self._on_exception:
                sys.excepthook = self._excepthook
            if sys.exit == self._on_exit:
                sys.exit = self._exit
        if self.gate and reached and not self.failed:
            _leave(1, self._earlier)

    # -- where the reports go -----------------------------------------------------------------------------------------

    def _write(self, report: Report) -> None:
        if "torch.distributed.run" in sys.modules:
            return  # torchrun itself: its ranks report
        if not self.first and not report.steps and not report.findings:
            return  # a worker process that only loaded data
        rank = report.rank if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1 else None
        emit(report, [self._target(target, rank) for target in self.options.report], color=self.options.color)

    def _target(self, target: str, rank: int | None) -> str:
        """The target under a name that no other process of the same job uses."""
        kind, _, path = target.partition(":")
        if path == "-" or "%p" in path or "%r" in path:
            return target
        mark = ".rank%r" if rank is not None else "" if self.first else ".pid%p"
        stem, suffix = os.path.splitext(path)
        return f"{kind}:{stem}{mark}{suffix}"


def reaches(report: Report, level: str) -> bool:
    """Has the report a finding at or above the level (note, warning, error, never)?"""
    return level in LEVELS and any(LEVELS.index(f.level) >= LEVELS.index(level) for f in report.findings)


class _Lister:
    """Equal to nothing, or to all that is not in `keep`: atexit.unregister() compares it with every exit function."""

    def __init__(self, keep: list[object] | None = None) -> None:
        self.seen: list[object] = []
        self.keep = keep

    def __eq__(self, other: object) -> bool:
        self.seen.append(other)
        return self.keep is not None and not any(other == kept for kept in self.keep)

    __hash__ = None  # type: ignore[assignment]


def _exit_functions() -> list[object]:
    lister = _Lister()
    atexit.unregister(lister)  # type: ignore[arg-type]
    return lister.seen


def _leave(status: int, earlier: list[object]) -> None:
    """End the process with `status` from within an exit function, after all that a normal exit would still have done.

    An exit function can't change the status. So run those that come after this one (they were registered earlier),
    flush the files that the interpreter would have closed, and go.
    """
    atexit.unregister(_Lister(keep=earlier))  # type: ignore[arg-type]
    run: Callable[[], None] = atexit._run_exitfuncs
    run()
    for item in gc.get_objects():
        try:
            if isinstance(item, io.IOBase) and not item.closed and item.writable():
                item.flush()
        except Exception:
            pass  # a file that can't be flushed is as lost as at a normal exit
    os._exit(status)

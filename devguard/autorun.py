"""What DEVGUARD=1 does once torch is imported: simulate if asked, watch until the interpreter exits, write reports."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from devguard import policy
from devguard.autostart import tell
from devguard.options import ENVIRONMENT, Options, OptionsError, help_text, parse_text
from devguard.report.model import Report
from devguard.report.write import emit, reason
from devguard.rules.finding import LEVELS
from devguard.simulate import simulate
from devguard.tracebacks import without_own_frames
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
        self._newest_last = True  # the order in which this Python keeps exit functions
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
        atexit.register(self.finish)
        self._newest_last = _exit_functions()[-1] == self.finish

    # -- how the program ends -----------------------------------------------------------------------------------------

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._note(error)
        without_own_frames(error)
        self._excepthook(kind, error, error.__traceback__)

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
            reached = policy.reaches(report.findings, self.options.fail_on)
        except Exception as problem:
            tell(f"could not write its report: {reason(problem)}")
            return
        finally:
            if sys.excepthook == self._on_exception:
                sys.excepthook = self._excepthook
            if sys.exit == self._on_exit:
                sys.exit = self._exit
        if self.gate and reached and not self.failed:
            _leave(1, self.finish, self._newest_last)

    # -- where the reports go -----------------------------------------------------------------------------------------

    def _write(self, report: Report) -> None:
        if "torch.distributed.run" in sys.modules:
            return  # torchrun itself: its ranks report
        if not self.first and not report.steps and not report.findings:
            return  # a worker process that only loaded data
        rank = report.rank if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1 else None
        targets = [self._target(target, rank) for target in self.options.report]
        emit(report, targets, color=self.options.color, on_stderr=not rank and not self.options.quiet)
        if rank and report.findings and not self.options.quiet:
            tell(f"rank {rank}: {count_levels(report)}; report=json:PATH in {ENVIRONMENT} writes a file for each rank")

    def _target(self, target: str, rank: int | None) -> str:
        """The target under a name that no other process of the same job uses."""
        kind, _, path = target.partition(":")
        if path == "-" or "%p" in path or "%r" in path:
            return target
        mark = ".rank%r" if rank is not None else "" if self.first else ".pid%p"
        stem, suffix = os.path.splitext(path)
        return f"{kind}:{stem}{mark}{suffix}"


def count_levels(report: Report) -> str:
    """How many findings of each level, worst first."""
    counts = ((level, sum(found.level == level for found in report.findings)) for level in reversed(LEVELS))
    return ", ".join(f"{count} {level}{'s' * (count != 1)}" for level, count in counts if count)


class _Walker:
    """Stands for an exit function: atexit.unregister() compares it with every registered one, and removes its equals."""

    def __init__(self, remove: Sequence[bool] = ()) -> None:
        self.seen: list[object] = []
        self.remove = remove

    def __eq__(self, other: object) -> bool:
        self.seen.append(other)
        return bool(self.remove) and self.remove[len(self.seen) - 1]

    __hash__ = None  # type: ignore[assignment]


def _exit_functions() -> list[object]:
    walker = _Walker()
    atexit.unregister(walker)  # type: ignore[arg-type]
    return walker.seen


def _leave(status: int, this: object, newest_last: bool) -> None:
    """End the process with `status` from within the exit function `this`, after all else that a normal exit does.

    An exit function can't change the status. So run those that still have to come (they were registered earlier), flush
    the files that the interpreter would have closed, and go.
    """
    functions = _exit_functions()
    place = functions.index(this) if this in functions else 0
    atexit.unregister(_Walker([i >= place if newest_last else i <= place for i in range(len(functions))]))  # type: ignore[arg-type]
    run: Callable[[], None] = atexit._run_exitfuncs
    run()
    for item in gc.get_objects():
        try:
            if (
                issubclass(type(item), io.IOBase) and not item.closed and item.writable()
            ):  # isinstance() runs their code
                item.flush()
        except Exception:
            pass  # a file that can't be flushed is as lost as at a normal exit
    os._exit(status)

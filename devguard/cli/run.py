"""`devguard run`: a program under the watch, with the report on stderr at its end."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from devguard import baseline, policy
from devguard.cli._common import EXIT_USAGE, Command, UsageError, add_options, given_options
from devguard.cli.children import Children
from devguard.cli.program import Program, run_program
from devguard.options import Options, help_text, load_with_sources
from devguard.report import write
from devguard.report.model import Report

if TYPE_CHECKING:
    from devguard.watch import Watch

_OPTIONS = (
    "simulate",
    "memory",
    "report",
    "fail_on",
    "select",
    "ignore",
    "levels",
    "every",
    "warmup",
    "max_syncs_per_step",
    "baseline",
    "color",
)

_EPILOG = """\
The program runs as `python` would run it and its output is untouched; the report goes to stderr when it ends, also when
it raises, is interrupted or calls sys.exit() (os._exit() ends a process with no chance to report). Processes that it
starts, such as the ranks of torch.distributed.run, are watched too and are part of the report.

exit status: the program's own if it failed; else 1 when a finding reaches --fail-on; else 0; 2 for a wrong command line
"""


class Session:
    """The simulation and the watch of one run. They begin when the program has imported torch: before that, nothing of
    devguard's may import it, because programs set environment variables that torch reads on import."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.watch: Watch | None = None
        self.simulation: Any = None
        self.problem = ""

    def arm(self) -> None:
        """Begin as soon as torch is there."""
        import wrapt

        wrapt.register_post_import_hook(lambda module: self._begin(), "torch")

    def _begin(self) -> None:
        if self.options.simulate is not None:
            from devguard.simulate import simulate

            self.simulation = simulate(self.options.simulate, memory=self.options.memory)
            try:
                self.simulation.start()
            except Exception as problem:
                raise UsageError(f"can't simulate {self.options.simulate}: {write.reason(problem)}") from None
        try:
            from devguard.watch import watch

            self.watch = watch(options=self.options).start()
        except Exception as problem:  # the program must run without us
            self.problem = f"the watch could not start: {write.reason(problem)}"

    def note(self, error: BaseException) -> None:
        """Tell the watch which exception ended the program."""
        if self.watch is not None:
            self.watch.note_exception(error)

    def finish(self) -> Report:
        """End the watch. The simulation stays for the program's exit handlers: the process is about to end."""
        if self.watch is not None:
            try:
                return self.watch.stop()
            except Exception as problem:
                self.problem = f"the watch failed: {write.reason(problem)}"
        return _empty_report(self.problem)


def _empty_report(problem: str) -> Report:
    """The report of a program that never used torch, or that could not be watched."""
    import platform

    from devguard._version import __version__
    from devguard.report.model import NotSeen

    unseen = [NotSeen(problem, 1)] if problem else []
    return Report(
        version=__version__,
        python=platform.python_version(),
        command=list(sys.orig_argv),
        complete=not problem,
        not_seen=unseen,
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "devguard run [options] (script.py | -m module | -c code) [arguments of the program ...]"
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module")
    parser.add_argument("-c", dest="code", nargs=argparse.REMAINDER, metavar="code", help="run a piece of code")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument(
        "--quiet", action="store_const", const=True, help="no text report on stderr unless --report text:- asks for it"
    )
    add_options(parser, _OPTIONS)


def _program(arguments: argparse.Namespace) -> Program:
    given = arguments.module if arguments.module is not None else arguments.code
    words = arguments.program if given is None else given
    if not words:
        raise UsageError("nothing to run: give a script, -m module or -c code (devguard run --help)")
    first, rest = words[0], tuple(words[1:])
    if arguments.module is not None:
        return Program(None, first, None, rest)
    if arguments.code is not None:
        return Program(None, None, first, rest)
    return Program(first, None, None, rest)


def _check_targets(options: Options, program: Program) -> None:
    for target in options.report:
        path = target.partition(":")[2]
        if program.script and os.path.exists(path) and os.path.samefile(path, program.script):
            raise UsageError(f"--report {target} would overwrite the program")


def _run(arguments: argparse.Namespace) -> int:
    options, _ = load_with_sources(None, None, given_options(arguments), "command line")
    if options.help:
        write.to_stderr(help_text() + "\n")
    program = _program(arguments)
    program.check()
    _check_targets(options, program)
    if options.baseline is not None:
        baseline.load(options.baseline)
    session = Session(options)
    session.arm()
    children = Children(options)
    process = os.getpid()
    try:
        outcome = run_program(program, session.note)
        if os.getpid() != process:  # a child that the program forked came to its end here: its parent reports
            return outcome.status
        report = children.joined_with(session.finish())
    finally:
        if os.getpid() == process:
            children.close()
    written = write.emit(report, options.report, color=options.color, on_stderr=not options.quiet)
    status = policy.exit_code(report, outcome.status, options.fail_on)
    return status if outcome.status or written else EXIT_USAGE


COMMAND = Command("run", "run a program under the watch, on real or simulated accelerators", _configure, _run, _EPILOG)

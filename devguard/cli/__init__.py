"""The `devguard` command: one file per command, and main() that picks one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from devguard._version import __version__
from devguard.cli import baseline, config, diff, doctor, explain, report, run
from devguard.cli._common import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, Command, UsageError, parser_for
from devguard.options import OptionsError, nearest
from devguard.report.json import ReportError
from devguard.report.write import to_stderr, to_stdout

_LISTED = (
    run.COMMAND,
    explain.COMMAND,
    explain.RULES_COMMAND,
    report.COMMAND,
    diff.COMMAND,
    baseline.COMMAND,
    config.COMMAND,
    doctor.COMMAND,
)
COMMANDS: dict[str, Command] = {command.name: command for command in _LISTED}


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line and return the exit status; a wrong one costs one line on stderr and status 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _carry_out(words)
    except (UsageError, OptionsError, ReportError) as problem:
        to_stderr(f"devguard: error: {' '.join(str(problem).split())}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _carry_out(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        to_stdout(_help())
        return EXIT_OK
    if first in ("-V", "--version"):
        to_stdout(f"devguard {__version__}\n")
        return EXIT_OK
    command = COMMANDS.get(first)
    if command is None:
        hint = nearest(first, COMMANDS)
        raise UsageError(f"unknown command {first!r}" + (f", did you mean {hint}?" if hint else " (devguard --help)"))
    try:
        arguments = parser_for(command).parse_args(words[1:])
    except SystemExit:  # --help has printed its text
        return EXIT_OK
    return command.run(arguments)


def _help() -> str:
    lines = "".join(f"  {name:10s} {command.summary}\n" for name, command in COMMANDS.items())
    return (
        "usage: devguard COMMAND ...\n\nFinds tensors on the wrong device and waits for the accelerator in PyTorch"
        f" programs.\n\ncommands:\n{lines}\n`devguard COMMAND --help` tells more; `devguard --version` the version.\n"
    )

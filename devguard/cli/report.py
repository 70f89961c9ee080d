"""`devguard report`: show saved reports in any format; those of several ranks become one."""

from __future__ import annotations

import argparse
import sys

from devguard.cli._common import EXIT_OK, EXIT_USAGE, Command, check_output
from devguard.report import write
from devguard.report.json import load
from devguard.report.merge import merge


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a JSON report; several are merged as ranks of one run"
    )
    parser.add_argument("--format", choices=sorted(write.RENDERERS), default="text", help="default: text")
    parser.add_argument("--output", metavar="PATH", help="write there instead of to stdout")


def _run(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, arguments.files)
    report = merge([load(path) for path in arguments.files])
    if arguments.output:
        target = f"{arguments.format}:{arguments.output}"
        return EXIT_OK if write.emit(report, [target], on_stderr=False) else EXIT_USAGE
    if arguments.format == "text":
        from devguard.report import text

        write.to_stdout(text.render(report, color=write.colored("auto", sys.stdout)))
    else:
        write.to_stdout(write.render(report, arguments.format))
    return EXIT_OK


COMMAND = Command("report", "show saved reports in any format, merged when there are several", _configure, _run)

"""`devguard baseline`: write the findings of a report down as known, for --baseline."""

from __future__ import annotations

import argparse

from devguard import baseline
from devguard.cli._common import EXIT_OK, Command, UsageError, check_output
from devguard.report import write
from devguard.report.json import load
from devguard.report.merge import merge


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a JSON report; several are merged as ranks of one run"
    )
    parser.add_argument("--output", metavar="PATH", help="write there instead of to stdout")


def _run(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, arguments.files)
    text = baseline.dumps(merge([load(path) for path in arguments.files]).findings)
    if arguments.output is None:
        write.to_stdout(text)
        return EXIT_OK
    try:
        write.write_file(arguments.output, text)
    except OSError as problem:
        raise UsageError(f"can't write {arguments.output!r}: {write.reason(problem)}") from None
    return EXIT_OK


COMMAND = Command("baseline", "write the findings of a report down as known", _configure, _run)

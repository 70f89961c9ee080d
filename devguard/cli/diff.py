"""`devguard diff`: what changed between two reports; exit status 1 when something at or above a level is new or worse."""

from __future__ import annotations

import argparse

from devguard import policy
from devguard.cli._common import EXIT_FOUND, EXIT_OK, Command
from devguard.options import parse_value
from devguard.report import write
from devguard.report.diff import compare, render
from devguard.report.json import load


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="the JSON report to compare with")
    parser.add_argument("new", metavar="NEW", help="the JSON report of the change")
    parser.add_argument("--fail-on", metavar="LEVEL", default="warning", help="note, warning (default), error or never")


def _run(arguments: argparse.Namespace) -> int:
    level = parse_value("fail_on", arguments.fail_on, "command line")
    difference = compare(load(arguments.old), load(arguments.new))
    write.to_stdout(render(difference))
    return EXIT_FOUND if policy.reaches(difference.worse(), level) else EXIT_OK


COMMAND = Command("diff", "compare two reports: new, gone, more or less often", _configure, _run)

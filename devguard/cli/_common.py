"""What the commands share: the shape of a command, its parser, and errors that cost one line and exit status 2."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from devguard.options import KEYS, nearest

EXIT_OK, EXIT_FOUND, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """The command can't be carried out as given; the text is one line."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `configure` adds its arguments to a parser, `run` carries it out and returns the exit status."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str = ""


class Parser(argparse.ArgumentParser):
    """argparse, but an error is one line with the nearest match."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (-[\w-]+)", message)
        hint = nearest(unknown.group(1), tuple(self._option_string_actions)) if unknown else ""
        if unknown:
            message = f"unknown option {unknown.group(1)}"
        hint = f", did you mean {hint}?" if hint else ""
        raise UsageError(f"{' '.join(message.split())}{hint} ({self.prog} --help lists what there is)")


def parser_for(command: Command) -> Parser:
    """The parser of one command."""
    parser = Parser(
        prog=f"devguard {command.name}",
        description=command.summary,
        epilog=command.epilog or None,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    return parser


def add_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Some keys of the options table as arguments: --fail-on for fail_on."""
    group = parser.add_argument_group("options (also in DEVGUARD_OPTIONS and [tool.devguard] of pyproject.toml)")
    for name in names:
        key = KEYS[name]
        text = f"{key.help}; {key.expects}{', may be repeated' if key.many else ''}".replace("%", "%%")
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            metavar=_METAVARS.get(name, "VALUE"),
            action="append" if key.many else "store",
            help=text,
        )


def given_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that were given as arguments."""
    return {name: getattr(arguments, name) for name in KEYS if getattr(arguments, name, None) is not None}


_METAVARS = {
    "report": "FORMAT:PATH",
    "simulate": "cuda:N",
    "memory": "SIZE",
    "fail_on": "LEVEL",
    "select": "CODE",
    "ignore": "CODE",
    "levels": "CODE:LEVEL",
    "every": "N",
    "warmup": "N",
    "max_syncs_per_step": "N",
    "baseline": "FILE",
    "color": "WHEN",
}


def check_output(output: str | None, inputs: Iterable[str]) -> None:
    """Raises UsageError where the output would overwrite an input."""
    for path in inputs:
        if output is not None and os.path.exists(output) and os.path.samefile(output, path):
            raise UsageError(f"--output {output} would overwrite an input")

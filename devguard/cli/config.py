"""`devguard config`: the options in force here, and where each comes from."""

from __future__ import annotations

import argparse
import json

from devguard.cli._common import EXIT_OK, Command
from devguard.options import KEYS, load_with_sources, show_value
from devguard.report import write


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def _run(arguments: argparse.Namespace) -> int:
    options, sources = load_with_sources(None, None, {})
    rows = [(name, getattr(options, name), sources.get(name, "default")) for name in KEYS]
    if arguments.format == "json":
        data = {name: {"value": value, "source": source} for name, value, source in rows}
        write.to_stdout(json.dumps(data, indent=2) + "\n")
    else:
        write.to_stdout("".join(f"{name:20} {show_value(value):20} {source}\n" for name, value, source in rows))
    return EXIT_OK


COMMAND = Command("config", "print the options in force and where each comes from", _configure, _run)

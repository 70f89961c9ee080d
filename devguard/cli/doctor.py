"""`devguard doctor`: is this environment fit for the accelerator?"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from devguard import doctor
from devguard.cli._common import EXIT_FOUND, EXIT_OK, Command
from devguard.report import write
from devguard.report._layout import clean


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")


def _run(arguments: argparse.Namespace) -> int:
    facts = doctor.gather()
    found = doctor.diagnose(facts)
    if arguments.format == "json":
        data = {"environment": dataclasses.asdict(facts), "findings": [dataclasses.asdict(one) for one in found]}
        write.to_stdout(json.dumps(data, indent=2) + "\n")
    else:
        write.to_stdout(_text(facts, found))
    return EXIT_FOUND if any(one.level == "error" for one in found) else EXIT_OK


def _text(facts: doctor.Environment, found: list[doctor.Diagnosis]) -> str:
    build = f"CUDA {facts.built_with}" if facts.built_with else "no CUDA"
    lines = [
        f"python {sys.version.split()[0]}, torch {facts.torch or 'not found'} ({build}), driver {facts.driver or 'unknown'}"
    ]
    lines += [f"cuda:{index} {gpu.name}" for index, gpu in enumerate(facts.visible)]
    if not facts.visible:
        count = "an unknown number of" if facts.physical is None else str(facts.physical or "no")
        lines.append(f"no accelerator that PyTorch can use; NVIDIA GPUs in the machine: {count}")
    if facts.problem:
        lines.append(facts.problem)
    for one in found:
        lines += ["", f"{one.level}[{one.rule}] {one.name}: {one.message}", f"  = fix: {one.fix}"]
    lines += ["", f"devguard: {len(found) or 'nothing'} found"]
    if not facts.visible:
        lines.append("without an accelerator, `devguard run --simulate cuda:1 script.py` simulates one")
    return "".join(f"{clean(line)}\n" for line in lines)


COMMAND = Command("doctor", "check the environment: torch build, driver, visible devices, ranks", _configure, _run)

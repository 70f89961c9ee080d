"""One program, what must be said of it, and how to run it in this process."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import torch

import devguard

PRELUDE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


@dataclass(frozen=True)
class Case:
    """`rules` are those that may tell of it, split by `|`, empty for a correct program; `tensor` the names it may be told by."""

    name: str
    source: str
    rules: str = ""
    tensor: str = ""
    module: str | None = None
    devices: int = 1


def run(case: Case, folder: Path) -> tuple[devguard.Report, list[int], Exception | None]:
    """The report, the lines that may be the cause, and what ended the program."""
    path = folder / f"{case.name.replace(' ', '_')}.py"
    path.write_text(PRELUDE + textwrap.dedent(case.source))
    code = compile(path.read_text(), str(path), "exec")
    ended: Exception | None = None
    with devguard.simulate(f"cuda:{case.devices}"), devguard.watch() as watch:
        try:
            exec(code, {"__name__": "__main__", "__file__": str(path)})
        except Exception as error:
            ended = error
            watch.note_exception(error)
        report = watch.report
        torch.cuda.set_device(0)
    lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# cause")]
    return report, lines, ended

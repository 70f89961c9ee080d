"""Small programs as users write them, run in this process under a simulation and a watch."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import devguard

PRELUDE = """\
import copy, io, os
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self, out=2):
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.head = nn.Linear(6, out)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def train(model, optimizer, steps=2, on=device):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4, device=on)).pow(2).sum().backward()
        optimizer.step()


"""


@dataclass(frozen=True)
class Program:
    """A program and what must be said about it: nothing, or a rule with the line to change and the tensor's name."""

    name: str
    source: str
    rule: str = ""
    cause: str = ""
    tensor: str = ""
    level: str = ""
    devices: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    prelude: bool = True


def run(program: Program, folder: Path) -> Any:
    """The report of a program's run. What it raises ends the program, as it would end the process."""
    path = folder / f"{program.name.replace(' ', '_')}.py"
    path.write_text((PRELUDE if program.prelude else "") + textwrap.dedent(program.source))
    code = compile(path.read_text(), str(path), "exec")
    with (
        mock.patch.dict(os.environ, dict(program.environment)),
        devguard.simulate(f"cuda:{program.devices}"),
        devguard.watch() as watch,
    ):
        try:
            exec(code, {"__name__": "__main__", "__file__": str(path)})
        except Exception as error:
            watch.note_exception(error)
        report = watch.report
    return report


def check(program: Program, folder: Path, rules: tuple[str, ...]) -> None:
    """Assert that the report says what the program's entry says, of `rules`."""
    report = run(program, folder)
    assert report.complete, report.not_seen
    shown = [f for f in report.findings if f.rule in rules and (f.level != "note" or program.level == "note")]
    if not program.rule:
        assert not shown, str(report)
        assert report.exception is None, str(report)
        return
    assert program.rule in {f.rule for f in shown}, str(report)
    found = next(f for f in shown if f.rule == program.rule)
    assert found.cause is not None, str(report)
    assert squeezed(program.cause) in squeezed(found.cause.text), str(report)
    if program.tensor:
        assert found.tensor is not None, str(report)
        assert found.tensor.name == program.tensor, str(report)
    if program.level:
        assert found.level == program.level, str(report)
    assert {f.rule for f in shown} == {program.rule}, str(report)


def squeezed(text: str) -> str:
    """Text without white space."""
    return "".join(text.split())


def environment(**variables: Mapping[str, str] | str) -> tuple[tuple[str, str], ...]:
    """Variables of a process, as a Program holds them."""
    return tuple((name, str(value)) for name, value in variables.items())

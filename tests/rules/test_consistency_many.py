"""One run names all mistakes of a program that can be known when the first of them ends it; what only looks like one is left alone."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import devguard
from devguard.rules.finding import Finding
from tests.rules.many_mistakes_programs import PROGRAMS

PRELUDE = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
_MARK = re.compile(r"#([!?]) ((?:DG\d+\|?)+) (\S+) => (.*)$")


class Mistake(NamedTuple):
    """A planted mistake: its line, the rules and names it may be told by, and whether it has to be told."""

    line: int
    rules: list[str]
    names: list[str]
    needed: bool

    def is_told_by(self, found: Finding) -> bool:
        name = found.tensor.name if found.tensor is not None else ""
        named = any(name == one or name.endswith(f".{one}") for one in self.names)
        cause = found.cause
        return found.rule in self.rules and named and cause is not None and cause.line <= self.line <= cause.end_line


def _planted(name: str) -> tuple[str, list[Mistake]]:
    source = PRELUDE + textwrap.dedent(PROGRAMS[name])
    mistakes = []
    for number, line in enumerate(source.splitlines(), 1):
        if (mark := _MARK.search(line)) is not None:
            mistakes.append(Mistake(number, mark[2].split("|"), mark[3].split("|"), mark[1] == "!"))
    return source, mistakes


def _mended(name: str) -> str:
    lines = (PRELUDE + textwrap.dedent(PROGRAMS[name])).splitlines()
    return "\n".join(re.match(r"\s*", line)[0] + mark[4] if (mark := _MARK.search(line)) else line for line in lines)  # type: ignore[index]


def _run(source: str, path: Path) -> devguard.Report:
    path.write_text(source)
    code = compile(source, str(path), "exec")
    with devguard.simulate("cuda:2"), devguard.watch() as watch:
        try:
            exec(code, {"__name__": "__main__", "__file__": str(path)})
        except Exception as error:
            watch.note_exception(error)
        report = watch.report
        torch.cuda.set_device(0)
    assert report.complete, report.not_seen
    return report


def _shown(report: devguard.Report) -> list[Finding]:
    return [f for f in report.findings if f.rule.startswith("DG1") and f.level != "note"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_run_names_every_mistake(name: str, tmp_path: Path) -> None:
    source, mistakes = _planted(name)
    shown = _shown(_run(source, tmp_path / "planted.py"))
    said = [(f.rule, f.message, f.cause.text if f.cause else None) for f in shown]
    assert [m for m in mistakes if m.needed and not any(m.is_told_by(f) for f in shown)] == [], said
    assert [f.message for f in shown if not any(m.is_told_by(f) for m in mistakes)] == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_without_its_mistakes_is_left_alone(name: str, tmp_path: Path) -> None:
    report = _run(_mended(name), tmp_path / "mended.py")
    assert report.exception is None
    assert [f.message for f in _shown(report)] == []


CACHES = """
class Cache:
    def __init__(self):
        self.k = torch.zeros(2, 4)
        self.v = torch.zeros(2, 4)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(4, 4)
    def forward(self, x, cache):
        cache.k = cache.k + self.q(x)
        cache.v = cache.v + x
        return cache.k + cache.v

model = nn.ModuleList(Block() for _ in range(3)).to("cuda")
caches = [Cache() for _ in model]
x = torch.ones(2, 4, device="cuda")
for block, cache in zip(model, caches):
    x = block(x, cache)
"""


def test_a_line_that_made_the_same_attribute_of_many_objects_is_one_mistake(tmp_path: Path) -> None:
    report = _run(PRELUDE + CACHES, tmp_path / "program.py")
    lines = [found.cause.text for found in _shown(report) if found.cause is not None]
    assert sorted(lines) == ["self.k = torch.zeros(2, 4)", "self.v = torch.zeros(2, 4)"]

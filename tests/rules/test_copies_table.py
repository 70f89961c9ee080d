"""What the copy rules say about small programs that run on a simulated accelerator."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import devguard
from devguard.report.model import Report
from devguard.rules.finding import Finding
from tests.rules.copies_programs import BAD, CLEAN, Program


def watched(program: Program, folder: Path) -> Report:
    """The report of one run of a program."""
    script = folder / "program.py"
    script.write_text(program.text)
    with devguard.simulate(f"cuda:{program.devices}"), devguard.watch() as watch:
        runpy.run_path(str(script), run_name="__main__")
    report = watch.report
    assert report.complete, report.not_seen
    return report


def copy_findings(report: Report) -> list[Finding]:
    """The findings of DG301 to DG309."""
    return [found for found in report.findings if found.rule.startswith("DG3")]


@pytest.mark.parametrize("program", BAD, ids=lambda program: program.name.replace(" ", "-"))
def test_mistake_is_found_at_its_line_and_counted(program: Program, tmp_path: Path) -> None:
    found = copy_findings(watched(program, tmp_path))
    ours = [f for f in found if f.rule == program.rule]
    assert len(ours) == 1, [(f.rule, f.message) for f in found]
    finding = ours[0]
    assert finding.cause is not None
    assert program.line in finding.cause.text
    assert finding.count == program.count
    assert finding.level == program.level
    if program.tensor:
        assert finding.tensor is not None
        assert finding.tensor.name == program.tensor
    assert finding.fix is not None
    assert program.says in finding.message + " " + finding.fix.text
    others = [(f.rule, f.message) for f in found if f is not finding and f.level != "note"]
    assert not others, "one cause, one finding"


@pytest.mark.parametrize("program", CLEAN, ids=lambda program: program.name.replace(" ", "-"))
def test_sound_practice_is_left_alone(program: Program, tmp_path: Path) -> None:
    loud = [(f.rule, f.level, f.message) for f in copy_findings(watched(program, tmp_path)) if f.level != "note"]
    assert not loud

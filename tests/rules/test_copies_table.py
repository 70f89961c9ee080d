"""What the copy rules say about small programs that run on a simulated accelerator."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import devguard
from devguard.report.model import Report
from devguard.rules.finding import Finding
from tests.rules.copies_programs import BAD, CLEAN, Program, good


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


_SNAPSHOT = "snapshot = copy.deepcopy(net).cpu()"
_STEPS = """
import copy
for step in range(5):
    update(torch.randn(3, 8, device="cuda"))
"""


def _host_copies(text: str, folder: Path) -> list[Finding]:
    found = watched(good("snapshots", text), folder).findings
    return [f for f in found if f.rule == "DG202" and f.level != "note"]


def test_copy_of_a_whole_model_put_away_in_each_step_is_a_host_copy(tmp_path: Path) -> None:
    (finding,) = _host_copies(_STEPS + "    " + _SNAPSHOT, tmp_path)
    assert finding.cause is not None
    assert finding.cause.text == _SNAPSHOT
    assert finding.count == 5


def test_copy_of_a_whole_model_put_away_at_the_end_is_none(tmp_path: Path) -> None:
    assert not _host_copies(_STEPS + _SNAPSHOT, tmp_path)


def test_model_that_is_put_away_and_fetched_again_is_judged_by_the_way_there(tmp_path: Path) -> None:
    assert not _host_copies(_STEPS + "    net.cpu()\n    net.cuda()\n", tmp_path)

"""DG101 to DG105, DG108 and DG113 over small programs: each mistake is named with its tensor and line, correct programs are left alone."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from devguard.rules.finding import Finding
from tests.rules import consistency_cases
from tests.rules.consistency_cases.case import Case, run


def _cases(correct: bool) -> list[Case]:
    found: list[Case] = []
    for module in pkgutil.iter_modules(consistency_cases.__path__):
        table = importlib.import_module(f"{consistency_cases.__name__}.{module.name}")
        found.extend(case for case in getattr(table, "CASES", ()) if bool(case.rules) is not correct)
    return found


BROKEN, CORRECT = _cases(correct=False), _cases(correct=True)


def _names(found: Finding, allowed: str) -> bool:
    name = found.tensor.name if found.tensor is not None else ""
    return any(name == one or name.endswith(f".{one}") for one in allowed.split("|"))


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_mistake_is_named(case: Case, tmp_path: Path) -> None:
    report, lines, _ = run(case, tmp_path)
    assert report.complete, report.not_seen
    rules = case.rules.split("|")
    errors = [f for f in report.findings if f.level == "error" and f.rule.startswith("DG1")]
    said = [(f.rule, f.message, f.cause.text if f.cause else None, f.module) for f in errors]
    named = [
        f
        for f in errors
        if f.rule in rules and f.cause and any(f.cause.line <= line <= f.cause.end_line for line in lines)
    ]
    assert named, said
    if case.tensor:
        assert any(_names(f, case.tensor) for f in named), said
    if case.module is not None:
        assert any(f.module.endswith(case.module) for f in named), said
    assert not [f for f in errors if f.rule not in rules], said


@pytest.mark.parametrize("case", CORRECT, ids=lambda case: case.name)
def test_correct_program_is_left_alone(case: Case, tmp_path: Path) -> None:
    report, _, ended = run(case, tmp_path)
    assert ended is None
    assert report.complete, report.not_seen
    assert not [(f.rule, f.message) for f in report.findings if f.rule.startswith("DG1") and f.level != "note"]


def test_table_is_large_enough() -> None:
    assert len(BROKEN) >= 60
    assert len(CORRECT) >= 30

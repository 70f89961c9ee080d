"""The README's main command: the report names every planted line, and nothing in the correct program."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BROKEN = EXAMPLES / "digits_broken.py"
PLANTED = [
    (number, match[1])
    for number, line in enumerate(BROKEN.read_text().splitlines(), 1)
    if (match := re.search(r"# planted: (DG\d{3})", line))
]


@dataclass
class Ran:
    """A program that has been watched."""

    status: int
    out: str
    err: str
    report: dict[str, Any]


def watched(command: list[str], report: Path, **environment: str) -> Ran:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("DEVGUARD")}
    env = {**clean, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=300)
    return Ran(done.returncode, done.stdout, done.stderr, json.loads(report.read_text()))


def run(script: Path, folder: Path, *arguments: str) -> Ran:
    report = folder / "report.json"
    command = ["-m", "devguard", "run", "--simulate", "cuda:2", "--report", f"json:{report}", str(script), *arguments]
    return watched(command, report)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(BROKEN, tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def correct(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(EXAMPLES / "digits.py", tmp_path_factory.mktemp("correct"))


def loud(report: dict[str, Any]) -> set[tuple[str, int]]:
    """(rule, line to change) of every finding above a note."""
    found = set()
    for finding in report["findings"]:
        site = finding["cause"] or finding["where"]
        if finding["level"] != "note":
            found.add((finding["rule"], site["line"] if site else 0))
    return found


def test_ten_or_more_mistakes_are_planted() -> None:
    assert len(PLANTED) >= 10


@pytest.mark.parametrize(("line", "rule"), PLANTED)
def test_planted_line_is_named(broken: Ran, line: int, rule: str) -> None:
    assert (rule, line) in loud(broken.report), sorted(loud(broken.report))


# A planted mistake may show at a second line: the discarded move also where the batch was made.
CONSEQUENCES = {("DG101", "images, labels = next(iter(loaders[1]))")}


def test_nothing_else_is_an_error_or_a_warning(broken: Ran) -> None:
    planted = {line for line, _ in PLANTED}
    lines = BROKEN.read_text().splitlines()
    others = {(rule, lines[line - 1].strip()) for rule, line in loud(broken.report) if line not in planted}
    assert others <= CONSEQUENCES


def test_findings_make_the_status_1_and_leave_the_output_alone(broken: Ran) -> None:
    assert broken.status == 1
    assert broken.out.startswith("plain step 20: mean loss ")
    assert "plain: accuracy 0.9" in broken.out


def test_text_report_names_each_rule(broken: Ran) -> None:
    assert [rule for _, rule in PLANTED if rule not in broken.err] == []


def test_correct_program_is_clean(correct: Ran) -> None:
    assert loud(correct.report) == set()
    assert correct.status == 0, correct.err


def test_correct_program_learns_on_simulated_devices(correct: Ran) -> None:
    accuracies = dict(re.findall(r"^(\w+): accuracy ([\d.]+)$", correct.out, re.M))
    assert set(accuracies) == {
        "plain",
        "balanced",
        "attention",
        "committee",
        "resume",
        "new_head",
        "mistakes",
        "samples",
    }
    assert min(float(accuracy) for accuracy in accuracies.values()) > 0.85, accuracies


WITH = """
import json, runpy, sys
import devguard
from devguard.report.json import to_dict
with devguard.simulate("cuda:2"), devguard.watch() as watch:
    sys.argv = sys.argv[1:]
    out = sys.argv.pop(1)
    runpy.run_path(sys.argv[0], run_name="__main__")
open(out, "w").write(json.dumps(to_dict(watch.report)))
"""


def test_every_door_finds_the_same(broken: Ran, tmp_path: Path) -> None:
    by_env, by_with = tmp_path / "env.json", tmp_path / "with.json"
    options = f"simulate=cuda:2,report=json:{by_env}"
    started = watched([str(BROKEN)], by_env, DEVGUARD="1", DEVGUARD_OPTIONS=options)
    inside = watched(["-c", WITH, str(BROKEN), str(by_with)], by_with)
    assert loud(started.report) == loud(broken.report)
    assert loud(inside.report) == loud(broken.report)
    assert started.status == 0

"""`devguard run` with torch: the report, the note on the exception, the exit status, the options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from devguard.report.json import load
from devguard.report.model import Report
from tests.zygote import Ran, Zygote

CRASHES = """
    import torch

    criterion = torch.nn.CrossEntropyLoss(weight=torch.ones(3))
    logits = torch.randn(4, 3, device="cuda", requires_grad=True)
    labels = torch.randint(0, 3, (4,), device="cuda")
    print("before")
    criterion(logits, labels)
"""

WAITS = """
    import torch

    model = torch.nn.Linear(4, 1).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for step in range(8):
        loss = model(torch.ones(2, 4, device="cuda")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item(){mark}
    print("total is finite", total == total)
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


def run(zygote: Zygote, folder: Path, source: str, *options: str, **variables: str) -> tuple[Ran, Report]:
    (folder / "prog.py").write_text(textwrap.dedent(source))
    targets = ["--report", "json:report.json", "--report", "text:-"]
    ran = zygote.devguard(folder, "run", "--simulate", "cuda:1", *targets, *options, "prog.py", **variables)
    return ran, load(folder / "report.json")


def rules(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


def test_a_crash_keeps_its_exception_with_the_finding_attached(zygote: Zygote, tmp_path: Path) -> None:
    ran, report = run(zygote, tmp_path, CRASHES)
    assert ran.status == 1
    assert ran.out == "before\n"
    assert "RuntimeError: Expected all tensors to be on the same device" in ran.err
    assert "devguard: DG105" in ran.err
    assert "devguard/observe" not in ran.err
    assert "DG105" in rules(report)
    assert report.exception is not None
    assert report.exception.type == "RuntimeError"
    cause = report.findings[0].cause
    assert cause is not None
    assert cause.text == "criterion = torch.nn.CrossEntropyLoss(weight=torch.ones(3))"


def test_a_warning_does_not_fail_by_itself(zygote: Zygote, tmp_path: Path) -> None:
    ran, report = run(zygote, tmp_path, WAITS.format(mark=""))
    assert ran.status == 0
    assert ran.out == "total is finite True\n"
    (finding,) = [finding for finding in report.findings if finding.rule == "DG201"]
    assert (finding.level, finding.count, finding.per_step) == ("warning", 8, 1.0)
    assert report.simulated
    assert report.devices == ["cuda:0"]
    assert report.steps == 8


def test_fail_on_makes_it_fail(zygote: Zygote, tmp_path: Path) -> None:
    assert run(zygote, tmp_path, WAITS.format(mark=""), "--fail-on", "warning")[0].status == 1


def test_a_budget_makes_it_an_error(zygote: Zygote, tmp_path: Path) -> None:
    ran, report = run(zygote, tmp_path, WAITS.format(mark=""), "--max-syncs-per-step", "0")
    assert ran.status == 1
    assert report.findings[0].level == "error"


def test_options_from_the_environment_count(zygote: Zygote, tmp_path: Path) -> None:
    ran, report = run(zygote, tmp_path, WAITS.format(mark=""), DEVGUARD_OPTIONS="ignore=DG2,fail_on=note")
    assert "DG201" not in rules(report)
    assert ran.status == int(bool(report.findings))


def test_a_mark_with_a_reason_silences_its_line(zygote: Zygote, tmp_path: Path) -> None:
    mark = "  # devguard: ok DG201 the paper prints it"
    assert "DG201" not in rules(run(zygote, tmp_path, WAITS.format(mark=mark))[1])


def test_a_mark_without_a_reason_is_told(zygote: Zygote, tmp_path: Path) -> None:
    _, report = run(zygote, tmp_path, WAITS.format(mark="  # devguard: ok DG201"))
    assert "DG201" in rules(report)
    assert any("the reason is missing" in entry.what for entry in report.not_seen)


def test_a_baseline_silences_what_is_known_and_not_what_got_worse(zygote: Zygote, tmp_path: Path) -> None:
    run(zygote, tmp_path, WAITS.format(mark=""))
    assert zygote.devguard(tmp_path, "baseline", "report.json", "--output", "known.json").status == 0
    assert run(zygote, tmp_path, WAITS.format(mark=""), "--baseline", "known.json")[1].findings == []
    worse = WAITS.format(mark="; total += loss.item()")
    assert rules(run(zygote, tmp_path, worse, "--baseline", "known.json")[1]) == ["DG201"]


def test_an_allowance_takes_its_events(zygote: Zygote, tmp_path: Path) -> None:
    source = textwrap.dedent(WAITS.format(mark=""))
    allowed = source.replace(
        "    total += loss.item()",
        "    with devguard.allow('DG201', reason='wanted'):\n        total += loss.item()",
    )
    assert rules(run(zygote, tmp_path, "import devguard\n" + allowed)[1]) == []


def test_an_allowance_that_was_not_needed_is_told(zygote: Zygote, tmp_path: Path) -> None:
    source = """
        import devguard, torch
        with devguard.allow("DG203", reason="not needed"):
            torch.ones(3, device="cuda") + 1
    """
    _, report = run(zygote, tmp_path, source)
    assert [entry.what for entry in report.not_seen] == ["allow('DG203') was not needed in this run"]


def test_a_guard_raises_at_the_guilty_line(zygote: Zygote, tmp_path: Path) -> None:
    source = """
        import devguard, torch
        x = torch.ones(3, device="cuda")
        with devguard.guard(sync="error"):
            y = x * 2
            print(y.sum().item())
    """
    ran, _ = run(zygote, tmp_path, source)
    assert ran.status == 1
    assert "print(y.sum().item())" in ran.err
    assert "devguard.observe.scopes.DeviceGuardError" in ran.err or "DeviceGuardError: " in ran.err
    assert "forbidden here by devguard.guard(sync='error')" in ran.err


def test_a_guard_without_a_watch_starts_its_own(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        textwrap.dedent("""
            import devguard, torch
            with devguard.simulate("cuda:1"):
                x = torch.ones(3, device="cuda")
                with devguard.guard(sync="error"):
                    try:
                        x.sum().item()
                    except devguard.DeviceGuardError:
                        print("raised")
                print(x.sum().item())
        """)
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "prog.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "raised\n3.0\n", done.stderr


def test_the_report_of_an_unwritable_target_goes_to_stderr(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(textwrap.dedent(WAITS.format(mark="")))
    ran = zygote.devguard(
        tmp_path, "run", "--simulate", "cuda:1", "--quiet", "--report", "json:prog.py/x.json", "prog.py"
    )
    assert ran.status == 2
    assert ran.out == "total is finite True\n"
    assert "can't write the json report" in ran.err
    assert "warning[DG201]" in ran.err


def test_processes_that_the_program_starts_are_part_of_the_report(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(textwrap.dedent(WAITS.format(mark="")))
    source = """
        import os, subprocess, sys
        for rank in ("0", "1"):
            subprocess.run([sys.executable, "rank.py"], env={**os.environ, "RANK": rank}, check=True)
    """
    ran, report = run(zygote, tmp_path, source)
    (finding,) = [finding for finding in report.findings if finding.rule == "DG201"]
    assert (finding.count, finding.ranks) == (16, [0, 1])
    assert report.rank is None
    assert ran.out == "total is finite True\n" * 2
    assert ran.err.count("devguard: 1 warning") == 1

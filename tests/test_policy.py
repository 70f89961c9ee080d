"""Policy: what becomes of findings, as functions of plain data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devguard import baseline, policy
from devguard.observe.scopes import AllowScope
from devguard.options import Options
from devguard.report.json import ReportError
from devguard.report.model import RaisedException
from tests.report import samples


def rules(options: Options) -> list[str]:
    return [finding.rule for finding in policy.apply(samples.report(), options).findings]


def test_without_options_everything_is_reported() -> None:
    assert rules(Options()) == ["DG105", "DG201", "DG308"]


def test_select_ignore_and_off_choose_by_beginnings_of_codes() -> None:
    assert rules(Options(select=("DG1", "DG308"))) == ["DG105", "DG308"]
    assert rules(Options(ignore=("DG1", "DG308"))) == ["DG201"]
    assert rules(Options(levels={"DG": "off", "DG105": "note"})) == ["DG105"]


def test_the_longest_code_decides_the_level() -> None:
    report = policy.apply(samples.report(), Options(levels={"DG2": "note", "DG201": "error"}))
    assert {finding.rule: finding.level for finding in report.findings}["DG201"] == "error"


def test_a_finding_that_is_rare_stays_a_note() -> None:
    rare = samples.scalar_read(level="note")
    (kept,) = policy.selected([rare], Options(levels={"DG201": "error"}))
    assert kept.level == "note"


def test_findings_are_ranked_anew_after_levels_changed() -> None:
    report = policy.apply(samples.report(), Options(levels={"DG308": "error", "DG105": "note"}))
    assert [finding.rule for finding in report.findings] == ["DG308", "DG201", "DG105"]


def test_the_given_report_is_left_alone() -> None:
    report = samples.report()
    policy.apply(report, Options(levels={"DG": "error"}, max_syncs_per_step=0))
    assert report == samples.report()


def test_syncs_within_the_budget_stay_warnings() -> None:
    assert policy.over_budget([samples.scalar_read()], 1)[0].level == "warning"


def test_syncs_over_the_budget_are_errors_that_say_so() -> None:
    twice = [samples.scalar_read(), samples.scalar_read(fingerprint="other"), samples.created_then_moved()]
    errors = [finding for finding in policy.over_budget(twice, 1) if finding.level == "error"]
    assert len(errors) == 2
    assert errors[0].message.endswith("; 2 syncs per step are over the budget of 1")


@pytest.mark.parametrize(
    ("script", "fail_on", "expected"),
    [(0, "error", 1), (0, "never", 0), (7, "error", 7), (0, "note", 1)],
)
def test_the_programs_own_status_goes_first(script: int, fail_on: str, expected: int) -> None:
    assert policy.exit_code(samples.report(), script, fail_on) == expected


def test_only_findings_at_or_above_the_level_fail() -> None:
    assert policy.exit_code(samples.report([samples.scalar_read()]), 0, "error") == 0
    assert policy.exit_code(samples.report([samples.scalar_read()]), 0, "warning") == 1


# --- allowances, as far as they are judged at the end ---


def block(**changes: object) -> AllowScope:
    values = {"file": f"{samples.FOLDER}/train.py", "first": 40, "last": 50, **changes}
    return AllowScope(("DG105",), "on purpose", **values)  # type: ignore[arg-type]


def test_a_finding_inside_an_allow_block_is_left_out() -> None:
    kept, idle = policy.without_allowed([samples.loss_weight(), samples.scalar_read()], [block()])
    assert [finding.rule for finding in kept] == ["DG201"]
    assert idle == []


@pytest.mark.parametrize("change", [{"first": 42}, {"file": "/other.py"}, {"first_only": True}])
def test_a_finding_outside_the_block_stays_and_the_allowance_is_idle(change: dict[str, object]) -> None:
    scope = block(**change)
    assert policy.without_allowed([samples.loss_weight()], [scope]) == ([samples.loss_weight()], [scope])


def test_an_allowance_that_an_event_used_is_not_idle() -> None:
    assert policy.without_allowed([], [block(used=1)]) == ([], [])


# --- the baseline ---


def written(tmp_path: Path, *findings: object) -> str:
    path = tmp_path / "known.json"
    path.write_text(baseline.dumps(findings))  # type: ignore[arg-type]
    return str(path)


def test_known_findings_are_not_reported_again(tmp_path: Path) -> None:
    path = written(tmp_path, samples.loss_weight(), samples.scalar_read())
    assert rules(Options(baseline=path)) == ["DG308"]


def test_a_known_finding_that_got_more_frequent_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, samples.loss_weight(), samples.scalar_read(per_step=0.5), samples.created_then_moved())
    assert rules(Options(baseline=path)) == ["DG201"]


def test_a_baseline_that_can_not_be_read_is_told_and_hides_nothing(tmp_path: Path) -> None:
    report = policy.apply(samples.report(), Options(baseline=str(tmp_path / "none.json")))
    assert len(report.findings) == 3
    assert report.not_seen[0].what.startswith("the baseline was not used: ")


def test_a_changed_baseline_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert len(rules(Options(baseline=path))) == 3
    import os

    written(tmp_path, samples.loss_weight())
    os.utime(path, (1, 1))
    assert len(rules(Options(baseline=path))) == 2


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"devguard_baseline": 2, "findings": {}},
        {"devguard_baseline": 1, "findings": []},
        {"devguard_baseline": 1, "findings": {"a": 1}},
        {"devguard_baseline": 1, "findings": {"a": {"rule": "DG1", "count": "1", "per_step": 0}}},
        {"devguard_baseline": 1, "findings": {"a": {"rule": "DG1", "count": 1, "per_step": 10**400}}},
        {"devguard_baseline": 1, "findings": {"a": {"rule": "DG1", "count": True, "per_step": 0}}},
    ],
)
def test_a_file_that_is_no_baseline_costs_one_line(tmp_path: Path, data: object) -> None:
    (tmp_path / "odd.json").write_text(json.dumps(data))
    with pytest.raises(ReportError, match=r"odd\.json") as caught:
        baseline.load(tmp_path / "odd.json")
    assert "\n" not in str(caught.value)


def test_a_baseline_survives_edits_because_it_holds_no_lines(tmp_path: Path) -> None:
    text = baseline.dumps([samples.loss_weight()])
    assert "train.py" not in text
    assert '"line"' not in text


def test_marks_and_allowances_of_a_program_that_broke_off_are_not_called_unused(tmp_path: Path) -> None:
    source = tmp_path / "broken.py"
    source.write_text("x = 1  # devguard: ok DG201 later\ny = 2  # devguard: ok DG201\n")
    place = samples.site(5, "z", file=str(source))
    finding = samples.loss_weight(where=place, cause=None)
    whole = policy.apply(samples.report([finding]), Options())
    broken = policy.apply(samples.report([finding], exception=RaisedException("E", "")), Options())
    assert [entry.what.rpartition("' ")[2] for entry in whole.not_seen] == [
        "was not needed in this run",
        "has no effect: the reason is missing",
    ]
    assert len(broken.not_seen) == 1

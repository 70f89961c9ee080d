"""Fixture, marker and `--devguard`: which tests are watched, and what fails them."""

from __future__ import annotations

import re
import sys

import pytest

from tests.plugin.conftest import PROGRAM, Run, RunPytest

SUITE = """
import devguard
import pytest
import torch
from program import mismatch, train


def test_fixture_fails_on_an_error(device_watch):
    mismatch()


def test_fixture_gives_the_running_watch(device_watch):
    assert isinstance(device_watch, devguard.Watch)
    train()
    assert any(found.rule == "DG201" for found in device_watch.report.findings)


@pytest.mark.devguard
def test_bare_marker_fails_on_an_error():
    mismatch()


@pytest.mark.devguard(fail_on="warning")
def test_marker_lowers_the_level():
    train()


@pytest.mark.devguard(fail_on="never")
def test_marker_can_only_look():
    mismatch()


@pytest.mark.devguard(fail_on="warning", ignore=["DG201"])
def test_marker_ignores_a_rule():
    train()


@pytest.mark.devguard(max_syncs_per_step=0)
def test_budget_of_no_sync_is_overrun():
    train()


@pytest.mark.devguard(max_syncs_per_step=1)
def test_budget_of_one_sync_is_kept():
    train()


@pytest.mark.devguard(fail_on="error")
class TestClass:
    @pytest.mark.devguard(fail_on="warning")
    def test_closest_marker_wins(self):
        train()

    def test_class_marker_counts(self):
        train()


@pytest.fixture
def model():
    return torch.nn.Linear(4, 1).cuda(), torch.ones(2, 4)


@pytest.mark.devguard
def test_fixtures_are_watched_too(model):
    with pytest.raises(RuntimeError):
        model[0](model[1])


@pytest.mark.devguard
def test_device_error_that_is_raised():
    torch.ones(3, device="cuda") + torch.ones(3)


@pytest.mark.devguard
def test_plain_failure_keeps_its_text():
    mismatch()
    assert 1 == 2


@pytest.mark.devguard
def test_skipped_inside():
    mismatch()
    pytest.skip("not here")


def test_unmarked_is_not_watched():
    mismatch()
    train()
"""


@pytest.fixture(scope="module")
def suite(run_pytest: RunPytest) -> Run:
    return run_pytest({"program.py": PROGRAM, "test_suite.py": SUITE}, "--devguard-simulate=cuda:2")


@pytest.fixture(scope="module")
def whole(run_pytest: RunPytest) -> Run:
    """The same tests with --devguard."""
    return run_pytest({"program.py": PROGRAM, "test_suite.py": SUITE}, "--devguard", "--devguard-simulate=cuda:2")


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("test_fixture_fails_on_an_error", "failure"),
        ("test_fixture_gives_the_running_watch", "passed"),
        ("test_bare_marker_fails_on_an_error", "failure"),
        ("test_marker_lowers_the_level", "failure"),
        ("test_marker_can_only_look", "passed"),
        ("test_marker_ignores_a_rule", "passed"),
        ("test_budget_of_no_sync_is_overrun", "failure"),
        ("test_budget_of_one_sync_is_kept", "passed"),
        ("test_closest_marker_wins", "failure"),
        ("test_class_marker_counts", "passed"),
        ("test_fixtures_are_watched_too", "failure"),
        ("test_device_error_that_is_raised", "failure"),
        ("test_plain_failure_keeps_its_text", "failure"),
        ("test_skipped_inside", "skipped"),
        ("test_unmarked_is_not_watched", "passed"),
    ],
)
def test_outcome(suite: Run, test: str, outcome: str) -> None:
    assert suite.outcomes[test] == outcome, suite.texts[test]


def test_failure_shows_the_report_and_no_traceback(suite: Run) -> None:
    text = suite.texts["test_bare_marker_fails_on_an_error"]
    assert "devguard: 1 finding at or above error: DG108" in text
    assert "program.py" in text
    assert "_pytest_watch" not in text


def test_raised_device_error_keeps_its_traceback_and_gets_the_finding(suite: Run) -> None:
    text = suite.texts["test_device_error_that_is_raised"]
    assert "RuntimeError: Expected all tensors to be on the same device" in text
    assert "DG108" in text
    if sys.version_info >= (3, 11):  # pytest on 3.10 keeps the traceback that it was given first
        assert "devguard/" not in text  # none of our frames


def test_plain_failure_is_not_replaced_by_ours(suite: Run) -> None:
    assert "assert 1 == 2" in suite.texts["test_plain_failure_keeps_its_text"]


def test_failed_test_shows_findings_in_a_section(suite: Run) -> None:
    assert re.search(r"^-+ devguard -+$", suite.output, re.M)


def test_summary_lists_each_defect_once_with_the_tests_that_met_it(suite: Run) -> None:
    summary = suite.output.split(" devguard =")[1]
    assert "14 tests watched: 4 errors\n" in summary
    (mismatch,) = [line for line in summary.splitlines() if "program.py:9: error DG108" in line]
    assert mismatch.endswith("[test_suite.py::test_fixture_fails_on_an_error and 4 more]")


def test_whole_suite_is_watched_without_changing_it(whole: Run) -> None:
    assert whole.outcomes["test_unmarked_is_not_watched"] == "failure"
    assert "devguard: watching every test, simulating cuda:2" in whole.output


def test_markers_go_before_the_whole_suite_level(whole: Run) -> None:
    assert whole.outcomes["test_marker_can_only_look"] == "passed"

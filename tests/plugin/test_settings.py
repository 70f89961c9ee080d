"""Command-line options, ini keys and bad values."""

from __future__ import annotations

import json

import pytest

from devguard.pytest_plugin import SETTINGS
from tests.plugin.conftest import PROGRAM, RunPytest

TESTS = """
import torch
from program import mismatch, train

def test_trains():
    train()

def test_mismatch():
    mismatch()
"""
FILES = {"program.py": PROGRAM, "test_it.py": TESTS}


def ini(*lines: str) -> dict[str, str]:
    return {**FILES, "pytest.ini": "\n".join(["[pytest]", *lines]) + "\n"}


def test_every_setting_has_a_test_of_its_ini_key() -> None:
    tested = {"", "simulate", "report", "fail_on", "ignore", "max_syncs_per_step"}
    assert {setting.name for setting in SETTINGS} == tested


def test_ini_keys_devguard_and_simulate_watch_the_suite(run_pytest: RunPytest) -> None:
    run = run_pytest(ini("devguard = true", "devguard_simulate = cuda:1"))
    assert run.outcomes == {"test_trains": "passed", "test_mismatch": "failure"}, run.output


def test_ini_keys_fail_on_and_ignore_change_the_verdict(run_pytest: RunPytest) -> None:
    keys = ("devguard = true", "devguard_simulate = cuda:1", "devguard_fail_on = warning", "devguard_ignore = DG108")
    run = run_pytest(ini(*keys))
    assert run.outcomes == {"test_trains": "failure", "test_mismatch": "passed"}, run.output


def test_ini_key_budget_fails_the_test_that_overruns_it(run_pytest: RunPytest) -> None:
    keys = (
        "devguard = true",
        "devguard_simulate = cuda:1",
        "devguard_max_syncs_per_step = 0",
        "devguard_ignore = DG108",
    )
    assert run_pytest(ini(*keys)).outcomes == {"test_trains": "failure", "test_mismatch": "passed"}


def test_ini_key_report_writes_every_file(run_pytest: RunPytest) -> None:
    run = run_pytest(
        ini("devguard = true", "devguard_simulate = cuda:1", "devguard_report =", "  json:a.json", "  text:b.txt")
    )
    report = json.loads((run.folder / "a.json").read_text())
    assert {"DG108", "DG201"} <= {found["rule"] for found in report["findings"]}
    assert "DG108" in (run.folder / "b.txt").read_text()


def test_command_line_goes_before_the_ini_file(run_pytest: RunPytest) -> None:
    run = run_pytest(
        ini("devguard_fail_on = error", "devguard_simulate = cuda:1"), "--devguard", "--devguard-fail-on=never"
    )
    assert run.status == 0, run.output


def test_report_of_a_run_with_workers_holds_all_tests(run_pytest: RunPytest) -> None:
    more = {f"test_{i}.py": TESTS for i in range(2)}
    run = run_pytest(
        {**FILES, **more}, "-n2", "--devguard", "--devguard-simulate=cuda:2", "--devguard-report=json:all.json"
    )
    report = json.loads((run.folder / "all.json").read_text())
    (mismatch,) = [found for found in report["findings"] if found["rule"] == "DG108"]
    assert mismatch["count"] == 3
    assert report["simulated"] is True
    assert report["devices"] == ["cuda:0", "cuda:1"]
    assert "6 tests watched" in run.output


def test_devguard_1_watches_the_suite_and_its_options_count(run_pytest: RunPytest) -> None:
    run = run_pytest(FILES, DEVGUARD="1", DEVGUARD_OPTIONS="simulate=cuda:1,fail_on=warning")
    assert run.outcomes == {"test_trains": "failure", "test_mismatch": "failure"}, run.output


def test_devguard_0_switches_all_off(run_pytest: RunPytest) -> None:
    tests = "def test_fixture(device_watch):\n    import torch\n    assert not torch.cuda.is_available()\n"
    run = run_pytest({"test_it.py": tests}, "--devguard", "--devguard-simulate=cuda:1", DEVGUARD="0")
    assert run.status == 0, run.output
    assert "devguard: off (DEVGUARD=0)" in run.output


def test_simulation_of_one_test_ends_with_it(run_pytest: RunPytest) -> None:
    tests = """
    import pytest, torch

    @pytest.fixture
    def tensor():
        yield torch.ones(2, device="cuda:1")
        assert torch.cuda.device_count() == 2

    @pytest.mark.devguard(simulate="cuda:2")
    def test_inside(tensor):
        assert tensor.sum().item() == 2

    def test_outside():
        assert not torch.cuda.is_available()
    """
    run = run_pytest({"test_it.py": tests})
    assert run.outcomes == {"test_inside": "passed", "test_outside": "passed"}, run.output


def test_simulation_begins_before_conftest_is_imported(run_pytest: RunPytest) -> None:
    files = {
        "conftest.py": "import torch\nDEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n",
        "test_it.py": "from conftest import DEVICE\n\ndef test_device():\n    assert DEVICE.type == 'cuda'\n",
    }
    assert run_pytest(files, "--devguard-simulate=cuda:1").status == 0


def test_run_that_asks_for_nothing_imports_no_torch(run_pytest: RunPytest) -> None:
    tests = "import sys\n\ndef test_it():\n    assert not [name for name in sys.modules if name in ('torch', 'rich', 'jinja2', 'wrapt')]\n"
    assert run_pytest({"test_it.py": tests}).status == 0


def test_run_that_asks_for_nothing_ignores_bad_options(run_pytest: RunPytest) -> None:
    assert run_pytest({"test_it.py": "def test_it():\n    pass\n"}, DEVGUARD_OPTIONS="nonsense=1").status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devguard-fail-on=bad"], "--devguard-fail-on: fail_on='bad': expected note, warning, error or never"),
        (["--devguard-simulate=tpu:1"], "--devguard-simulate: simulate='tpu:1': expected cuda:N"),
        (["--devguard-report=xml:a"], "--devguard-report: report="),
        (
            ["--devguard-max-syncs-per-step=-1"],
            "--devguard-max-syncs-per-step: max_syncs_per_step='-1': expected a whole",
        ),
        (["--devguard-ignore=DG999"], "--devguard-ignore: ignore='DG999': expected"),
        (["-o", "devguard_fail_on=bad"], "ini key devguard_fail_on: fail_on='bad'"),
    ],
)
def test_bad_value_is_a_usage_error(pytester: pytest.Pytester, arguments: list[str], message: str) -> None:
    pytester.makepyfile("def test_it(): pass")
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: devguard: {message}" in done.stderr.str()


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("fail_on='bad'", "fail_on='bad': expected note, warning, error or never"),
        ("fail_onn='error'", "unknown option 'fail_onn', did you mean fail_on?"),
        ("'warning'", "takes keywords only"),
        ("report='json:a'", "report is for the whole run"),
    ],
)
def test_bad_marker_is_a_usage_error_before_any_test(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.devguard({marker})\ndef test_it(): pass")
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr.str()
    assert "test_it: @pytest.mark.devguard" in done.stderr.str()


def test_bad_marker_under_xdist_fails_its_test(run_pytest: RunPytest) -> None:
    tests = "import pytest\n\n@pytest.mark.devguard(fail_onn='error')\ndef test_it():\n    pass\n"
    run = run_pytest({"test_it.py": tests}, "-n1")
    assert run.status == 1
    assert "unknown option 'fail_onn', did you mean fail_on?" in run.output
    assert "INTERNALERROR" not in run.output


def test_marker_is_registered(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_inprocess("--markers", "-p", "no:cacheprovider")
    done.stdout.fnmatch_lines(["@pytest.mark.devguard(fail_on=*"])

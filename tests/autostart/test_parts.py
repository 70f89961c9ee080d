"""The parts of DEVGUARD=1 that need no process of their own."""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

from devguard import autorun, autostart
from devguard.options import Options
from devguard.report.model import Report
from devguard.rules.finding import Finding, Level


@pytest.mark.parametrize(
    ("value", "on", "off"), [("1", True, False), ("on", True, False), ("0", False, True), ("", False, False)]
)
def test_switch_reads_devguard(value: str, on: bool, off: bool) -> None:
    environment = {"DEVGUARD": value}
    assert (autostart.switched_on(environment), autostart.switched_off(environment)) == (on, off)


def test_start_waits_until_the_import_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_module.py").write_text(
        "import devguard.autostart as a, sys\na._when_imported(sys.modules[__name__])\nlast = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    monkeypatch.setattr(autostart, "_begin", lambda: seen.append(sys.modules["slow_module"].last))
    module = importlib.import_module("slow_module")
    assert seen == [1]
    assert type(module.__spec__) is importlib.machinery.ModuleSpec
    monkeypatch.delitem(sys.modules, "slow_module")


def test_start_after_the_import_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(autostart, "_begin", lambda: seen.append(1))
    autostart._when_imported(sys.modules["torch"])
    assert seen == [1]


def test_failure_to_begin_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("no\nluck")

    monkeypatch.setattr(autorun, "begin", fail)
    autostart._begin()
    assert capsys.readouterr().err == "devguard: could not start (no luck): the program runs unwatched\n"


def test_walker_lists_exit_functions_in_order_and_removes_the_marked_ones() -> None:
    def one() -> None: ...

    def two() -> None: ...

    atexit.register(one)
    atexit.register(two)
    listed = autorun._exit_functions()
    atexit.unregister(autorun._Walker([function is two for function in listed]))  # type: ignore[arg-type]
    assert [function for function in listed if function in (one, two)] in ([one, two], [two, one])
    assert autorun._exit_functions() == [function for function in listed if function is not two]
    atexit.unregister(one)


@pytest.mark.parametrize(
    ("first", "rank", "target", "name"),
    [
        (True, None, "json:r.json", "json:r.json"),
        (True, None, "text:-", "text:-"),
        (True, 1, "json:out/r.json", "json:out/r.rank%r.json"),
        (False, None, "json:r.json", "json:r.pid%p.json"),
        (False, 1, "json:r-%r.json", "json:r-%r.json"),
    ],
)
def test_each_process_of_a_job_has_a_target_of_its_own(first: bool, rank: int | None, target: str, name: str) -> None:
    process = autorun.Autorun(Options(), gate=False)
    process.first = first
    assert process._target(target, rank) == name


def test_levels_are_counted_worst_first() -> None:
    levels: list[Level] = ["note", "error", "error"]
    findings = [Finding("DG108", "operand-device", level, "certain", "", "") for level in levels]
    assert autorun.count_levels(Report(findings=findings)) == "2 errors, 1 note"

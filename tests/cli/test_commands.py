"""Every command: what it prints, its exit status, and one line for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devguard.cli import COMMANDS, main
from devguard.report.json import dumps, load
from devguard.rules.catalog import CATALOG
from tests.report import samples


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, **changes: object) -> str:
    Path(name).write_text(dumps(samples.report(**changes)))  # type: ignore[arg-type]
    return name


def said(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> str:
    assert main(argv) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("devguard: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["-h"]):
        assert main(argv) == 0
        text = capsys.readouterr().out
        assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"usage: devguard {name}" in said(capsys, name, "--help")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from devguard import __version__

    assert said(capsys, "--version") == f"devguard {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["rnu"], "did you mean run?"),
        (["run"], "nothing to run"),
        (["run", "-m"], "nothing to run"),
        (["run", "none.py"], "can't open 'none.py'"),
        (["run", "--simulat", "cuda:1", "x.py"], "unknown option --simulat, did you mean --simulate?"),
        (["run", "--simulate", "tpu", "x.py"], "command line: simulate='tpu': expected cuda:N"),
        (["run", "--every", "0", "x.py"], "expected a whole number"),
        (["run", "--report", "out.json", "x.py"], "FORMAT:PATH"),
        (["run", "--select", "DG999", "x.py"], "rule codes"),
        (["run", "--baseline", "none.json", "-c", "1"], "none.json"),
        (["explain"], "required: code"),
        (["explain", "DG999"], "no rule is called 'DG999'"),
        (["explain", "los-weight"], "did you mean loss-weight?"),
        (["rules", "extra"], "unrecognized arguments: extra"),
        (["report", "none.json"], "none.json"),
        (["report", "good.json", "--format", "pdf"], "invalid choice: 'pdf'"),
        (["report", "good.json", "good.json", "--output", "good.json"], "would overwrite an input"),
        (["diff", "good.json"], "required: NEW"),
        (["diff", "good.json", "good.json", "--fail-on", "eror"], "did you mean error?"),
        (["baseline", "good.json", "--output", "good.json/x"], "can't write"),
    ],
)
def test_a_wrong_command_line_costs_one_line_and_status_2(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save("good.json")
    before = Path("good.json").read_bytes()
    assert expected in refused(capsys, *argv)
    assert Path("good.json").read_bytes() == before


def test_a_report_may_not_overwrite_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("print(1)")
    assert "would overwrite the program" in refused(capsys, "run", "--report", "json:./train.py", "train.py")
    assert Path("train.py").read_text() == "print(1)"


def test_bad_options_in_the_environment_cost_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEVGUARD_OPTIONS", "evry=3")
    assert "DEVGUARD_OPTIONS: unknown option 'evry', did you mean every?" in refused(capsys, "config")


# --- explain, rules ---


def test_rules_are_listed_with_level_name_and_summary(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "rules")
    for rule in CATALOG.values():
        assert rule.code in text
        assert rule.summary in text
    assert "DG401" in text


def test_rules_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(said(capsys, "rules", "--format", "json"))
    assert {"code", "name", "level", "summary"} == set(rows[0])
    assert {row["code"] for row in rows} >= set(CATALOG)


def test_explain_knows_environment_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert "# DG406 rank-out-of-range" in said(capsys, "explain", "dg406")


# --- saved reports ---


def test_report_shows_a_saved_report_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    save("r.json")
    assert "error[DG105]" in said(capsys, "report", "r.json")
    assert json.loads(said(capsys, "report", "r.json", "--format", "json"))["schema"] == 1
    assert json.loads(said(capsys, "report", "r.json", "--format", "sarif"))["version"] == "2.1.0"
    assert said(capsys, "report", "r.json", "--format", "html").startswith("<!doctype html>")
    assert said(capsys, "report", "r.json", "--format", "github").startswith("::error ")


def test_report_merges_ranks_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    save("0.json", rank=0)
    save("1.json", rank=1)
    assert said(capsys, "report", "0.json", "1.json", "--format", "json", "--output", "all.json") == ""
    assert load("all.json").findings[0].ranks == [0, 1]


def test_diff_fails_when_something_is_new_at_or_above_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    save("clean.json", findings=[])
    save("warned.json", findings=[samples.scalar_read()])
    assert "1 new" in said(capsys, "diff", "clean.json", "warned.json", status=1)
    assert "1 gone" in said(capsys, "diff", "warned.json", "clean.json")
    said(capsys, "diff", "clean.json", "warned.json", "--fail-on", "error")
    said(capsys, "diff", "clean.json", "warned.json", "--fail-on", "never")


def test_baseline_writes_what_the_option_reads(capsys: pytest.CaptureFixture[str]) -> None:
    from devguard import baseline

    save("r.json")
    said(capsys, "baseline", "r.json", "--output", "known.json")
    assert len(baseline.load("known.json")) == 3
    assert json.loads(said(capsys, "baseline", "r.json")) == json.loads(Path("known.json").read_text())


# --- config ---


def test_config_names_value_and_source(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").write_text("[tool.devguard]\nwarmup = 5\n")
    monkeypatch.setenv("DEVGUARD_OPTIONS", "select=DG1+DG2")
    rows = {line.split()[0]: line.split()[1:] for line in said(capsys, "config").splitlines()}
    assert rows["select"] == ["DG1+DG2", "DEVGUARD_OPTIONS"]
    assert rows["warmup"][0] == "5"
    assert rows["warmup"][1].endswith("pyproject.toml")
    assert rows["every"] == ["1", "default"]
    assert json.loads(said(capsys, "config", "--format", "json"))["warmup"]["value"] == 5

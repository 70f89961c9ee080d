"""Targets: written whole or not at all, and the report is never lost."""

from __future__ import annotations

import io
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from devguard.report import json, write
from tests.report import samples

REPORT = samples.full_report()


def test_without_targets_the_text_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert write.emit(REPORT, [])
    captured = capsys.readouterr()
    assert "error[DG105]" in captured.err
    assert captured.out == ""


def test_quiet_writes_the_targets_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert write.emit(REPORT, [f"json:{tmp_path / 'r.json'}"], on_stderr=False)
    assert capsys.readouterr().err == ""
    assert json.load(tmp_path / "r.json") == REPORT


def test_every_format_is_written(tmp_path: Path) -> None:
    targets = [f"{name}:{tmp_path / name}" for name in write.RENDERERS]
    assert write.emit(REPORT, targets)
    assert all((tmp_path / name).stat().st_size > 100 for name in write.RENDERERS)


def test_a_text_file_replaces_the_text_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write.emit(REPORT, [f"text:{tmp_path / 'r.txt'}"])
    assert capsys.readouterr().err == ""
    assert "\x1b" not in (tmp_path / "r.txt").read_text()


def test_missing_folders_are_made(tmp_path: Path) -> None:
    assert write.emit(REPORT, [f"json:{tmp_path}/a/b/r.json"])
    assert (tmp_path / "a/b/r.json").exists()


def test_paths_may_hold_process_and_rank(tmp_path: Path) -> None:
    write.emit(REPORT, [f"json:{tmp_path}/r%r-%p-100%%.json"])
    assert os.listdir(tmp_path) == [f"r1-{os.getpid()}-100%.json"]


def test_an_unwritable_target_costs_one_line_and_the_report_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert not write.emit(REPORT, [f"json:{tmp_path}/file/r.json"], on_stderr=False)
    first, rest = capsys.readouterr().err.split("\n", 1)
    assert first.startswith("devguard: can't write the json report to ")
    assert "error[DG105]" in rest


def test_a_failed_write_leaves_the_old_file_and_no_scrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "r.json"
    file.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not write.emit(REPORT, [f"json:{file}"])
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_renderer_that_fails_does_not_hide_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object, **kwargs: object) -> str:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr("devguard.report.text.render", broken)
    write.emit(REPORT, [])
    shown = capsys.readouterr().err
    assert "can't lay out the report (broken)" in shown
    assert "DG105" in shown


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write.emit(REPORT, [f"json:{tmp_path}/link.json"])
    assert (tmp_path / "link.json").is_symlink()
    assert json.load(tmp_path / "real.json") == REPORT


def test_modes_follow_the_umask_or_the_old_file(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write.write_file(str(tmp_path / "new"), "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o600)
    write.write_file(str(tmp_path / "new"), "y")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write.write_file(str(pipe), "hello")
    reader.join()
    assert got == ["hello"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("stream", [None, "closed", "ascii"])
def test_a_missing_closed_or_narrow_stderr_is_no_error(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    if stream == "closed":
        narrow.close()
    monkeypatch.setattr(sys, "stderr", None if stream is None else narrow)
    assert write.emit(samples.report([samples.loss_weight(message="größer")]), [])
    if stream == "ascii":
        narrow.flush()
        assert b"gr\\xf6" in narrow.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("color", "variables", "terminal", "expected"),
    [
        ("auto", {}, False, False),
        ("auto", {}, True, True),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_color_follows_the_option_then_the_environment_then_the_terminal(
    color: str, variables: dict[str, str], terminal: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert write.colored(color, stream) is expected

"""Reports that can't be written or laid out: the program ends as without devguard, and what was found is not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devguard.report import write
from tests.report import samples
from tests.zygote import Zygote

REPORT = samples.full_report()
PROGRAM = """
import torch
x = torch.ones((), device="cuda")
for _ in range(9):
    x.item()
print("result")
"""


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as running:
        yield running


def program(folder: Path, *lines: str) -> None:
    """The program, with some more lines before its end."""
    (folder / "prog.py").write_text(PROGRAM + "\n".join(lines) + "\n")


# --- places ---


def test_a_full_disk_costs_one_line_and_the_report_goes_to_stderr(zygote, tmp_path):
    program(tmp_path)
    ran = zygote.devguard(tmp_path, "run", "--simulate", "cuda:1", "--quiet", "--report", "html:/dev/full", "prog.py")
    first, rest = ran.err.split("\n", 1)
    assert first == "devguard: can't write the html report to '/dev/full': No space left on device"
    assert "warning[DG201]" in rest
    assert (ran.status, ran.out) == (2, "result\n")


def test_a_file_that_may_not_grow_keeps_the_old_report(tmp_path):
    file = tmp_path / "r.txt"
    file.write_text("old")
    code = f"""
import resource
from devguard.report.write import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_file({str(file)!r}, "x" * 100_000)
except OSError as problem:
    print(problem.strerror)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("File too large\n", "")
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["r.txt"])


def test_a_read_only_place_costs_one_line(zygote, tmp_path):
    program(tmp_path)
    target = "json:/proc/self/report.json"  # nobody may make a file there
    ran = zygote.devguard(tmp_path, "run", "--simulate", "cuda:1", "--quiet", "--report", target, "prog.py")
    assert ran.err.startswith("devguard: can't write the json report to '/proc/self/report.json': ")
    assert (ran.status, ran.out) == (2, "result\n")


def test_a_folder_that_the_program_removed_is_made_again(zygote, tmp_path):
    (tmp_path / "reports").mkdir()
    program(tmp_path, "import shutil; shutil.rmtree('reports')")
    ran = zygote.devguard(
        tmp_path, "run", "--simulate", "cuda:1", "--quiet", "--report", "json:reports/r.json", "prog.py"
    )
    assert (ran.status, ran.err) == (0, "")
    assert (tmp_path / "reports" / "r.json").exists()


def test_a_working_directory_that_is_gone_costs_one_line(zygote, tmp_path):
    program(tmp_path, "import os, tempfile, shutil", "gone = tempfile.mkdtemp(); os.chdir(gone); shutil.rmtree(gone)")
    ran = zygote.devguard(tmp_path, "run", "--simulate", "cuda:1", "--report", "json:r.json", "prog.py")
    assert "can't write the json report to 'r.json'" in ran.err
    assert "warning[DG201]" in ran.err
    assert ran.out == "result\n"


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_changes_neither_output_nor_status(tmp_path, redirection):
    program(tmp_path)
    (tmp_path / "watched.py").write_text(
        "import sys; from devguard.cli import main; sys.exit(main(['run', '--simulate', 'cuda:1', 'prog.py']))"
    )
    command = ["sh", "-c", f"{sys.executable} watched.py {redirection}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "result\n")


def test_a_report_to_the_stream_of_the_program_follows_its_output(zygote, tmp_path):
    program(tmp_path)
    target = "json:/dev/stdout"
    ran = zygote.devguard(tmp_path, "run", "--simulate", "cuda:1", "--quiet", "--report", target, "prog.py")
    assert ran.out.startswith('result\n{\n  "schema": 1,')
    assert (ran.status, ran.err) == (0, "")


def test_a_report_to_a_piped_stream_is_written(tmp_path):
    code = "print('first'); from devguard.report.write import write_file; write_file('/dev/stdout', 'second\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("first\nsecond\n", "")


# --- renderers and writers, broken in turn ---


@pytest.mark.parametrize("name", list(write.RENDERERS))
def test_a_renderer_that_fails_is_told_and_the_others_write(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(f"{write.RENDERERS[name]}.render", lambda *a, **k: 1 / 0)
    assert not write.emit(REPORT, [f"{other}:{tmp_path / other}" for other in write.RENDERERS])
    assert sorted(os.listdir(tmp_path)) == sorted(set(write.RENDERERS) - {name})
    shown = capsys.readouterr().err
    assert f"can't write the {name} report to" in shown
    assert "DG105" in shown


def test_a_page_template_that_is_missing_is_told(tmp_path, monkeypatch, capsys):
    def missing(package):
        raise FileNotFoundError(2, "No such file or directory", "page.html.j2")

    monkeypatch.setattr("devguard.report.html.resources.files", missing)
    assert not write.emit(REPORT, [f"html:{tmp_path / 'r.html'}"])
    assert "can't write the html report" in capsys.readouterr().err


SABOTAGE = """
import devguard.report.write as writer
def fails(*arguments, **keywords):
    raise KeyError("injected")
writer.{name} = fails
"""


@pytest.mark.parametrize("broken", ["write_file", "expand", "to_stderr", "colored", "render"])
def test_a_writer_that_fails_does_not_change_what_the_program_did(broken, zygote, tmp_path):
    program(tmp_path, SABOTAGE.format(name=broken))
    ran = zygote.devguard(tmp_path, "run", "--simulate", "cuda:1", "--report", "json:r.json", "prog.py")
    assert ran.out == "result\n"
    assert "injected" in ran.err or broken == "colored"
    assert "Traceback" not in ran.err


def test_a_writer_that_fails_at_exit_does_not_change_the_status(tmp_path):
    program(tmp_path, SABOTAGE.format(name="to_stderr"))
    variables = {"DEVGUARD": "1", "DEVGUARD_OPTIONS": "simulate=cuda:1,report=json:r.json"}
    done = subprocess.run(
        [sys.executable, "prog.py"], cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "result\n", False)

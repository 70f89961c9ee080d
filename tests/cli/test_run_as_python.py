"""`devguard run` runs a program as python runs it: the same output, the same traceback, the same exit status."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import Ran, devguard, plainly

SUMMARY = "devguard: no PyTorch op ran, so there was nothing to check\n"


def script(tmp_path: Path, source: str, name: str = "prog.py") -> str:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source))
    return name


def both(tmp_path: Path, *program: str, **variables: str) -> Ran:
    """Run a program both ways, check that they differ by the report only, and return what python gave."""
    expected = plainly(tmp_path, *program, **variables)
    found = devguard(tmp_path, "run", *program, **variables)
    assert found.out == expected.out
    assert found.err == expected.err + SUMMARY
    assert found.status == expected.status
    return expected


IDENTITY = """
    import sys
    print(__name__, __file__, getattr(__spec__, 'name', None), __package__, __builtins__, __doc__, __cached__, type(__loader__).__name__)
    print(sys.argv, sys.path[0], sorted(globals()), sys.modules["__main__"].__dict__ is globals())
    if __name__ == "__main__":
        print("main")
"""


def test_the_module_is_main_with_everything_that_python_gives_it(tmp_path: Path) -> None:
    ran = both(tmp_path, script(tmp_path, IDENTITY), "--report", "-x", "--", "two words")
    assert "main" in ran.out


def test_a_script_elsewhere_finds_its_neighbours_and_keeps_the_working_directory(tmp_path: Path) -> None:
    script(tmp_path, "value = 5", "deep/below/neighbour.py")
    name = script(tmp_path, "import os, neighbour; print(neighbour.value, os.getcwd())", "deep/below/prog.py")
    assert both(tmp_path, name).out.startswith("5 ")


def test_a_link_to_a_script_finds_the_neighbours_of_its_target(tmp_path: Path) -> None:
    script(tmp_path, "value = 6", "real/neighbour.py")
    script(tmp_path, "import neighbour; print(neighbour.value, __file__)", "real/prog.py")
    (tmp_path / "link.py").symlink_to("real/prog.py")
    assert both(tmp_path, "link.py").out.startswith("6 ")


def test_a_module_runs_as_main_with_its_package(tmp_path: Path) -> None:
    script(tmp_path, "print('package', __name__)", "pkg/__init__.py")
    script(tmp_path, IDENTITY + "    from . import other\n", "pkg/prog.py")
    script(tmp_path, "print(__name__)", "pkg/other.py")
    assert "pkg.other" in both(tmp_path, "-m", "pkg.prog", "-m", "x").out


def test_a_package_runs_its_main(tmp_path: Path) -> None:
    script(tmp_path, "", "pkg/__init__.py")
    script(tmp_path, IDENTITY, "pkg/__main__.py")
    assert "pkg" in both(tmp_path, "-m", "pkg", "argument").out


def test_a_folder_and_a_zip_file_run_their_main(tmp_path: Path) -> None:
    source = "import sys; print(__name__, sys.argv, sys.path[0])"
    script(tmp_path, source, "app/__main__.py")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as file:
        file.writestr("__main__.py", source)
    both(tmp_path, "app", "x")
    both(tmp_path, "app.zip", "y")


def test_code_from_the_command_line_runs(tmp_path: Path) -> None:
    ran = both(tmp_path, "-c", "import sys; print(__name__, sys.argv, repr(sys.path[0]), sorted(globals()))", "-c", "x")
    assert "['-c', '-c', 'x'] ''" in ran.out


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)", "sys.exit(3)", "sys.exit(259)", "sys.exit(-1)"])
def test_exit_statuses_are_kept(tmp_path: Path, end: str) -> None:
    both(tmp_path, "-c", f"import sys; print('x', end=''); {end}")


@pytest.mark.parametrize("end", ["sys.exit('said')", "raise SystemExit(('a', 1))", "sys.exit(True)", "sys.exit(2.5)"])
def test_exit_texts_are_printed(tmp_path: Path, end: str) -> None:
    both(tmp_path, "-c", f"import sys; {end}")


FAILS = """
    def deep(n):
        if n:
            return deep(n - 1)
        raise ValueError("broken")

    def chained():
        try:
            deep(2)
        except ValueError as error:
            raise KeyError("outer") from error

    chained()
"""


def test_an_uncaught_exception_shows_pythons_own_traceback(tmp_path: Path) -> None:
    ran = both(tmp_path, script(tmp_path, FAILS))
    assert ran.status == 1
    assert "devguard" not in ran.err
    assert "runpy" not in ran.err


@pytest.mark.parametrize("source", ["def f(:\n", "x = '\n", "\tx\n  y\n"])
def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path, source: str) -> None:
    (tmp_path / "prog.py").write_text(source)
    assert both(tmp_path, "prog.py").status == 1


def test_an_error_in_an_imported_module_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    script(tmp_path, "1 / 0", "bad.py")
    assert "ZeroDivisionError" in both(tmp_path, script(tmp_path, "import bad")).err


def test_the_programs_own_excepthook_is_called(tmp_path: Path) -> None:
    source = "import sys; sys.excepthook = lambda kind, error, trace: print('hook', kind.__name__); raise ValueError"
    assert both(tmp_path, script(tmp_path, source)).out == "hook ValueError\n"


def test_notes_of_an_exception_are_shown(tmp_path: Path) -> None:
    name = script(tmp_path, "error = ValueError('x')\nerror.__notes__ = ['a note']\nraise error\n")
    assert "a note" in devguard(tmp_path, "run", name).err


def test_exit_handlers_and_waiting_threads_run(tmp_path: Path) -> None:
    source = """
        import atexit, threading, time
        atexit.register(print, "exit handler")
        threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
        print("script")
    """
    assert both(tmp_path, script(tmp_path, source)).out == "script\nthread\nexit handler\n"


def test_classes_of_the_script_can_be_pickled(tmp_path: Path) -> None:
    source = """
        import pickle

        class Config:
            pass

        print(type(pickle.loads(pickle.dumps(Config()))) is Config)
    """
    assert both(tmp_path, script(tmp_path, source)).out == "True\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_child_processes_find_the_script(tmp_path: Path, method: str) -> None:
    source = f"""
        import multiprocessing

        def work(n):
            return n * n

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(work, [1, 2, 3]))
    """
    assert both(tmp_path, script(tmp_path, source)).out == "[1, 4, 9]\n"


def test_a_forked_child_that_ends_like_the_parent_reports_nothing(tmp_path: Path) -> None:
    source = """
        import os
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    """
    assert devguard(tmp_path, "run", script(tmp_path, source)).err == SUMMARY


def test_output_order_and_stdin_are_untouched(tmp_path: Path) -> None:
    source = "import sys; sys.stderr.write('one\\n'); print(input()); sys.stderr.write('two\\n')"
    done = subprocess.run(
        [sys.executable, "-m", "devguard", "run", "-c", source],
        cwd=tmp_path,
        input="typed\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "typed\n"
    assert done.stderr == f"one\ntwo\n{SUMMARY}"


def test_an_interrupt_shows_the_traceback_and_the_report_and_ends_with_130(tmp_path: Path) -> None:
    name = script(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "devguard", "run", name],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell that starts the tests in the background has them ignore interrupts, and what they start too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in err
    assert err.endswith(SUMMARY)


def test_torch_is_imported_by_the_program_and_not_before(tmp_path: Path) -> None:
    assert both(tmp_path, "-c", "import sys; print('torch' in sys.modules)").out == "False\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (("-m", "no.such.module"), "no module named 'no'"),
        (("-m", ".x"), "relative module names are not supported"),
        (("-m", "sys"), "module 'sys' has no Python code to run"),
        ((".",), "can't find '__main__' in '.'"),
    ],
)
def test_nothing_to_run_costs_one_line_and_status_2(tmp_path: Path, program: tuple[str, ...], expected: str) -> None:
    ran = devguard(tmp_path, "run", *program)
    assert (ran.status, ran.out, ran.err) == (2, "", f"devguard: error: {expected}\n")


def test_a_missing_import_inside_a_module_is_the_programs_own_error(tmp_path: Path) -> None:
    script(tmp_path, "import missing_one", "pkg/__init__.py")
    script(tmp_path, "", "pkg/prog.py")
    ran = devguard(tmp_path, "run", "-m", "pkg.prog")
    assert ran.status == 1
    assert "No module named 'missing_one'" in ran.err


@pytest.mark.parametrize("source", ["print('x')", "1 / 0", "import sys; sys.exit('bye')"])
def test_a_closed_stderr_changes_nothing_else(tmp_path: Path, source: str) -> None:
    command = [sys.executable, "-m", "devguard", "run", "-c", source]
    done = subprocess.run(["sh", "-c", '"$@" 2>&-', "sh", *command], cwd=tmp_path, capture_output=True, timeout=60)
    plain = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, b"")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m devguard explain DG401 | true"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_a_place_for_temporary_files_the_program_runs(tmp_path: Path) -> None:
    source = "import tempfile\ndef none(*a, **k): raise OSError(28, 'full')\n"
    (tmp_path / "sitecustomize.py").write_text(source + "tempfile.mkdtemp = none\n")
    ran = devguard(tmp_path, "run", "-c", "print('ran')", PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
    assert (ran.status, ran.out, ran.err) == (0, "ran\n", SUMMARY)

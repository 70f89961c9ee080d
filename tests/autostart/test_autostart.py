"""DEVGUARD=1 around whole programs, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MISMATCH = """
try:
    torch.ones(3, device="cuda") + torch.ones(3)
except RuntimeError:
    pass
"""


@dataclass
class Done:
    """A program that has ended."""

    status: int
    out: str
    err: str
    folder: Path

    def report(self, name: str = "r.json") -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / name).read_text())
        return content

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.suffix == ".json")


Runner = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    """`run(source, DEVGUARD="1", ...) -> Done`: the source as a script in a folder of its own."""

    def runner(source: str, **environment: str) -> Done:
        (tmp_path / "program.py").write_text(textwrap.dedent(source))
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("DEVGUARD", "RANK", "WORLD"))}
        command = [sys.executable, "program.py"]
        env = {**clean, "OMP_NUM_THREADS": "1", **environment}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        return Done(done.returncode, done.stdout, done.stderr, tmp_path)

    return runner


def on(options: str = "report=json:r.json") -> dict[str, str]:
    return {"DEVGUARD": "1", "DEVGUARD_OPTIONS": options}


def test_unset_imports_only_the_entry_point(run: Runner) -> None:
    done = run("import sys, torch\nprint(sorted(name for name in sys.modules if name.startswith('devguard')))")
    assert done.out == "['devguard', 'devguard._version', 'devguard.autostart']\n"
    assert done.err == ""


def test_on_reports_at_exit_and_leaves_the_output_alone(run: Runner) -> None:
    done = run("import torch\nprint(torch.ones(2).add(1).tolist())", DEVGUARD="1")
    assert (done.status, done.out) == (0, "[2.0, 2.0]\n")
    assert "devguard: nothing found" in done.err


def test_report_begins_only_when_torch_is_imported(run: Runner) -> None:
    done = run(
        "import torch\nprint(torch.cuda.device_count())\ntorch.ones(2).add(1)",
        **on("simulate=cuda:2,report=json:r.json"),
    )
    assert done.out == "2\n", done.err
    report = done.report()
    assert (report["ops"], report["simulated"], report["devices"]) == (2, True, ["cuda:0", "cuda:1"])


def test_exception_is_in_the_report_and_stays_what_it_is(run: Runner) -> None:
    done = run("import torch\ntorch.ones(2)\nraise KeyError('lost')", **on())
    assert done.status == 1
    assert "KeyError: 'lost'" in done.err
    assert done.report()["exception"] == {"type": "KeyError", "message": "'lost'"}


def test_exception_is_seen_behind_a_hook_of_the_programs_own(run: Runner) -> None:
    source = "import sys, torch\nsys.excepthook = lambda *error: print('mine')\nraise KeyError('lost')"
    done = run(source, **on())
    assert done.out == "mine\n"
    assert done.report()["exception"]["type"] == "KeyError"


def test_sys_exit_keeps_its_status_and_reports(run: Runner) -> None:
    done = run("import sys, torch\nsys.exit(3)", **on("report=json:r.json,fail_on=note"))
    assert done.status == 3
    assert done.report()["exception"] is None


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        (
            {"DEVGUARD": "1", "DEVGUARD_OPTIONS": "evry=2"},
            "unknown option 'evry', did you mean every?; the program runs unwatched",
        ),
        ({"DEVGUARD": "maybe"}, "DEVGUARD='maybe' is neither on (1) nor off (0): the program runs unwatched"),
    ],
)
def test_wrong_request_costs_one_line_and_the_program_runs(run: Runner, environment: dict[str, str], line: str) -> None:
    done = run("import torch\nprint('ran')", **environment)
    assert (done.status, done.out) == (0, "ran\n")
    assert done.err.endswith(line + "\n")
    assert done.err.count("\n") == 1


def test_zero_switches_off_the_watches_in_the_program_too(run: Runner) -> None:
    source = "import torch, devguard\nwith devguard.watch() as watch:\n    torch.ones(2)\nprint(watch.report.ops)"
    done = run(source, DEVGUARD="0", DEVGUARD_OPTIONS="report=json:r.json")
    assert (done.out, done.err, done.files()) == ("0\n", "", [])


def test_findings_change_the_status_only_when_asked(run: Runner) -> None:
    source = "import torch\n" + MISMATCH
    assert run(source, **on("simulate=cuda:1,report=json:r.json")).status == 0
    assert run(source, **on("simulate=cuda:1,report=json:r.json,fail_on=never")).status == 0
    assert run(source, **on("simulate=cuda:1,report=json:r.json,fail_on=error")).status == 1


def test_changed_status_loses_nothing_that_a_normal_exit_does(run: Runner) -> None:
    source = """
    import atexit
    atexit.register(print, "first registered", flush=True)
    import torch
    atexit.register(print, "last registered")
    file = open("left_open.txt", "w")
    file.write("content")
    """
    done = run(textwrap.dedent(source) + MISMATCH, **on("simulate=cuda:1,report=json:r.json,fail_on=error"))
    assert done.status == 1
    assert done.out == "last registered\nfirst registered\n"
    assert (done.folder / "left_open.txt").read_text() == "content"


def test_forked_child_does_not_report(run: Runner) -> None:
    source = """
    import os, sys, torch
    if os.fork() == 0:
        sys.exit()
    os.wait()
    torch.ones(2)
    """
    done = run(source, **on("report=json:r-%p.json"))
    assert len(done.files()) == 1
    assert done.report(done.files()[0])["ops"] == 1


def test_workers_that_load_data_do_not_report(run: Runner) -> None:
    source = """
    import torch
    from torch.utils.data import DataLoader
    if __name__ == "__main__":
        for context in ("fork", "spawn"):
            for batch in DataLoader(torch.arange(4), batch_size=2, num_workers=1, multiprocessing_context=context):
                pass
    """
    done = run(source, **on())
    assert done.status == 0, done.err
    assert done.files() == ["r.json"]


def test_program_started_by_the_program_gets_a_file_of_its_own(run: Runner) -> None:
    source = """
    import subprocess, sys, torch
    if len(sys.argv) == 1:
        subprocess.run([sys.executable, __file__, "child"], check=True)
    else:
        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight])
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
    """
    done = run(source, **on())
    assert len(done.files()) == 2
    assert done.report()["steps"] == 0
    (other,) = set(done.files()) - {"r.json"}
    assert other.startswith("r.pid")
    assert done.report(other)["steps"] == 3


def test_ranks_write_files_of_their_own(run: Runner) -> None:
    for rank in "01":
        run("import torch\ntorch.ones(2)", **on(), RANK=rank, WORLD_SIZE="2")
    done = run("import torch\ntorch.ones(2)", **on("report=json:named-%r.json"), RANK="1", WORLD_SIZE="2")
    assert done.files() == ["named-1.json", "r.rank0.json", "r.rank1.json"]
    assert done.report("r.rank1.json")["rank"] == 1

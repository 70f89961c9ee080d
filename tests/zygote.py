"""Runs many devguard commands fast: one process imports torch once and is forked for each command.

Each command still has a process of its own, with its own working directory, environment and output files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Ran:
    """What a command came to."""

    status: int
    out: str
    err: str


class Zygote:
    """A context manager; `devguard(folder, "run", ...)` runs one command."""

    def __enter__(self) -> Zygote:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DEVGUARD")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.zygote"],
            cwd=ROOT,
            env={**kept, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe(self.process.stdin).close()
        self.process.wait(timeout=60)
        self._pipe(self.process.stdout).close()

    def devguard(self, folder: Path, *argv: str, **variables: str) -> Ran:
        """One devguard command in `folder`."""
        order = {"argv": argv, "folder": str(folder), "variables": variables}
        self._pipe(self.process.stdin).write(json.dumps(order) + "\n")
        self._pipe(self.process.stdin).flush()
        status = int(self._pipe(self.process.stdout).readline())
        out, err = (folder / name for name in (".out", ".err"))
        return Ran(status, out.read_text(), err.read_text())

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def _serve() -> None:
    import torch

    import devguard
    import devguard.cli

    with devguard.simulate("cuda:1"), devguard.watch():  # what they import at their first use is shared too
        torch.ones(2, device="cuda").sum()

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _child(order["argv"], order["folder"], order["variables"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _child(argv: list[str], folder: str, variables: Mapping[str, str]) -> Any:
    import atexit
    import traceback

    status = 70
    try:
        os.chdir(folder)
        os.environ.update(variables)
        for number, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        from devguard.cli import main

        status = main(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()

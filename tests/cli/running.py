"""Runs a program by python and by `devguard run`, each in a process of its own, and keeps what came out."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


def run(command: list[str], cwd: Path, stdin: str = "", **variables: str) -> Ran:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEVGUARD")}
    env = {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]), **variables}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=env, input=stdin, capture_output=True, text=True, timeout=120
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def plainly(cwd: Path, *program: str, **variables: str) -> Ran:
    """As python runs it."""
    return run([*program], cwd, **variables)


def devguard(cwd: Path, *command: str, **variables: str) -> Ran:
    """One devguard command."""
    return run(["-m", "devguard", *command], cwd, **variables)

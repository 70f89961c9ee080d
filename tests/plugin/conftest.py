"""Running pytest in a process of its own, and reading what became of each test."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class Run:
    """A finished pytest run: each test's outcome and the text that goes with it."""

    status: int
    output: str
    outcomes: dict[str, str]
    texts: dict[str, str]
    folder: Path


RunPytest = Callable[..., Run]


@pytest.fixture(scope="session")
def run_pytest(tmp_path_factory: pytest.TempPathFactory) -> RunPytest:
    """`run_pytest({"test_a.py": source, ...}, *arguments, **environment) -> Run`."""

    def run(files: dict[str, str], *arguments: str, **environment: str) -> Run:
        folder = tmp_path_factory.mktemp("suite")
        for name, source in {"pytest.ini": "[pytest]\n", **files}.items():
            (folder / name).write_text(textwrap.dedent(source))
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("DEVGUARD", "PYTEST_"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=junit.xml", *arguments],
            cwd=folder,
            env={**clean, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        outcomes, texts = {}, {}
        if (folder / "junit.xml").exists():
            for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
                bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
                outcomes[case.get("name", "")] = bad[0].tag if bad else "passed"
                texts[case.get("name", "")] = "\n".join(
                    (child.get("message") or "") + (child.text or "") for child in case
                )
        return Run(done.returncode, done.stdout + done.stderr, outcomes, texts, folder)

    return run


PROGRAM = '''
import pytest
import torch


def mismatch():
    """An error that the test catches itself."""
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device="cuda") + torch.ones(3)


def train(steps=8):
    """A loop that reads its loss on every step."""
    model = torch.nn.Linear(4, 1).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    for _ in range(steps):
        loss = model(torch.ones(2, 4, device="cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
'''

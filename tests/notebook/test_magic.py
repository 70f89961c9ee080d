"""The cell magic, on a shell that does what the magic needs of IPython's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from devguard.notebook import Magic, load_ipython_extension


class Shell:
    """Runs cells in one namespace, and shows errors instead of raising them."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.magics: dict[str, Callable[[str, str], None]] = {}

    def register_magic_function(self, function: Callable[[str, str], None], kind: str, name: str) -> None:
        self.magics[f"{kind} {name}"] = function

    def run_cell(self, cell: str) -> SimpleNamespace:
        try:
            exec(compile(cell, "<cell>", "exec"), self.names)
        except Exception as error:
            return SimpleNamespace(error_in_exec=error)
        return SimpleNamespace(error_in_exec=None)


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell()
    load_ipython_extension(shell)
    yield shell
    magic = shell.magics["cell devguard"].__self__  # type: ignore[attr-defined]
    assert isinstance(magic, Magic)
    if magic.simulation is not None:
        magic.simulation.stop()


def test_cell_runs_and_its_report_is_printed(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.magics["cell devguard"]("", "import torch\nx = torch.ones(2) + 1")
    assert shell.names["x"].tolist() == [2, 2]
    assert "devguard:" in capsys.readouterr().out


def test_simulation_stays_for_later_cells(shell: Shell) -> None:
    shell.magics["cell devguard"]("simulate=cuda:2", "import torch\nx = torch.ones(2, device='cuda:1')")
    shell.magics["cell devguard"]("", "y = x + 1\nplace = str(y.device)")
    assert shell.names["place"] == "cuda:1"


def test_error_of_the_cell_is_in_the_report(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.magics["cell devguard"]("", "import torch\ntorch.ones(2)\nraise KeyError('lost')")
    assert "KeyError" in capsys.readouterr().out


def test_wrong_option_costs_one_line_and_runs_nothing(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.magics["cell devguard"]("evry=2", "x = 1")
    assert "unknown option 'evry', did you mean every?" in capsys.readouterr().err
    assert "x" not in shell.names

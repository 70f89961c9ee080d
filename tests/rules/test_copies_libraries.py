"""Copies that an installed library makes are told in the words of the library's own line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import devguard
from devguard.rules.finding import Finding

LIBRARY = """
import torch


def by_type(x):
    return x + torch.ones(3).type_as(x)


def into_host(x):
    kept = torch.zeros(2, 3)
    kept[0] = x
    return kept


def only_to_be_moved(x):
    return x + torch.full((3,), 2.0).to(x.device)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "library_that_copies.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "library_that_copies", raising=False)
    return importlib.import_module("library_that_copies")


def found(function: Any) -> Finding:
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        x = torch.ones(3, device="cuda")
        for _ in range(6):
            function(x)
            watch.step()
    (finding,) = watch.report.findings
    return finding


def test_the_method_that_copies_is_the_library_s(library: Any) -> None:
    finding = found(library.by_type)
    assert (finding.rule, finding.message.startswith(".type_as() copies torch.ones(3)")) == ("DG301", True)


def test_an_assignment_to_a_part_is_the_library_s(library: Any) -> None:
    finding = found(library.into_host)
    assert (finding.rule, finding.message.startswith("an assignment to a part")) == ("DG301", True)


def test_made_only_to_be_moved_by_the_library(library: Any) -> None:
    assert found(library.only_to_be_moved).rule == "DG308"

"""Which line is to be changed where an installed library has a part in it: the library's own mistake, or the user's."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import devguard
from devguard.rules.finding import Finding

LIBRARY = """
import torch
from torch import nn


def sequence_mask(lengths, size):
    steps = torch.arange(size)
    return steps[None] < lengths[:, None]


def tokenize(texts):
    return {"input_ids": torch.zeros(len(texts), 4, dtype=torch.long)}


class Wavelet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.kernel = torch.ones(3)

    def forward(self, x):
        return x * self.kernel * self.gain


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 3)

    def forward(self, input_ids):
        return self.embed(input_ids)


class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, value):
        self.total += value
        return self.total
"""


@pytest.fixture
def library(tmp_path: Path) -> Iterator[str]:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    name = f"lib_{tmp_path.name.replace('-', '_')}"
    (packages / f"{name}.py").write_text(LIBRARY)
    sys.path.insert(0, str(packages))
    yield name
    sys.path.remove(str(packages))
    sys.modules.pop(name, None)


def error_of(folder: Path, source: str) -> Finding:
    """The error that is found in a program."""
    path = folder / "program.py"
    path.write_text("import torch\n" + textwrap.dedent(source))
    with devguard.simulate("cuda:1"), devguard.watch() as watch:
        with pytest.raises(RuntimeError) as caught:
            exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        watch.note_exception(caught.value)
        errors = [f for f in watch.report.findings if f.level == "error"]
    assert len(errors) == 1, [(f.rule, f.message) for f in errors]
    return errors[0]


def test_librarys_own_factory_is_its_own_mistake(library: str, tmp_path: Path) -> None:
    found = error_of(tmp_path, f"import {library} as lib\nlib.sequence_mask(torch.tensor([2], device='cuda'), 3)\n")
    assert found.rule == "DG108"
    assert found.cause is not None
    assert found.cause.text == "steps = torch.arange(size)"
    assert found.where is not None
    assert found.where.text.startswith("return steps")
    assert found.called_from is not None
    assert found.called_from.file.endswith("program.py")


def test_plain_attribute_of_a_librarys_module_is_its_own_mistake(library: str, tmp_path: Path) -> None:
    found = error_of(tmp_path, f"import {library} as lib\nm = lib.Wavelet().cuda()\nm(torch.ones(3, device='cuda'))\n")
    assert found.rule == "DG103"
    assert found.cause is not None
    assert found.cause.text == "self.kernel = torch.ones(3)"


def test_batch_that_the_library_made_is_the_users_to_move(library: str, tmp_path: Path) -> None:
    source = f"""
    import {library} as lib
    model = lib.Encoder().cuda()
    batch = lib.tokenize(["a", "b"])
    model(**batch)
    """
    found = error_of(tmp_path, source)
    assert found.rule == "DG101"
    assert found.cause is not None
    assert found.cause.text == 'batch = lib.tokenize(["a", "b"])'
    assert found.tensor is not None
    assert found.tensor.name == "batch['input_ids']"


def test_metric_that_was_never_moved_is_the_users_to_move(library: str, tmp_path: Path) -> None:
    found = error_of(
        tmp_path, f"import {library} as lib\nmetric = lib.Metric()\nmetric(torch.ones(3, device='cuda'))\n"
    )
    assert found.rule == "DG101"
    assert found.cause is not None
    assert found.cause.text == "metric = lib.Metric()"

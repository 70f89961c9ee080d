"""The data about copies: complete, true of the installed PyTorch, and each entry with its source."""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch

from devguard.knowledge.copies import callers, makers, mixed_ops, purpose_of_code

DATA: dict[str, Any] = json.loads((resources.files("devguard.knowledge") / "copies.json").read_text())


@pytest.mark.parametrize("row", [*DATA["mixed_ops"], *DATA["makers"]], ids=lambda row: row.get("op") or row["entry"])
def test_every_entry_says_how_it_is_known(row: dict[str, str]) -> None:
    assert row["certainty"] in ("sure", "likely")
    assert row["source"]
    assert row["rule"] in ("DG301", "DG302")


@pytest.mark.parametrize("rule", mixed_ops().values(), ids=lambda rule: rule.op)
def test_ops_and_their_arguments_exist(rule: Any) -> None:
    packet = getattr(torch.ops.aten, rule.op.removeprefix("aten::"))
    names = {a.name for overload in packet.overloads() for a in getattr(packet, overload)._schema.arguments}
    assert names >= set(rule.moves)
    assert rule.to == "others" or rule.to in names


@pytest.mark.parametrize("entry", makers())
def test_makers_exist(entry: str) -> None:
    owner, name = entry.split(".")
    assert hasattr(torch.Tensor if owner == "Tensor" else torch, name)


@pytest.mark.parametrize("caller", [c for c in callers() if c.file.startswith("torch/")], ids=lambda c: c.file)
def test_code_of_pytorch_that_copies_on_purpose_exists(caller: Any) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent.parent / caller.file
    assert path.exists()
    if path.is_file():
        text = path.read_text()
        # Not every version has every name: one that has none of them would be an entry that means nothing.
        assert caller.functions & {"*", "<lambda>"} or any(f"def {name}(" in text for name in caller.functions)


def test_a_modules_move_is_known_by_its_code() -> None:
    assert purpose_of_code(torch.nn.Module._apply.__code__) == "set-up"
    assert purpose_of_code(torch.nn.Module.__call__.__code__) == ""
    assert purpose_of_code(test_makers_exist.__code__) == ""

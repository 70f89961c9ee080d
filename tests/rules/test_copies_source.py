"""What the copy rules read from the source: made by factories, and what comes back to the device."""

from __future__ import annotations

import dis
import linecache
import textwrap
from pathlib import Path
from types import CodeType

import pytest

from devguard.observe.source import node_at, text_of
from devguard.rules.copies_source import comes_back, is_assignment_to_part, made_by_factory


def function(folder: Path, body: str) -> CodeType:
    """The code of a function `f(x, n, device)` with this body."""
    script = folder / "given.py"
    script.write_text(
        "import math\nimport numpy as np\nimport torch\n\n\ndef f(x, n, device):\n" + textwrap.indent(body, "    ")
    )
    linecache.checkcache(str(script))
    names: dict[str, object] = {}
    exec(compile(script.read_text(), str(script), "exec"), names)
    return names["f"].__code__  # type: ignore[attr-defined,no-any-return]


def place(code: CodeType, text: str) -> tuple[CodeType, int]:
    """The instruction whose expression reads `text`."""
    for instruction in dis.get_instructions(code):
        node = node_at(code, instruction.offset)
        if node is not None and text_of(node) == text:
            return code, instruction.offset
    raise AssertionError(text)


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(n)",
        "torch.full((n, n), 1.0).triu(1)",
        "torch.arange(n).float()",
        "torch.arange(n)[None, :]",
        "torch.randn(x.shape)",
        "torch.ones(n, n).tril() == 0",
        "-torch.ones(3) * 2.0",
        "torch.exp(torch.arange(0, 8, 2).float() * (-math.log(1e4) / 8))",
        "torch.stack([torch.zeros(3), torch.ones(3)])",
    ],
)
def test_made_of_numbers_alone(made: str, tmp_path: Path) -> None:
    code = function(tmp_path, f"m = {made}\nm = m.to(device)\nreturn m")
    assert made_by_factory(place(code, "m.to(device)"))


def test_filled_part_by_part(tmp_path: Path) -> None:
    code = function(
        tmp_path,
        "d = x.shape[1]\npe = torch.zeros(4, d)\npos = torch.arange(4.0)\npe[:, 0] = torch.sin(pos * d)\nreturn pe.to(device)",
    )
    assert made_by_factory(place(code, "pe.to(device)"))


@pytest.mark.parametrize(
    "made",
    [
        "x",
        "x * 2",
        "torch.tensor([n, 1])",
        "torch.from_numpy(np.ones(3))",
        "torch.arange(n) < x",
        "torch.stack([x, torch.zeros(3)])",
        "torch.zeros(3, device=device)",
        "n.mask()",
        "unknown",
    ],
)
def test_made_of_given_data(made: str, tmp_path: Path) -> None:
    code = function(tmp_path, f"m = {made}\nm = m.to(device)\nreturn m")
    assert not made_by_factory(place(code, "m.to(device)"))


def test_a_buffer_that_is_filled_with_data_is_data(tmp_path: Path) -> None:
    code = function(tmp_path, "m = torch.zeros(3)\nm[0] = x\nreturn m.to(device)")
    assert not made_by_factory(place(code, "m.to(device)"))


@pytest.mark.parametrize(
    ("body", "alone"),
    [
        ("m = torch.ones(n)\nm[0] = 2\ny = m.to(device)\nreturn y, m.shape", True),
        ("m = torch.ones(n)\nm = m.to(device)\nreturn m * 2", True),
        ("m = torch.ones(n)\ny = m.to(device)\nreturn y, m.sum()", False),
        ("m = torch.ones(n)\nprint(m)\nm = m.to(device)\nreturn m", False),
    ],
)
def test_made_only_to_be_moved(body: str, alone: bool, tmp_path: Path) -> None:
    code = function(tmp_path, body)
    assert made_by_factory(place(code, "m.to(device)")) is alone


def returns(code: CodeType, out: str, back: str) -> bool:
    return comes_back((place(code, out),), (place(code, back),))


@pytest.mark.parametrize(
    ("body", "back"),
    [
        ("a = x.cpu()\nreturn a.to(device)", "a.to(device)"),
        (
            "a = x.cpu().numpy()\nb = np.argsort(a)\nreturn torch.from_numpy(b).to(device)",
            "torch.from_numpy(b).to(device)",
        ),
        ("a = x.cpu()\na = sorted(a)\nreturn torch.tensor(a, device=device)", "torch.tensor(a, device=device)"),
        ("k = []\nfor v in x.cpu():\n    k.append(v)\nreturn torch.stack(k).to(device)", "torch.stack(k).to(device)"),
        ("a, b = torch.sort(x.cpu())\nreturn b.to(device)", "b.to(device)"),
        ("d = {}\nd['a'] = x.cpu()\nreturn d['a'].to(device)", "d['a'].to(device)"),
        ("return x.cpu().to(device)", "x.cpu().to(device)"),
    ],
)
def test_data_come_back(body: str, back: str, tmp_path: Path) -> None:
    assert returns(function(tmp_path, body), "x.cpu()", back)


@pytest.mark.parametrize(
    ("body", "back"),
    [
        ("a = x.cpu()\nreturn n.to(device)", "n.to(device)"),
        ("a = x.cpu()\nm = torch.zeros(len(a))\nreturn m.to(device)", "m.to(device)"),
        ("a = x.cpu()\nm = torch.zeros(a.shape)\nreturn m.to(device)", "m.to(device)"),
        ("k = int(x.cpu())\nm = torch.zeros(k)\nreturn m.to(device)", "m.to(device)"),
        ("s = n.env.step(x.cpu())\nreturn s.to(device)", "s.to(device)"),
        ("print(x.cpu())\nreturn n.to(device)", "n.to(device)"),
    ],
)
def test_data_do_not_come_back(body: str, back: str, tmp_path: Path) -> None:
    assert not returns(function(tmp_path, body), "x.cpu()", back)


def test_no_shared_function_no_way_back(tmp_path: Path) -> None:
    one = function(tmp_path, "a = x.cpu()\nreturn a.to(device)")
    (tmp_path / "other").mkdir()
    other = function(tmp_path / "other", "a = x.cpu()\nreturn a.to(device)")
    assert not comes_back((place(one, "x.cpu()"),), (place(other, "a.to(device)"),))


def test_assignment_to_a_part(tmp_path: Path) -> None:
    code = function(tmp_path, "x[0] = n.a\nx.copy_(n.b)")
    assert is_assignment_to_part(place(code, "n.a"))
    assert not is_assignment_to_part(place(code, "x.copy_(n.b)"))

"""How an expression reads a tensor, told from the source at the instruction that reads."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from devguard.observe import source, syncs_expression
from devguard.observe.syncs_expression import Reading, reading_at, value_of


class Probe:
    """Stands for a tensor: notes the instruction of everybody who reads it."""

    def __init__(self) -> None:
        self.sites: list[tuple[CodeType, int]] = []

    def note(self) -> int:
        reader = sys._getframe(2)
        self.sites.append((reader.f_code, reader.f_lasti))
        return 1

    def __bool__(self) -> bool:
        return bool(self.note())

    def __int__(self) -> int:
        return self.note()

    def __float__(self) -> float:
        return float(self.note())

    def __index__(self) -> int:
        return self.note()

    def __format__(self, spec: str) -> str:
        return str(self.note())

    def item(self) -> int:
        return self.note()

    def __gt__(self, other: Any) -> Probe:
        return self

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = object.__hash__

    def sum(self) -> Probe:
        return self


def reading_of(lines: str, folder: Path, columns: bool = True) -> Reading:
    """What is said of the first read that a function with these lines makes of `v`."""
    path = folder / "lines.py"
    path.write_text("import math\n\n\ndef read(v, w, xs):\n" + "".join(f"    {line}\n" for line in lines.split("\n")))
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    probe = Probe()
    names["read"](probe, probe, [1, 2, 3])
    if columns:
        return reading_at(*probe.sites[0])
    with (
        mock.patch.object(source, "node_at", return_value=None),
        mock.patch.object(syncs_expression, "_node_in_file", return_value=None),
    ):
        return reading_at(*probe.sites[0])


FORMS = [
    ("v.item()", "item", "item", "v"),
    ("x = v.sum().item() + 1", "item", "item", "v.sum()"),
    ("float(v)", "cast", "float", "v"),
    ("x = int(v.sum())", "cast", "int", "v.sum()"),
    ("math.sqrt(v)", "cast", "math.sqrt", "v"),
    ("if v:\n    pass", "branch", "", "v"),
    ("if not v:\n    pass", "branch", "", "v"),
    ("if v > 1:\n    pass", "branch", "", "v > 1"),
    ("if v.sum() or w:\n    pass", "branch", "", "v.sum()"),
    ("if v: pass", "branch", "", "v"),
    ("while v:\n    break", "branch", "", "v"),
    ("assert v.sum()", "branch", "", "v.sum()"),
    ("x = 1 if v > 2 else 3", "branch", "", "v > 2"),
    ("x = [y for y in xs if v > y]", "branch", "", "v > y"),
    ("x = not v", "branch", "", "v"),
    ("max(v, w)", "builtin", "max", "v"),
    ("range(v)", "range", "range", "v"),
    ("for i in range(v):\n    break", "range", "range", "v"),
    ("xs[v]", "index", "", "v"),
    ("xs[:v]", "index", "", "v"),
    ("xs[v.sum()] = 2", "index", "", "v.sum()"),
    ("f'{v:.2f}'", "format", "", "v"),
    ("'%d' % v", "format", "", "v"),
    ("v in xs", "contains", "", "xs"),
    ("xs.insert(v, 5)", "call", "insert", "v"),
    ("bytes(v)", "call", "bytes", "v"),
]


@pytest.mark.parametrize(("lines", "how", "callee", "subject"), FORMS, ids=[form[0] for form in FORMS])
def test_the_form_of_a_read_is_told(lines: str, how: str, callee: str, subject: str, tmp_path: Path) -> None:
    reading = reading_of(lines, tmp_path)
    assert (reading.how, reading.callee) == (how, callee)
    assert reading.text(reading.subjects[0]) == subject


@pytest.mark.parametrize(
    ("lines", "how", "subject"),
    [("x = v.item()", "item", "v"), ("if v > 1:\n    pass", "branch", "v > 1"), ("x = float(v)", "cast", "v"),
     ("for i in range(v):\n    break", "range", "v"), ("x = bytes(v)", "call", "v")],
)  # fmt: skip
def test_without_columns_the_statement_tells(lines: str, how: str, subject: str, tmp_path: Path) -> None:
    reading = reading_of(lines, tmp_path, columns=False)
    assert reading.how == how
    assert reading.text(reading.subjects[0]) == subject


def test_without_source_a_read_is_a_read() -> None:
    names: dict[str, Any] = {}
    exec(compile("def read(v):\n    return v.item()\n", "<nowhere>", "exec"), names)
    probe = Probe()
    names["read"](probe)
    assert reading_at(*probe.sites[0]).how == "read"


def test_text_is_that_of_the_source_and_not_of_the_parser(tmp_path: Path) -> None:
    reading = reading_of("if v.sum() > 1e9:\n    pass", tmp_path)
    assert reading.text(reading.subjects[0]) == "v.sum() > 1e9"


def test_keys_are_quoted_as_in_every_other_name(tmp_path: Path) -> None:
    reading = reading_of('x = {"é": v, "b": {"c": v}}; y = x["b"]["c"].sum().item() + x["é"].item()', tmp_path)
    assert reading.text(reading.subjects[0]) == "x['b']['c'].sum()"


class Loud(SimpleNamespace):
    """An object whose property must not run."""

    @property
    def secret(self) -> Any:
        raise AssertionError("a property ran")


@pytest.mark.parametrize(
    ("text", "found"),
    [("a", 1), ("box.x", 2), ("d['k']", 3), ("seq[-1]", 5), ("seq[9]", None), ("loud.secret", None), ("make()", None),
     ("net.weight", 7), ("missing", None)],
)  # fmt: skip
def test_only_plain_paths_are_followed(text: str, found: Any) -> None:
    net = torch.nn.Module()
    net.__dict__["_parameters"] = {"weight": 7}
    known = {"a": 1, "box": SimpleNamespace(x=2), "d": {"k": 3}, "seq": [4, 5], "loud": Loud(), "net": net}
    node = ast.parse(text, mode="eval").body
    assert value_of(node, known.get) == found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no columns")
@pytest.mark.parametrize("lines", ["with v.open(w):\n    x = abs(-1)", "with v.open(w): x = abs(-1)"])
def test_a_with_statement_enters_what_its_item_made(lines: str, tmp_path: Path) -> None:
    class Opened(Probe):
        def open(self, _: Any) -> Opened:
            return self

        def __enter__(self) -> None:
            self.sites.append((sys._getframe(1).f_code, sys._getframe(1).f_lasti))

        def __exit__(self, *_: object) -> None:
            pass

    opened = Opened()
    with mock.patch(f"{__name__}.Probe", return_value=opened):
        assert reading_of(lines, tmp_path).callee == "open"

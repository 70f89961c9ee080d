"""What becomes of the result of a move: read from the instruction after the call and the statement around it."""

from __future__ import annotations

import linecache
import sys
import textwrap
from pathlib import Path
from types import CodeType

import pytest

from devguard.observe.discarded import _Verdict, verdict_at


class Thing:
    """Stands in for a tensor: every `to` notes the frame that called it."""

    def __init__(self) -> None:
        self.calls: list[tuple[CodeType, int]] = []

    def to(self, *args: object) -> Thing:
        frame = sys._getframe(1)
        self.calls.append((frame.f_code, frame.f_lasti))
        return self

    cuda = to

    def float(self) -> Thing:
        return self

    def sum(self) -> Thing:
        return self


def verdicts(folder: Path, text: str) -> list[_Verdict]:
    """The verdict of every move in a program about the thing `x`."""
    script = folder / "moves.py"
    script.write_text(textwrap.dedent(text))
    linecache.checkcache(str(script))
    thing = Thing()
    exec(compile(script.read_text(), str(script), "exec"), {"x": thing, "pair": [thing, thing], "d": {"x": thing}})
    return [verdict_at(*call) for call in dict.fromkeys(thing.calls)]


@pytest.mark.parametrize(
    "text",
    [
        "x.to(0)",
        "x.cuda()",
        'd["x"].to(0)',
        "x.to(0).float()",
        "x.float().to(0)",
        "[t.to(0) for t in pair]",
        "{k: t.to(0) for k, t in d.items()}",
        "x.to(0) if pair else None",
        "x.to(0), 1",
        "for t in pair: t.to(0)",
        "def f(t):\n    t.to(0)\nf(x)",
        "x.to(\n    0,\n)",
    ],
)
def test_thrown_away(text: str, tmp_path: Path) -> None:
    found = verdicts(tmp_path, text)
    assert [verdict.how for verdict in found] == ["statement"]
    assert not found[0].temporary


@pytest.mark.parametrize(
    "text",
    [
        "y = x.to(0)",
        "x = x.to(0)",
        'd["x"] = d["x"].to(0)',
        "print(x.to(0) is None)",
        "y = [t.to(0) for t in pair]",
        "x.to(0).sum()",
        "f = lambda t: t.to(0)\nf(x)",
        "def f(t):\n    return t.to(0)\nf(x)",
        "for t in pair:\n    t = t.to(0)\n    t.sum()",
        "kept = []\nfor t in pair:\n    t = t.to(0)\n    kept.append(t)",
        "for t in pair:\n    t = t.to(0)\nt.sum()",
        "for t in pair:\n    if t:\n        t = t.to(0)\n    t.sum()",
        "y = (x := x.to(0))",
        "x.sum().to",
        "assert x.to(0)",
        "if x.to(0): pass",
        "with open(__file__ if 0 else '/dev/null') as f: y = x.to(0)",
        "list(map(lambda t: t.to(0), pair))",
    ],
)
def test_taken(text: str, tmp_path: Path) -> None:
    assert all(verdict.how == "" for verdict in verdicts(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "for t in pair:\n    t = t.to(0)",
        "for k, t in d.items():\n    t = t.to(0)",
        "for t in pair:\n    if t:\n        t = t.cuda()",
        "def f(things):\n    for t in things:\n        t = t.to(0)\n    return things\nf(pair)",
        "for t in pair:\n    t = t.to(0)\nfor t in pair:\n    t.sum()",
    ],
)
def test_only_the_loop_variable_is_rebound(text: str, tmp_path: Path) -> None:
    assert [verdict.how for verdict in verdicts(tmp_path, text)] == ["loop variable"]


def test_a_temporary_is_told_apart(tmp_path: Path) -> None:
    (found,) = verdicts(tmp_path, "def make():\n    return x\nmake().to(0)")
    assert found == ("statement", True)


def test_without_source_the_instruction_decides() -> None:
    thing = Thing()
    exec(compile("x.to(0)\ny = x.to(1)", "<nowhere>", "exec"), {"x": thing})
    assert [verdict_at(*call).how for call in thing.calls] == ["statement", ""]

"""Where PyTorch copies between devices, as data: `copies.json`, with PyTorch's version, a source and a certainty for each entry."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from types import CodeType
from typing import Any


@dataclass(frozen=True, slots=True)
class MixedOp:
    """An op that accepts operands on several devices and copies some: the arguments named in `moves` go where `to` is.

    `to` is an argument's name, or "others": to whatever device the other operands are on. `only_0dim` says that only
    tensors without dimensions are accepted from another device."""

    op: str
    moves: tuple[str, ...]
    to: str
    only_0dim: bool
    blocking: bool
    certainty: str
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Code of PyTorch or another library whose copies have a purpose of their own; "*" stands for every function of the file."""

    file: str
    functions: frozenset[str]
    purpose: str
    what: str


@functools.cache
def _data() -> dict[str, Any]:
    text = (resources.files("devguard.knowledge") / "copies.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@functools.cache
def mixed_ops() -> dict[str, MixedOp]:
    """Schema name -> the op that copies operands unasked."""
    return {
        row["op"]: MixedOp(
            row["op"],
            tuple(row["moves"]),
            row["to"],
            row.get("only_0dim", False),
            row["blocking"],
            row["certainty"],
            row["source"],
            row["note"],
        )
        for row in _data()["mixed_ops"]
    }


@functools.cache
def makers() -> tuple[str, ...]:
    """Entry points that make a device tensor from Python numbers or NumPy data, and copy it there."""
    return tuple(row["entry"] for row in _data()["makers"])


@functools.cache
def callers() -> tuple[Caller, ...]:
    """The library code whose copies have a purpose of their own."""
    return tuple(
        Caller(row["file"], frozenset(row["functions"]), row["purpose"], row["what"]) for row in _data()["callers"]
    )


def purpose_of_code(code: CodeType) -> str:
    """The purpose of copies that a library function makes: "set-up", "offload", "parallel" …; empty for all other code."""
    return _purpose(code.co_filename, code.co_name)


@functools.lru_cache(maxsize=4096)
def _purpose(filename: str, function: str) -> str:
    path = filename.replace("\\", "/")
    for caller in callers():
        inside = f"/{caller.file}" in path if caller.file.endswith("/") else path.endswith(f"/{caller.file}")
        if inside and ("*" in caller.functions or function in caller.functions):
            return caller.purpose
    return ""

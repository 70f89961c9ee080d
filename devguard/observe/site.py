"""A source position as plain data. Imports no torch: reports are read on machines without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """One statement of a source file: lines are 1-based, columns 0-based in characters; `text` is the source of the statement."""

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    function: str
    text: str

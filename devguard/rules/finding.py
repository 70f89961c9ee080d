"""What a rule says: plain data, in the words of the report's JSON schema 1. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from devguard.observe.site import Site

Level = Literal["error", "warning", "note"]
Certainty = Literal["certain", "likely"]
LEVELS: tuple[Level, ...] = ("note", "warning", "error")


@dataclass(slots=True)
class TensorRef:
    """The tensor a finding is about, under the name its user would call it."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    expected_device: str | None = None


@dataclass(slots=True)
class HistoryEntry:
    """One station of a tensor's life: made, moved, loaded, or left behind by a move."""

    event: Literal["made", "moved", "loaded", "left behind"]
    op: str
    device: str
    site: Site | None
    module: str | None = None


@dataclass(slots=True)
class Fix:
    """What to change. `safe` says that the change cannot alter what a correct program computes."""

    text: str
    safe: bool = False


@dataclass(slots=True)
class Finding:
    """One defect of the watched run. Counts cover the whole run; `per_step` is the steady-state rate after warm-up."""

    rule: str
    name: str
    level: Level
    certainty: Certainty
    message: str
    fingerprint: str
    count: int = 1
    first_step: int = 0
    last_step: int = 0
    per_step: float = 0.0
    bytes: int = 0
    seconds: float = 0.0
    where: Site | None = None
    called_from: Site | None = None
    cause: Site | None = None
    module: str = ""
    module_type: str = ""
    tensor: TensorRef | None = None
    history: list[HistoryEntry] = field(default_factory=list)
    fix: Fix | None = None
    ranks: list[int] = field(default_factory=list)  # only in a report merged from several ranks

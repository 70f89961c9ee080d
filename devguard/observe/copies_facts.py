"""What was seen of copies between devices, as facts for the rules. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.tally import Tally

# How a copy came about: "" is the program's own move or op, the rest are purposes that rules treat apart.
BACKWARD, SET_UP, OFFLOAD, PARALLEL, SPLIT, PRINT, SAVE = (
    "backward",
    "set-up",
    "offload",
    "parallel",
    "split",
    "print",
    "save",
)


@dataclass(slots=True)
class LoaderFact:
    """One DataLoader whose batches were seen: where it was constructed, where the loop over it is, what pinning did."""

    made: RawSite | None
    loop: RawSite | None
    name: str
    pin_memory: bool
    skipped: str = ""  # the batch class that pin_memory=True passed by


@dataclass(slots=True)
class UnsafeFact:
    """Copies of one place that the host read, or whose source it overwrote, before they were known to be complete."""

    what: str  # "read" or "overwritten"
    how: str  # the op or method that did it
    site: RawSite | None
    name: str
    certain: bool
    tally: Tally


@dataclass(slots=True)
class CopyFact:
    """All copies of one kind at one place. `how` is the entry point that asked for them, or the op that made them unasked."""

    site: RawSite | None
    op: str
    how: str
    source: str
    target: str
    implicit: bool
    purpose: str
    non_blocking: bool
    pinned: bool
    blocking: bool
    tensor: TensorFact
    given_name: str  # what the copy is called
    module: str
    module_type: str
    stack: tuple[tuple[CodeType, int], ...]
    tally: Tally
    argument: str = ""  # the op's own name for what it copied unasked: `indices`, `values`
    logged: bool = False  # a guard(...="log") scope wants to hear of it
    fresh: int = 0  # copies of what was made in the same step by the same function
    bursts: int = 0  # runs of copies with nothing else between them: a dict of tensors moved in one go is one
    last_op: int = -100  # the number of the op that copied last
    again: int = 0  # copies of data that this place had copied shortly before, unchanged
    returned: int = 0  # copies of data that came from the target device
    from_loader: int = 0
    loader: LoaderFact | None = None
    went_out: RawSite | None = None  # where the data that returned had left the device
    unsafe: dict[Any, UnsafeFact] = field(default_factory=dict)

    @property
    def direction(self) -> str:
        """h2d, d2h or d2d."""
        if self.source == "cpu":
            return "h2d"
        return "d2h" if self.target == "cpu" else "d2d"


@dataclass(slots=True)
class DiscardFact:
    """A move whose result was thrown away. `how`: "statement", or "loop variable" where only that was rebound."""

    site: RawSite | None
    method: str
    how: str
    moved: bool
    temporary: bool
    target: str
    tensor: TensorFact
    module: str
    module_type: str
    tally: Tally


@dataclass(slots=True)
class CopyFacts:
    """The table of the copies observer."""

    copies: dict[Any, CopyFact] = field(default_factory=dict)
    discards: dict[Any, DiscardFact] = field(default_factory=dict)
    loaders: dict[Any, LoaderFact] = field(default_factory=dict)

"""Moves of autograd leaves that gave a copy which is no leaf. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.tally import Tally


@dataclass(slots=True)
class LeafFact:
    """A leaf that wants a gradient was moved by `call` at `site`; `tensor` is the copy. `refused` is where an optimizer was given
    the copy and refused it."""

    site: RawSite
    call: str
    parameter: bool
    source: str
    tensor: TensorFact
    refused: RawSite | None = None
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class LeafFacts:
    """Everything the Leaves observer saw, by site."""

    moves: dict[RawSite, LeafFact] = field(default_factory=dict)

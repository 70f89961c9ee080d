"""What was seen of the program's optimizers. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.tally import Tally

StateStory = Literal["loaded", "eager", "moved state", "moved parameters", "flags", "made"]
HolderStory = Literal["replaced", "added", "unfrozen", "another model", "not held"]


@dataclass(slots=True)
class StateFact:
    """Tensors of an optimizer that are on another device than their parameters when a step begins.

    `key` is the entry (`momentum_buffer`), `count` how many such tensors there are, `others` the further entries of the same
    optimizer; `story` how they came to be there, `cause` the line that did it, `moved` where the
    parameters moved last. `certain` says that it is wrong even if the step ends well; `held` that it lies outside `.state`,
    in an object whose method was called at `caller`."""

    optimizer: str
    kind: str
    key: str
    tensor: TensorFact
    expected: str
    story: StateStory
    cause: RawSite | None
    site: RawSite | None
    count: int = 0
    others: list[str] = field(default_factory=list)
    moved: RawSite | None = None
    certain: bool = False
    held: bool = False
    caller: RawSite | None = None
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class HolderFact:
    """Parameters of a model that get gradients while no optimizer holds them.

    `chain` are the project's positions on the stack when they came into the model, innermost first; `stale` is the shape of the
    parameter that the optimizer holds in their place, where that is known; `dead` says that the optimizer holds parameters of no
    model; `open` are the identities of those without a holder, `names` their paths."""

    optimizer: str
    kind: str
    story: HolderStory
    tensor: TensorFact
    module: str
    module_type: str
    made: RawSite | None
    site: RawSite | None
    chain: tuple[RawSite, ...] = ()
    names: list[str] = field(default_factory=list)
    stale: tuple[int, ...] | None = None
    dead: bool = False
    open: set[int] = field(default_factory=set)
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class OptimizerFacts:
    """Everything the Optimizers observer saw. `blamed` are the sites of failed ops that `state` explains."""

    state: dict[tuple[int, str], StateFact] = field(default_factory=dict)
    holders: dict[tuple[int, str], HolderFact] = field(default_factory=dict)
    blamed: set[RawSite] = field(default_factory=set)
    steps: int = 0

"""What is known about operands that did not fit together, and about the modules around them. Holds no tensor, imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from devguard.observe.frames import RawSite
from devguard.observe.origins import Origin
from devguard.observe.site import Site
from devguard.observe.tally import Tally

# parameter, buffer: registered in a module; attribute: a tensor that a module holds without registering it; hidden: a parameter or
# buffer of a module that its owner does not register; value: anything else; generator: no tensor at all
Kind = Literal["parameter", "buffer", "attribute", "hidden", "value", "generator"]


@dataclass(slots=True)
class Move:
    """One call of module.to(), .cuda(), .cpu() or .to_empty(): on `module` (its path), to `target`, at a tick of the recorder's clock."""

    site: RawSite | None
    call: str
    target: str
    tick: int
    step: int
    module_type: str
    source: tuple[str, ...] = ()


@dataclass(slots=True)
class ModuleFact:
    """A module as it was when something near it went wrong. `devices` and `tree_devices` count its own and all its registered tensors."""

    path: str
    type: str
    qualified: str
    variable: str = ""  # the user's name for it, where the path is empty
    library: bool = False
    loss: bool = False
    devices: dict[str, int] = field(default_factory=dict)
    tree_devices: dict[str, int] = field(default_factory=dict)
    built: RawSite | None = None
    called: RawSite | None = (
        None  # the call of the function that built it, where other calls of it have built such modules too
    )
    moves: tuple[Move, ...] = ()
    inner_moves: tuple[Move, ...] = ()  # moves of modules inside it that were not moves of it
    hooked: bool = False  # something moves its inputs for it: a pre-hook, accelerate
    classes: tuple[tuple[str, str], ...] = ()  # (file, qualified name) of its classes outside PyTorch


@dataclass(slots=True)
class OperandFact:
    """One operand of an operation that failed, or one tensor that would fail next."""

    name: str
    kind: Kind
    argument: str
    device: str
    shape: tuple[int, ...]
    dtype: str
    origin: Origin | None = None
    copy_of: Origin | None = None  # the station of a registered tensor that this was copied from
    fed_by: Origin | None = None  # the station of a registered tensor that this was calculated from
    nbytes: int = 0
    grad: bool = False  # has a gradient history, so was calculated from parameters
    holder: ModuleFact | None = None  # the module that holds it, for all kinds but value
    outermost: ModuleFact | None = None  # the outermost module around the holder
    newest: ModuleFact | None = None  # the outermost module around the holder that no move of `outermost` has covered
    attribute: str = ""  # the holder's attribute that leads to it: `anchors` for `anchors[0]`
    left_behind: Move | None = None  # the move that passed it by
    registered: RawSite | None = None  # where a parameter came into its module after the module was moved
    input_of: ModuleFact | None = None  # the innermost module that got it as an argument
    through_helper: bool = False  # the holder reaches it through an object that is neither a container nor a module
    meets: str = ""  # what the program would have given it to next, beside the result of the call that failed
    assigned: Site | None = None  # where the name of the value is last assigned, for what came to be unseen


@dataclass(slots=True)
class Mismatch:
    """Operands on devices that the operation does not accept together. `wrong` names the argument where PyTorch says so for certain."""

    site: RawSite | None
    op: str
    error: str
    operands: list[OperandFact]
    stack: tuple[ModuleFact, ...]  # the modules that were running, outermost first
    root: ModuleFact | None
    tally: Tally
    expected: str = ""  # the device that an argument must be on, where the operation demands one
    wrong: str = ""
    here: bool = False  # the failing call itself wants the host, so the copy belongs there
    ended: bool = False  # the exception ended the program
    others: list[OperandFact] = field(
        default_factory=list
    )  # further tensors that the running modules hold or were given
    through: tuple[RawSite, ...] = ()  # the sites of the frames around, innermost first
    homes: dict[str, int] = field(default_factory=dict)  # where the tensors of all known modules are


@dataclass(slots=True)
class Stray:
    """A tensor or a hidden module that a move passed by, and that has met nothing yet."""

    operand: OperandFact
    move: Move
    key: int


@dataclass(slots=True)
class BrokenTie:
    """Two names whose tensors shared their storage before a move and do not any more."""

    first: str
    second: str
    move: Move
    module: str
    module_type: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    mended: bool = False


@dataclass(slots=True)
class ConsistencyFacts:
    """Everything the consistency observer saw."""

    mismatches: dict[object, Mismatch] = field(default_factory=dict)
    strays: dict[object, Stray] = field(default_factory=dict)
    ties: list[BrokenTie] = field(default_factory=list)

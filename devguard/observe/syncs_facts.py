"""What was seen of the host waiting for an accelerator. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.tally import Tally


@dataclass(slots=True)
class SyncFact:
    """All waits with one cause at one statement.

    `site` is where the host waits; `made` the line that makes it necessary, where that is another one (the forward of a backward).
    `how` says in which way the user's expression waits (`syncs_expression.Reading.how`, or the name of an entry point), `called` the
    function written there, `library` the function of PyTorch that waits inside it, `hidden` what that one reads, `advice` the key of
    the fix. `names` are the tensors that were waited for, the first one's facts are `tensor`. `note` marks waits that are part of
    what was asked for.
    """

    rule: str
    how: str
    op: str
    site: RawSite | None
    made: RawSite | None = None
    called: str = ""
    library: str = ""
    hidden: str = ""
    advice: str = ""
    note: bool = False
    certainty: str = "certain"
    tensor: TensorFact | None = None
    names: list[str] = field(default_factory=list)
    module: str = ""
    module_type: str = ""
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class ForwardFact:
    """A place in the forward whose backward waits: the op's site and its input."""

    site: RawSite | None
    tensor: TensorFact | None
    module: str = ""
    module_type: str = ""


@dataclass(slots=True)
class SyncFacts:
    """Every cause of waits, by its statement and rule; see `syncs_place.group_key`."""

    found: dict[Any, SyncFact] = field(default_factory=dict)

"""What was seen of the process as a whole: its rank, the models it ran and on what, autocast. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from devguard.observe.facts import TensorFact
from devguard.observe.frames import RawSite
from devguard.observe.tally import Tally

RankEvent = Literal["set_device", "model", "load", "ddp", "stray"]

_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_LOCAL_WORLD = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The process's place in its job, as the launcher told it."""

    rank: int
    local: int
    world: int
    local_world: int | None

    @staticmethod
    def of(environment: Mapping[str, str] = os.environ) -> Ranks | None:
        """Read from the launcher's variables; None for a process that is no part of a job of several."""
        local = _number(environment, _LOCAL)
        world = _number(environment, _WORLD)
        if local is None or world is None or world < 2:
            return None
        rank = _number(environment, _RANK)
        return Ranks(local if rank is None else rank, local, world, _number(environment, _LOCAL_WORLD))


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isdigit():
            return int(text)
    return None


@dataclass(slots=True)
class RankUse:
    """A process of a job chose or used the accelerator `index` of the `count` it can see. `failed` says that the call raised.

    `ranks` is None in a process that no launcher told its rank (a spawned one); `module_index` is the accelerator
    of the module that it was given."""

    event: RankEvent
    index: int
    count: int
    ranks: Ranks | None
    site: RawSite | None
    cause: RawSite | None
    failed: bool = False
    tensor: TensorFact | None = None
    module: str = ""
    module_type: str = ""
    module_index: int | None = None
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """Another rank of the job on this machine said that it uses the same accelerator."""

    index: int
    rank: int
    other: int
    site: RawSite | None


@dataclass(slots=True)
class ModelUse:
    """One outermost module with parameters: how often it ran and where. `devices` are the indices of the accelerators that hold
    its parameters when it is called (-1 for the host); `asked` is an accelerator that the program's variables name."""

    name: str
    kind: str
    numel: int
    made: RawSite | None
    site: RawSite | None
    devices: set[int] = field(default_factory=set)
    calls: int = 0
    to_cpu: RawSite | None = None
    asked: str = ""
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class AutocastUse:
    """An autocast object, by the place where it was made: how many products inside ran on its own device type, and on another."""

    device: str
    made: RawSite | None
    site: RawSite | None
    own: int = 0
    other: int = 0
    other_device: str = ""
    other_site: RawSite | None = None
    entered: int = 0
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class ProcessFacts:
    """Everything the Process observer saw. `busy` is an accelerator that computes, whoever asked it to."""

    ranks: Ranks | None = None
    uses: dict[tuple[str, int, RawSite | None], RankUse] = field(default_factory=dict)
    shared: dict[int, SharedDevice] = field(default_factory=dict)
    models: dict[int, ModelUse] = field(default_factory=dict)
    autocast: dict[tuple[str, RawSite | None], AutocastUse] = field(default_factory=dict)
    busy: str = ""

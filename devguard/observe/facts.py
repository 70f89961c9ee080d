"""What the observers saw, without judgement: the only thing that rules read. Holds no tensor and imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from devguard.observe.frames import RawSite
from devguard.observe.origins import Origin
from devguard.observe.tally import Tally

T = TypeVar("T")


@dataclass(slots=True)
class TensorFact:
    """One tensor as it was when an event met it. `role` is one of the roles of the report's schema."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int = 0
    origin: Origin | None = None
    argument: str = ""  # the op's or module's own name for it: `weight`, `input`
    owner: str = ""  # path of the module that holds it
    is_leaf: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Failure:
    """A part of devguard that switched itself off."""

    part: str
    problem: str


@dataclass(slots=True)
class Unseen:
    """Something the watch could not look into."""

    what: str
    site: RawSite | None
    tally: Tally


@dataclass(slots=True)
class ExceptionFact:
    """The exception that ended the watched program."""

    type: str
    message: str
    site: RawSite | None = None


@dataclass(slots=True)
class Facts:
    """Everything one watch recorded; each observer keeps what it saw in a table of its own type."""

    warmup: int = 2
    steps: int = 0  # complete steps that were watched: what rates are measured against
    skipped_steps: int = 0  # steps that nobody watched (every=N)
    ops: int = 0
    devices: list[str] = field(default_factory=list)
    simulated: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    exception: ExceptionFact | None = None
    failures: list[Failure] = field(default_factory=list)
    unseen: dict[Any, Unseen] = field(default_factory=dict)
    tables: dict[type, Any] = field(default_factory=dict)

    def table(self, kind: type[T]) -> T:
        """The facts of one observer, made empty at the first request: `facts.table(SyncFacts)`."""
        found = self.tables.get(kind)
        if found is None:
            found = self.tables[kind] = kind()
        return found

    def fail(self, part: str, problem: BaseException) -> None:
        """Remember, once, that a part of devguard failed."""
        failure = Failure(part, f"{type(problem).__name__}: {problem}"[:300])
        if failure not in self.failures:
            self.failures.append(failure)

    def not_seen(self, what: str, site: RawSite | None, step: int) -> None:
        """Count one thing that could not be looked into."""
        key = (what, site)
        entry = self.unseen.get(key)
        if entry is None:
            entry = self.unseen[key] = Unseen(what, site, Tally())
        entry.tally.hit(step, self.warmup)

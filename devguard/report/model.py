"""The report as plain data (JSON schema 1): what every renderer reads and `devguard report` and `diff` load. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from devguard.observe.site import Site
from devguard.rules.finding import Finding

SCHEMA = 1


@dataclass(slots=True)
class Transfer:
    """All copies between one pair of devices made at one place."""

    site: Site | None
    source: str
    target: str
    count: int
    bytes: int
    implicit: bool
    blocking: bool
    pinned: bool


@dataclass(slots=True)
class NotSeen:
    """Something the watch could not look into, and how often."""

    what: str
    count: int
    site: Site | None = None


@dataclass(slots=True)
class RaisedException:
    """The exception that ended the watched program, if one did."""

    type: str
    message: str


@dataclass(slots=True)
class Report:
    """One watched run. Findings are ranked: level first, then cost (count x bytes, or measured seconds)."""

    version: str = ""
    torch: str = ""
    python: str = ""
    command: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    simulated: bool = False
    rank: int | None = None
    steps: int = 0
    ops: int = 0
    started: str = ""
    seconds: float = 0.0
    own_seconds: float = 0.0
    complete: bool = True
    exception: RaisedException | None = None
    findings: list[Finding] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    not_seen: list[NotSeen] = field(default_factory=list)

    def to_json(self) -> str:
        """The report as JSON, schema 1."""
        from devguard.report.json import dumps

        return dumps(self)

    def __str__(self) -> str:
        """The report as text, without colour."""
        from devguard.report.text import render

        return render(self)

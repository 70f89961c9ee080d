"""Two reports compared by fingerprint: what is new, what is gone, and what comes up more or less often. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from devguard.report import _layout as layout
from devguard.report.model import Report
from devguard.rules.finding import Finding

_TOLERANCE = 1.1  # a rate that depends on the data moves a little from run to run


@dataclass(frozen=True, slots=True)
class Change:
    """A finding of both reports whose rate or count is no longer the same."""

    old: Finding
    new: Finding


@dataclass(slots=True)
class Difference:
    """`more` is worse than before, `less` better; `same` counts the rest."""

    new: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)
    more: list[Change] = field(default_factory=list)
    less: list[Change] = field(default_factory=list)
    same: int = 0

    def worse(self) -> list[Finding]:
        """What a check of a change must look at: new findings, and those that come up more often."""
        return [*self.new, *(change.new for change in self.more)]


def got_worse(old_count: int, old_rate: float, new_count: int, new_rate: float) -> bool:
    """Does a finding come up more often? Rates per step decide where there are any: a longer run is not worse."""
    if old_rate or new_rate:
        return new_rate > old_rate * _TOLERANCE + 1e-9
    return new_count > old_count


def compare(old: Report, new: Report) -> Difference:
    """What changed from one report to another. Findings that share a fingerprint are taken together."""
    before, after = _merged(old), _merged(new)
    result = Difference(gone=[finding for key, finding in before.items() if key not in after])
    for key, finding in after.items():
        known = before.get(key)
        if known is None:
            result.new.append(finding)
        elif got_worse(known.count, known.per_step, finding.count, finding.per_step):
            result.more.append(Change(known, finding))
        elif got_worse(finding.count, finding.per_step, known.count, known.per_step):
            result.less.append(Change(known, finding))
        else:
            result.same += 1
    return result


def _merged(report: Report) -> dict[str, Finding]:
    import dataclasses

    found: dict[str, Finding] = {}
    for finding in report.findings:
        known = found.get(finding.fingerprint)
        if known is not None:  # the report's first is the worst
            finding = dataclasses.replace(
                known, count=known.count + finding.count, per_step=known.per_step + finding.per_step
            )
        found[finding.fingerprint] = finding
    return found


def render(difference: Difference, folder: str | None = None) -> str:
    """The difference as text, one line per finding."""
    base = layout.working_folder() if folder is None else folder
    return "".join(f"{line}\n" for line in _lines(difference, base))


def _lines(difference: Difference, base: str) -> Iterator[str]:
    for title, findings in (("new", difference.new), ("gone", difference.gone)):
        for finding in findings:
            yield f"{title + ':':6}{_line(finding, base)} ({layout.counts(finding)})"
    for title, changes in (("more", difference.more), ("less", difference.less)):
        for change in changes:
            yield f"{title + ':':6}{_line(change.new, base)} ({_often(change.old)} before, {_often(change.new)} now)"
    yield (
        f"devguard: {len(difference.new)} new, {len(difference.gone)} gone, {len(difference.more)} more often, "
        f"{len(difference.less)} less often, {difference.same} unchanged"
    )


def _line(finding: Finding, base: str) -> str:
    site = layout.line_to_change(finding)
    at = f" at {layout.place(site, base)}" if site is not None else ""
    name = f"{finding.level}[{layout.clean(finding.rule)}] {layout.clean(finding.name)}"
    return f"{name}: {layout.clean(finding.message)}{at}"


def _often(finding: Finding) -> str:
    return f"{layout.rate(finding.per_step)} per step" if finding.per_step else layout.times(finding.count)
